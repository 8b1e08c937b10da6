//! Cards of known corpora: where the files are, what a row is, what to look out for.

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
    /// The configuration that is taken if the recipe names none.
    pub default_config: String,
    /// Traps, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
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
    /// The training split.
    pub split: String,
    /// Globs of its files inside the repository.
    pub files: Vec<String>,
    /// Globs of files that are for evaluation.
    #[serde(default)]
    pub eval_files: Vec<String>,
    /// The configuration holds no text; `notes` say why.
    #[serde(default)]
    pub text_missing: bool,
    /// How a row becomes a conversation.
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
}

#[cfg(test)]
mod tests {
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
                    None => assert!(config.text_missing, "{} {}", card.id, config.name),
                }
            }
        }
    }
}
