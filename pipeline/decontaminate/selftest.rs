//! What a blocklist would find in a user's own rows: items of the user's benchmarks are put into them
//! in every disguise, and the rows checked as a run would check them.

use std::collections::BTreeSet;

use potable_blocklists::{Action, Blocklist, Item, words_of};

use super::Decontaminator;
use super::benchmarks::{self, BenchmarkError, LoadedBenchmark};
use super::disguise::{DISGUISES, Dice, Disguise, Hope, OTHER_ITEMS, Place};
use crate::source::adapt::{Adapted, Conversation, Message, Role};

/// Items that one kind is tried on, at most.
const TRIES: usize = 200;

/// The outcome of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindResult {
    /// Name of the kind.
    pub name: &'static str,
    /// What is hoped for.
    pub hope: Hope,
    /// Rows made.
    pub rows: u64,
    /// Rows that were dropped.
    pub found: u64,
    /// Rows that were dropped for the item that was put in, or for one of its family.
    pub named: u64,
}

/// Tries every kind on items of the blocklist, put into `hosts` (chat rows of the user). The same
/// seed gives the same rows.
pub fn selftest(blocklist: &Blocklist, items: &[Item], hosts: &[Conversation], seed: u64) -> Vec<KindResult> {
    let mut decontaminator = Decontaminator::new(Some(blocklist), false);
    DISGUISES
        .iter()
        .enumerate()
        .map(|(number, kind)| {
            let mut dice = Dice::new(seed ^ (number as u64) << 32);
            try_kind(&mut decontaminator, kind, items, hosts, &mut dice)
        })
        .collect()
}

/// Items that are in no blocklist: every second item of each benchmark makes one, and of the others those
/// that have not the words of one of them are put into `hosts`. What is dropped is a false alarm.
///
/// # Errors
/// As [`benchmarks::build`].
pub fn other_items(
    loaded: &[LoadedBenchmark],
    ngram: u64,
    hosts: &[Conversation],
    seed: u64,
) -> Result<KindResult, BenchmarkError> {
    let (mut held, mut others) = (Vec::new(), Vec::new());
    for benchmark in loaded {
        let half = |rest: usize| benchmark.items.iter().skip(rest).step_by(2).cloned().collect();
        held.push(LoadedBenchmark { meta: benchmark.meta.clone(), items: half(0) });
        others.extend::<Vec<Item>>(half(1));
    }
    let kept: BTreeSet<String> = held
        .iter()
        .flat_map(|benchmark| &benchmark.items)
        .map(|item| words_of(&item.stem).join(" "))
        .collect();
    others.retain(|item| !kept.contains(&words_of(&item.stem).join(" ")));
    let blocklist = benchmarks::build(&held, ngram)?;
    let mut decontaminator = Decontaminator::new(Some(&blocklist), false);
    Ok(try_kind(&mut decontaminator, &OTHER_ITEMS, &others, hosts, &mut Dice::new(seed ^ u64::MAX)))
}

fn try_kind(
    decontaminator: &mut Decontaminator,
    kind: &Disguise,
    items: &[Item],
    hosts: &[Conversation],
    dice: &mut Dice,
) -> KindResult {
    let mut result = KindResult { name: kind.name, hope: kind.hope, rows: 0, found: 0, named: 0 };
    for _ in 0..items.len().min(TRIES) {
        let Some(item) = items.get(dice.below(items.len())) else { break };
        let Some(host) = hosts.get(dice.below(hosts.len())) else { break };
        let Some(text) = (kind.write)(&item.stem, dice) else { continue };
        let verdict = decontaminator.apply(Adapted::Chat(put(host, kind.place, text)));
        result.rows += 1;
        if verdict.row.is_err() {
            result.found += 1;
            let mut drops = verdict.matches.iter().filter(|found| found.action == Action::Drop);
            result.named += u64::from(drops.any(|found| found.item == item.id));
        }
    }
    result
}

fn put(host: &Conversation, place: Place, text: String) -> Conversation {
    let mut row = host.clone();
    let at = |role: Role| row.messages.iter().position(|message| message.role == role);
    let (user, assistant) = (at(Role::User), at(Role::Assistant));
    let inside = |message: &Message| format!("{}\n\n{text}\n\n{}", message.text(), "That is all.");
    match place {
        Place::Prompt | Place::InPrompt => {
            if let Some(message) = user.and_then(|at| row.messages.get_mut(at)) {
                message.content = Some(if place == Place::Prompt { text } else { inside(message) });
            }
        }
        Place::InAnswer => {
            if let Some(message) = assistant.and_then(|at| row.messages.get_mut(at)) {
                message.content = Some(inside(message));
            }
        }
        Place::InReasoning => {
            if let Some(message) = assistant.and_then(|at| row.messages.get_mut(at)) {
                message.reasoning = Some(format!("Let me restate it. {text} Now, step by step."));
            }
        }
        Place::ThirdTurn => {
            row.messages.truncate(2);
            row.messages.push(Message::new(Role::User, "And another one, please."));
            row.messages.push(Message::new(Role::Assistant, "Gladly."));
            row.messages.push(Message::new(Role::User, text));
            row.messages.push(Message::new(Role::Assistant, "Here is the answer."));
        }
    }
    row
}
