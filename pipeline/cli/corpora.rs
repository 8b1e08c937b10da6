//! `potable corpora`.

use anyhow::{Result, anyhow};

use super::Answer;
use super::args::{CorporaArgs, CorporaCommand};
use super::output::Output;
use crate::recipe::card::{Card, cards};
use crate::recipe::{RecipeError, card::CardConfig};

/// Lists or shows corpora.
///
/// # Errors
/// A corpus that is not known.
pub fn run(args: CorporaArgs, output: &Output) -> Result<Answer> {
    let cards = cards().map_err(|problem| anyhow!(problem))?;
    match args.command {
        CorporaCommand::List => {
            let lines: Vec<String> = cards
                .iter()
                .map(|card| format!("{:<45} {:<14} {}", card.id, card.licence, card.title))
                .collect();
            output.data(&lines.join("\n"))?;
        }
        CorporaCommand::Show { id } => {
            let card = cards.iter().find(|card| card.id == id);
            let card = card.ok_or_else(|| {
                RecipeError::value_hint(
                    "corpora",
                    format!("there is no corpus `{id}`"),
                    "`potable corpora list` shows all",
                )
            })?;
            output.data(&show(card))?;
        }
    }
    Ok(Answer::Yes)
}

fn show(card: &Card) -> String {
    let mut text = format!("{}\n{}\nlicence {}", card.id, card.title, card.licence);
    if card.gated {
        text += ", gated: accept its terms first";
    }
    for config in &card.config {
        text += &show_config(config, config.name == card.default_config);
    }
    for note in &card.notes {
        text += &format!("\n- {note}");
    }
    text + "\n"
}

fn show_config(config: &CardConfig, is_default: bool) -> String {
    let mark = if is_default { " (default)" } else { "" };
    let mut text =
        format!("\n\nconfig {}{mark}: split {}, {}", config.name, config.split, config.format.name());
    text += &format!("\n  files {}", config.files.join(", "));
    if let Some(predicate) = &config.where_ {
        text += &format!("\n  where {predicate}");
    }
    if config.text_missing {
        text += "\n  holds no text";
    } else if let Some(mapping) = &config.mapping {
        let mapping = toml::to_string(mapping).unwrap_or_default();
        for line in mapping.lines() {
            text += &format!("\n  {line}");
        }
    }
    text
}
