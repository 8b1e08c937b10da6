//! Cards of known corpora: where the files are, what a row is, what to look out for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::join::JoinFile;
use crate::source::Format;
use crate::source::adapt::MappingFile;

/// One card (`pipeline/corpora/*.toml`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Id of the repository.
    pub id: String,
    /// What it is, in a line.
    pub title: String,
    /// Licence.
    pub licence: String,
    /// Whether its terms must be accepted first.
    pub gated: bool,
    /// The commit that the card was written for, where it is known in full: what is read from the Hub
    /// if the recipe names no revision.
    pub revision: Option<String>,
    /// The configuration that is taken if the recipe names none.
    pub default_config: String,
    /// Other corpora whose rows, or prompts, are in every configuration of this one.
    #[serde(default)]
    pub repackages: Vec<String>,
    /// Traps, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Sets of columns by name, each a list of `NAME: TYPE`; `default` is that of configurations that
    /// name none.
    #[serde(default)]
    pub columns: BTreeMap<String, Vec<String>>,
    /// Configurations.
    pub config: Vec<CardConfig>,
}

/// A configuration of a corpus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardConfig {
    /// Name.
    pub name: String,
    /// Format of the files.
    pub format: Format,
    /// Default filter (SQL).
    #[serde(rename = "where")]
    pub where_: Option<String>,
    /// Which rows are for training (SQL), where the files hold others too. A recipe's own `where`
    /// comes on top of it, not in its place.
    pub train_where: Option<String>,
    /// The training split.
    pub split: String,
    /// Rows of the training split, where a card or a paper says.
    pub rows: Option<u64>,
    /// Globs of its files inside the repository.
    pub files: Vec<String>,
    /// Splits that are for evaluation, with the globs of their files.
    #[serde(default)]
    pub eval: BTreeMap<String, Vec<String>>,
    /// Number of the first file, where file names count `-part-N-of-M` or `-N-of-M`.
    pub first_part: Option<u64>,
    /// Name of its set of columns.
    pub columns: Option<String>,
    /// Other configurations of this corpus that hold rows of this one too.
    #[serde(default)]
    pub repeats: Vec<String>,
    /// Other corpora whose rows, or prompts, are in this configuration.
    #[serde(default)]
    pub repackages: Vec<String>,
    /// Why its rows cannot be trained on as they are.
    pub unusable: Option<String>,
    /// How a row becomes a conversation; none only where the configuration is unusable.
    pub mapping: Option<MappingFile>,
    /// Text of the rows that stands in other corpora.
    #[serde(default)]
    pub join: Vec<JoinFile>,
}

include!(concat!(env!("OUT_DIR"), "/cards.rs"));

/// All cards, by id.
///
/// # Errors
/// A card that does not parse: the file and the parser's words (the tests parse all of them).
pub fn cards() -> Result<Vec<Card>, String> {
    let mut cards: Vec<Card> = CARDS
        .iter()
        .map(|(name, text)| toml::from_str(text).map_err(|e| format!("card {name}: {e}")))
        .collect::<Result<_, _>>()?;
    cards.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(cards)
}

impl Card {
    /// A configuration by name, the default one without.
    pub fn config(&self, name: Option<&str>) -> Option<&CardConfig> {
        let name = name.unwrap_or(&self.default_config);
        self.config.iter().find(|config| config.name == name)
    }

    /// The columns of a configuration, each `NAME: TYPE`.
    pub fn columns_of(&self, config: &CardConfig) -> &[String] {
        let name = config.columns.as_deref().unwrap_or("default");
        self.columns.get(name).map_or(&[], Vec::as_slice)
    }

    /// The other corpora whose rows are in a configuration.
    pub fn repackaged<'a>(&'a self, config: &'a CardConfig) -> impl Iterator<Item = &'a str> {
        self.repackages.iter().chain(&config.repackages).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_card_parses_and_its_mappings_resolve() {
        for card in cards().unwrap() {
            assert!(card.config(None).is_some(), "{}: no default config", card.id);
            for config in &card.config {
                match &config.mapping {
                    Some(mapping) => {
                        mapping.resolve(&card.id, &[], &[]).unwrap();
                    }
                    None => assert!(config.unusable.is_some(), "{} {}", card.id, config.name),
                }
            }
        }
    }

    #[test]
    fn every_corpus_of_the_mission_has_a_card() {
        let cards = cards().unwrap();
        assert_eq!(cards.len(), 35);
        for id in ["deepmind/code_contests", "open-r1/codeforces", "PrimeIntellect/SYNTHETIC-2-SFT-verified"]
        {
            assert!(cards.iter().any(|card| card.id == id), "{id}");
        }
    }

    #[test]
    fn a_mapping_and_a_filter_use_columns_that_the_card_lists() {
        for card in cards().unwrap() {
            for config in &card.config {
                let columns = card.columns_of(config);
                let names: Vec<String> =
                    columns.iter().map(|c| c.split(": ").next().unwrap().to_owned()).collect();
                assert!(!names.is_empty(), "{} {}: no columns", card.id, config.name);
                let Some(mapping) = &config.mapping else { continue };
                let resolved = mapping.resolve(&card.id, &[], &names).unwrap();
                for column in resolved.required_columns() {
                    assert!(names.contains(column), "{} {}: {column}", card.id, config.name);
                }
                for text in config.where_.iter().chain(&config.train_where) {
                    let predicate = crate::source::predicate::Predicate::parse(text, &card.id).unwrap();
                    for column in predicate.columns() {
                        assert!(names.contains(column), "{} {}: {column}", card.id, config.name);
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_card_names_is_there() {
        let cards = cards().unwrap();
        for card in &cards {
            let names: BTreeSet<&str> = card.config.iter().map(|c| c.name.as_str()).collect();
            assert_eq!(names.len(), card.config.len(), "{}: two configs of one name", card.id);
            if let Some(revision) = &card.revision {
                assert!(
                    revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit()),
                    "{}",
                    card.id
                );
            }
            for config in &card.config {
                for other in &config.repeats {
                    assert!(names.contains(other.as_str()) && *other != config.name, "{} {other}", card.id);
                }
                assert!(!config.eval.contains_key(&config.split), "{} {}", card.id, config.name);
                for id in card.repackaged(config) {
                    assert!(cards.iter().any(|other| other.id == id), "{}: no card of {id}", card.id);
                }
            }
        }
    }
}
