//! Traps of known corpora as checks: rows that stand in a corpus twice, corpora that repackage one
//! another, files that cannot be there.

use super::card::{Card, CardConfig};
use super::error::RecipeError;
use super::file::Exact;
use super::resolve::ResolvedSource;

/// Refuses sources of one phase that would read the same rows of a corpus twice, in another
/// configuration or as another copy.
///
/// # Errors
/// The two sources and their configurations.
pub fn check_repeats(sources: &[ResolvedSource], cards: &[Card]) -> Result<(), RecipeError> {
    for (index, source) in sources.iter().enumerate() {
        let Some((card, config)) = card_of(source, cards) else { continue };
        let earlier = sources.iter().take(index).filter(|other| other.corpus == source.corpus);
        for other in earlier {
            let Some((_, other_config)) = card_of(other, cards) else { continue };
            if repeat(config, other_config) {
                return Err(RecipeError::value_hint(
                    format!("source `{}`", source.name),
                    format!(
                        "config `{}` of `{}` holds rows of config `{}`, which source `{}` reads",
                        config.name, card.id, other_config.name, other.name
                    ),
                    "read one of the two, or each in a phase of its own with `exclude_phase`",
                ));
            }
        }
    }
    Ok(())
}

/// What a plan should say about the sources of a phase before hours of work: a sentence each, in the
/// order of sources.
pub fn warnings(sources: &[ResolvedSource], exact: Exact, cards: &[Card]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let Some((card, config)) = card_of(source, cards) else { continue };
        found.extend(repackaged(source, sources, exact, card.repackaged(config)));
        found.extend(unmapped(source, config));
    }
    found
}

/// Looks at the names of the files that a source of a known corpus found: a split for evaluation,
/// copies of the same rows, numbers that no file of the corpus has.
///
/// # Errors
/// The file, and what is wrong with it.
pub fn check_files(source: &ResolvedSource, names: &[&str], cards: &[Card]) -> Result<(), RecipeError> {
    let Some((_, config)) = card_of(source, cards) else { return Ok(()) };
    let Some(first) = config.first_part else { return Ok(()) };
    for name in names {
        let Some((part, parts)) = part_of(name) else { continue };
        if !(first..first + parts).contains(&part) {
            return Err(RecipeError::value_hint(
                format!("source `{}`", source.name),
                format!(
                    "`{name}` cannot be a file of this corpus: its parts are counted from {first} to {}",
                    first + parts - 1
                ),
                "the file was renamed, or does not belong here",
            ));
        }
    }
    Ok(())
}

/// How many of the files of a corpus are there, where their names tell how many there should be:
/// `(there, of)`, summed over sets of files that count on their own.
pub fn parts_there(names: &[&str]) -> Option<(u64, u64)> {
    let mut sets = std::collections::BTreeMap::new();
    for name in names {
        let (_, parts) = part_of(name)?;
        let digits = |c: char| c.is_ascii_digit();
        let set = name.split(digits).collect::<Vec<_>>().join("#");
        sets.entry((set, parts)).and_modify(|there: &mut u64| *there += 1).or_insert(1);
    }
    let there = sets.values().sum();
    let of = sets.keys().map(|(_, parts)| parts).sum();
    (of > 0).then_some((there, of))
}

/// Card and configuration of a source of a known corpus.
pub fn card_of<'a>(source: &ResolvedSource, cards: &'a [Card]) -> Option<(&'a Card, &'a CardConfig)> {
    let id = source.corpus.as_deref()?;
    let card = cards.iter().find(|card| card.id == id)?;
    Some((card, card.config(source.config.as_deref())?))
}

fn repeat(a: &CardConfig, b: &CardConfig) -> bool {
    a.repeats.contains(&b.name) || b.repeats.contains(&a.name)
}

fn repackaged<'a>(
    source: &ResolvedSource,
    sources: &[ResolvedSource],
    exact: Exact,
    ids: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let advice = match exact {
        Exact::Prompt => "`[dedup] exact = \"prompt\"` keeps one row a prompt",
        _ => "`[dedup] exact = \"prompt\"` would keep one row a prompt",
    };
    let mut found = Vec::new();
    for id in ids {
        for other in sources.iter().filter(|other| other.corpus.as_deref() == Some(id)) {
            let (name, other) = (&source.name, &other.name);
            found.push(format!(
                "source `{name}` repackages rows or prompts of source `{other}` ({id}); {advice}"
            ));
        }
    }
    found
}

/// A mapping of the recipe's own that leaves out what the card's has a place for.
fn unmapped(source: &ResolvedSource, config: &CardConfig) -> Option<String> {
    let column = config.mapping.as_ref()?.system.as_ref()?;
    if source.mapping.system.is_some() {
        return None;
    }
    let name = &source.name;
    Some(format!("source `{name}` maps no `system`, but this corpus keeps its system text in `{column}`"))
}

/// The number of a file and how many there are, from a name such as `part-0007-of-0300.jsonl`.
fn part_of(name: &str) -> Option<(u64, u64)> {
    let (before, after) = name.rsplit_once("-of-")?;
    let (_, part) = before.rsplit_once('-')?;
    let parts = after.split('.').next()?;
    Some((part.parse().ok()?, parts.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_numbers_are_told_from_names() {
        assert_eq!(
            part_of("data/ultrafineweb_en/ultrafineweb-en-part-0001-of-2048.parquet"),
            Some((1, 2048))
        );
        assert_eq!(part_of("all/train-00003-of-00009.parquet"), Some((3, 9)));
        assert_eq!(part_of("sample/10BT/000_00000.parquet"), None);
        assert_eq!(part_of("a-b-of-c.parquet"), None);
    }

    #[test]
    fn sets_of_files_count_on_their_own() {
        let names = ["a/train-0-of-2.parquet", "a/train-1-of-2.parquet", "b/train-0-of-3.parquet"];
        assert_eq!(parts_there(&names), Some((3, 5)));
        assert_eq!(parts_there(&["x.jsonl"]), None);
    }
}
