//! Which part of a text is trained on, under every policy: worked out from the text alone, by its headers,
//! think blocks and ends of turns, and compared with what the renderer says.

use potable::normalise::native::{Ending, normalise, render};
use potable::normalise::{
    Acted, ChatTemplate, EmptyThink, History, LeadingNewlines, OnLossy, OnUnclosed, Policy, TextFormat, Train,
};
use potable::source::adapt::{Conversation, Message, Outcome, Role, ToolCall};

use super::conversations::{Numbers, conversation};
use super::templates::FORMATS;

fn chat(turns: &[(Role, &str)]) -> Conversation {
    let messages = turns.iter().map(|(role, text)| Message::new(role.clone(), *text)).collect();
    Conversation { messages, tools: Vec::new() }
}

/// The body of the last answer and what of the text is trained on, or why the row is dropped.
fn outcome(made: &Conversation, policy: &Policy) -> Result<(String, String), &'static str> {
    match normalise(made, policy, &mut Acted::new()) {
        Outcome::Drop(reason) => Err(reason.name()),
        Outcome::Keep(samples) => {
            let sample = samples.last().unwrap();
            let body = sample.text.rsplit_once("<|im_start|>assistant\n").unwrap().1;
            let trained = sample.trained.iter().map(|span| sample.text.get(span.clone()).unwrap()).collect();
            Ok((body.trim_end_matches('\n').to_owned(), trained))
        }
    }
}

const EMPTY: &str = "<think>\n\n</think>\n\n";

#[test]
fn reasoning_that_is_cut_off_under_every_policy() {
    let texts = [
        "<think>\ncut",
        "Sure. <think>\ncut",
        "<think>a</think>b<think>cut",
        "Sure. <think>a</think>b<think>cut",
    ];
    for on_unclosed in [OnUnclosed::Drop, OnUnclosed::Close, OnUnclosed::Keep] {
        for on_lossy in [OnLossy::Drop, OnLossy::Keep] {
            for empty_think in [EmptyThink::Mask, EmptyThink::Train, EmptyThink::Omit, EmptyThink::Drop] {
                let policy = Policy { on_unclosed, on_lossy, empty_think, ..Policy::DEFAULT };
                for (number, text) in texts.into_iter().enumerate() {
                    let found = outcome(&chat(&[(Role::User, "q"), (Role::Assistant, text)]), &policy);
                    let whole = |text: &str| Ok((format!("{text}<|im_end|>"), format!("{text}<|im_end|>")));
                    let drops = on_lossy == OnLossy::Drop;
                    let expected = match (on_unclosed, number) {
                        (OnUnclosed::Drop, 3) if drops => Err("normalise.lossy"),
                        (OnUnclosed::Drop, _) => Err("normalise.unclosed-think"),
                        (OnUnclosed::Close, 1..) if drops => Err("normalise.lossy"),
                        (OnUnclosed::Close, _) => whole("<think>\ncut\n</think>\n\n"),
                        (OnUnclosed::Keep, 0 | 1) => match empty_think {
                            EmptyThink::Mask => {
                                Ok((format!("{EMPTY}{text}<|im_end|>"), format!("{text}<|im_end|>")))
                            }
                            EmptyThink::Train => whole(&format!("{EMPTY}{text}")),
                            EmptyThink::Omit => whole(text),
                            EmptyThink::Drop => Err("normalise.empty-think"),
                        },
                        (OnUnclosed::Keep, 3) if drops => Err("normalise.lossy"),
                        (OnUnclosed::Keep, _) => whole("<think>\na\n</think>\n\nb<think>cut"),
                    };
                    assert_eq!(found, expected, "{text:?} {policy:?}");
                }
            }
        }
    }
    // Nothing at all is no reasoning to close.
    let policy = Policy { on_unclosed: OnUnclosed::Close, ..Policy::DEFAULT };
    let nothing = chat(&[(Role::User, "q"), (Role::Assistant, "<think>\n")]);
    assert_eq!(outcome(&nothing, &policy), Err("normalise.empty-answer"));
}

#[test]
fn an_answer_without_reasoning_in_a_chain_of_tools_is_dropped_with_the_others() {
    let call = ToolCall { name: "f".to_owned(), arguments: "{}".to_owned(), id: None };
    let mut made = chat(&[
        (Role::User, "q"),
        (Role::Assistant, ""),
        (Role::Tool, "r"),
        (Role::Assistant, "<think>\nwhy\n</think>\n\na"),
    ]);
    made.messages[1].tool_calls = vec![call];
    for format in [TextFormat::Qwen3, TextFormat::Qwen3Thinking2507, TextFormat::Qwen35, TextFormat::Qwen36] {
        let policy = Policy { format, empty_think: EmptyThink::Drop, ..Policy::DEFAULT };
        assert_eq!(outcome(&made, &policy), Err("normalise.empty-think"), "{format:?}");
        assert!(outcome(&made, &Policy { empty_think: EmptyThink::Mask, ..policy }).is_ok());
        let mut reasoned = made.clone();
        reasoned.messages[1].reasoning = Some("first".to_owned());
        assert!(outcome(&reasoned, &policy).is_ok(), "{format:?}");
        // What is not trained on may lack it.
        let earlier = chat(&[(Role::User, "q"), (Role::Assistant, "a"), (Role::User, "r")]);
        let mut earlier = earlier;
        earlier.messages.push(reasoned.messages[3].clone());
        assert!(outcome(&earlier, &policy).is_ok(), "{format:?}");
        let all = Policy { train: Train::AllTurns, ..policy };
        assert_eq!(outcome(&earlier, &all), Err("normalise.empty-think"), "{format:?}");
    }
    let policy =
        Policy { format: TextFormat::Qwen3Instruct2507, empty_think: EmptyThink::Drop, ..Policy::DEFAULT };
    assert!(outcome(&made, &policy).is_ok());
}

/// Byte by byte, what is trained on: worked out from the text and the policy.
fn expected_mask(text: &str, policy: &Policy) -> Vec<bool> {
    let mut mask = vec![false; text.len()];
    let mut turns: Vec<(usize, &str, &str)> = Vec::new();
    let mut at = 0;
    for block in text.split_inclusive("<|im_end|>\n") {
        // The templates of Qwen3.5 and later open no block for results of tools at the very start.
        let Some(inside) = block.strip_prefix("<|im_start|>") else {
            assert!(block.starts_with("\n<tool_response>"), "{block:?}");
            at += block.len();
            continue;
        };
        let inside = inside.strip_suffix("<|im_end|>\n").unwrap();
        let (role, body) = inside.split_once('\n').unwrap();
        turns.push((at + "<|im_start|>".len() + role.len() + 1, role, body));
        at += block.len();
    }
    let wrapped = |body: &str| body.starts_with("<tool_response>") && body.ends_with("</tool_response>");
    let query = turns.iter().rposition(|(_, role, body)| *role == "user" && !wrapped(body));
    for (index, (start, role, body)) in turns.iter().enumerate() {
        let trained = match (policy.history, policy.train) {
            (History::Unroll, _) => index + 1 == turns.len(),
            (History::Keep, _) | (_, Train::AllTurns) => true,
            (History::Template, Train::LastTurns) => query.is_some_and(|query| index > query),
        };
        if *role != "assistant" || !trained {
            continue;
        }
        let has_block = policy.format != TextFormat::Qwen3Instruct2507 && body.starts_with("<think>\n");
        let block = match has_block {
            true => body.find("\n</think>\n\n").unwrap() + "\n</think>\n\n".len(),
            false => 0,
        };
        let is_empty = body.starts_with(EMPTY);
        let masked = policy.mask_reasoning || (is_empty && policy.empty_think == EmptyThink::Mask);
        let from = start + if masked { block } else { 0 };
        let end = start + body.len() + "<|im_end|>".len() + usize::from(policy.train_newline);
        mask[from..end].fill(true);
    }
    mask
}

fn any_policy(numbers: &mut Numbers) -> Policy {
    let empty = [EmptyThink::Mask, EmptyThink::Train, EmptyThink::Omit, EmptyThink::Drop];
    let history = [History::Template, History::Unroll, History::Keep];
    let format = FORMATS[numbers.below(5) as usize];
    if numbers.is(30) {
        return Policy { format, ..Policy::DEFAULT };
    }
    Policy {
        format,
        history: history[numbers.below(3) as usize],
        train: if numbers.is(50) { Train::AllTurns } else { Train::LastTurns },
        empty_think: empty[numbers.below(4) as usize],
        on_unclosed: if numbers.is(50) { OnUnclosed::Close } else { OnUnclosed::Drop },
        leading_newlines: if numbers.is(50) { LeadingNewlines::Strip } else { LeadingNewlines::Keep },
        train_newline: numbers.is(20),
        mask_reasoning: numbers.is(30),
        ..Policy::DEFAULT
    }
}

/// A generated conversation that has no control string and no null, so that its text can be read back.
fn readable(numbers: &mut Numbers) -> Option<Conversation> {
    let made = conversation(numbers);
    let bad = |text: &str| text.contains("<|") || text.contains("|>");
    let reads = !made.printable().iter().any(|(_, text, _)| bad(text));
    let whole = made.messages.iter().all(|m| m.content.is_some());
    (reads && whole).then_some(made)
}

#[test]
fn what_is_trained_on_can_be_read_off_the_text_under_every_policy() {
    let (mut compared, mut by_default) = (0, 0);
    for number in 0..12_000 {
        let mut numbers = Numbers::of(21, number);
        let Some(made) = readable(&mut numbers) else { continue };
        let policy = any_policy(&mut numbers);
        let Outcome::Keep(samples) = normalise(&made, &policy, &mut Acted::new()) else { continue };
        for sample in samples {
            let mut found = vec![false; sample.text.len()];
            sample.trained.iter().for_each(|span| found[span.clone()].fill(true));
            let expected = expected_mask(&sample.text, &policy);
            assert!(
                found == expected,
                "conversation {number}, {policy:?}: {:?} {:?}",
                sample.text,
                sample.trained
            );
            compared += 1;
            by_default += u64::from(policy == (Policy { format: policy.format, ..Policy::DEFAULT }));
        }
    }
    assert!(compared > 1500 && by_default > 400, "{compared} compared, {by_default} by the defaults");
}

/// With `history = "unroll"` the text before an answer is the prompt that inference makes of what went
/// before, whatever it is.
#[test]
fn unrolled_samples_begin_with_the_prompt_of_inference() {
    let check = |made: &Conversation, policy: &Policy| {
        let Outcome::Keep(samples) = normalise(made, policy, &mut Acted::new()) else { return 0 };
        let answers = made.messages.iter().enumerate().filter(|(_, m)| m.role == Role::Assistant);
        let count = samples.len();
        for (sample, (index, _)) in samples.iter().zip(answers) {
            let head = Conversation {
                messages: made.messages.iter().take(index).cloned().collect(),
                tools: made.tools.clone(),
            };
            let faithful = Policy {
                format: policy.format,
                leading_newlines: policy.leading_newlines,
                // Reasoning that is white space is none.
                drop_unanswered: true,
                ..Policy::FAITHFUL
            };
            let Ok(prompt) = render(&head, &faithful, Ending::Prompt { thinking: true }) else { continue };
            // That the block is opened in the prompt is told by the think block of the answer.
            let prompt = prompt.text.strip_suffix("<think>\n").unwrap_or(&prompt.text).to_owned();
            assert!(sample.text.starts_with(&prompt), "{policy:?}: {prompt:?} {:?}", sample.text);
            let between = sample.text.get(prompt.len()..sample.trained[0].start).unwrap();
            assert!(between.is_empty() || between == EMPTY, "{between:?}");
        }
        count
    };
    let twice = chat(&[(Role::User, "q"), (Role::Assistant, "a"), (Role::Assistant, "b")]);
    let mut seen = 0;
    for number in 0..4000 {
        let mut numbers = Numbers::of(22, number);
        let policy = any_policy(&mut numbers);
        let policy = Policy {
            history: History::Unroll,
            mask_reasoning: false,
            empty_think: EmptyThink::Mask,
            ..policy
        };
        let policy =
            Policy { leading_newlines: LeadingNewlines::Keep, on_unclosed: OnUnclosed::Drop, ..policy };
        assert_eq!(check(&twice, &policy), 2);
        if let Some(made) = readable(&mut numbers) {
            seen += check(&made, &policy);
        }
    }
    assert!(seen > 500, "{seen}");
}

/// By the model's own template no row counts as lossy that the native format keeps.
#[test]
fn a_row_that_the_native_format_keeps_is_not_lossy_by_its_template() {
    use potable::decontaminate::Decontaminator;
    use potable::normalise::{ControlFinder, Controls, Normaliser};
    use potable::run::reason::DropReason;
    use potable::source::adapt::Adapted;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/templates");
    if !folder.exists() {
        return super::harness::skipped("the official templates are not there");
    }
    let models =
        [("qwen3.jinja", TextFormat::Qwen3), ("qwen3_instruct_2507.jinja", TextFormat::Qwen3Instruct2507)];
    for (file, format) in models {
        let template = ChatTemplate::load(&folder.join(file)).unwrap();
        let policy = Policy { format: TextFormat::Template, ..Policy::DEFAULT };
        let controls = Controls { finder: ControlFinder::new(&["<|im_end|>"]), end_of_text: String::new() };
        let by_template = Normaliser::new(policy, controls, Some(template));
        let mut kept = 0;
        for number in 0..3000 {
            let Some(made) = readable(&mut Numbers::of(23, number)) else { continue };
            let native = normalise(&made, &Policy { format, ..Policy::DEFAULT }, &mut Acted::new());
            let row = Decontaminator::new(None, false).apply(Adapted::Chat(made.clone())).row.unwrap();
            let found = by_template.apply(&row, &mut Acted::new());
            if matches!(native, Outcome::Keep(_)) {
                assert!(found != Outcome::Drop(DropReason::NormaliseLossy), "{file} {number}: {made:?}");
                kept += 1;
            }
        }
        assert!(kept > 300, "{file}: {kept}");
    }
}
