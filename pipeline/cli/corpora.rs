//! `potable corpora`.

use anyhow::{Result, anyhow};

use super::Answer;
use super::args::{CorporaArgs, CorporaCommand, ListFormat};
use super::display::grouped;
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
        CorporaCommand::List { format: ListFormat::Markdown } => output.data(&markdown(&cards))?,
        CorporaCommand::List { format: ListFormat::Table } => {
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

/// `docs/corpora.md`: all that the cards say.
pub fn markdown(cards: &[Card]) -> String {
    let mut text = String::from(MARKDOWN_HEAD);
    text += "\n| corpus | licence | gated | configurations | what |\n|---|---|---|---|---|\n";
    for card in cards {
        let gated = if card.gated { "yes" } else { "no" };
        let (id, licence, configs, title) = (&card.id, &card.licence, card.config.len(), &card.title);
        text += &format!("| [{id}](#{}) | {licence} | {gated} | {configs} | {title} |\n", anchor(id));
    }
    for card in cards {
        text += &markdown_card(card);
    }
    text
}

const MARKDOWN_HEAD: &str = "\
# Known corpora

Written by `potable corpora list --format markdown` from the cards in `pipeline/corpora/`; the tests
compare this file with them, and rewrite it when they run with `POTABLE_BLESS=1`.

A recipe names a corpus with `corpus = \"OWNER/NAME\"` and takes its default configuration, or another
with `config`. The card gives files, mapping, licence and a default `where`; what the recipe says wins.
Only the training split is read. `allow_eval_split = true` with `split` reads one for evaluation, and
the manifest says so.
";

/// A heading's anchor, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let fits = |c: &char| c.is_alphanumeric() || "-_".contains(*c);
    heading.to_lowercase().replace(' ', "-").chars().filter(fits).collect()
}

fn markdown_card(card: &Card) -> String {
    let mut text = format!("\n## {}\n\n{}. Licence: {}.", card.id, card.title, card.licence);
    if card.gated {
        text += &format!(" Gated: accept its terms on https://huggingface.co/datasets/{} first.", card.id);
    }
    if let Some(revision) = &card.revision {
        text += &format!(" Read at commit `{revision}` unless the recipe names another revision.");
    }
    text += "\n\n| config | split | rows | files | for evaluation | `where` |\n|---|---|---|---|---|---|\n";
    for config in &card.config {
        let mark = if config.name == card.default_config { " (default)" } else { "" };
        let rows = config.rows.map(grouped).unwrap_or_default();
        let eval: Vec<String> =
            config.eval.iter().map(|(split, files)| format!("{split}: {}", code(files))).collect();
        let filters: Vec<String> = config.train_where.iter().chain(&config.where_).cloned().collect();
        let filter = if filters.is_empty() { String::new() } else { code(&filters) };
        let (name, split, files, eval) = (&config.name, &config.split, code(&config.files), eval.join("; "));
        text += &format!("| `{name}`{mark} | `{split}` | {rows} | {files} | {eval} | {filter} |\n");
    }
    text += "\n";
    for (name, columns) in &card.columns {
        let users = card.config.iter().filter(|c| c.columns.as_deref().unwrap_or("default") == name);
        let users: Vec<&str> = users.map(|c| c.name.as_str()).collect();
        let of = match users.len() == card.config.len() {
            true => String::new(),
            false => format!(" of {}", code(&users)),
        };
        text += &format!("Columns{of}: {}.\n\n", code(columns));
    }
    for (mapping, users) in mappings(card) {
        let of = match users.len() == card.config.len() {
            true => String::new(),
            false => format!(" of {}", code(&users)),
        };
        text += &format!("Mapping{of}:\n\n```toml\n{mapping}```\n\n");
    }
    for line in checks(card).iter().chain(&card.notes) {
        text += &format!("- {line}\n");
    }
    text
}

/// Each mapping of a card with the configurations that have it, in the order of the card.
fn mappings(card: &Card) -> Vec<(String, Vec<&str>)> {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for config in &card.config {
        let Some(mapping) = config.mapping.as_ref().filter(|_| config.unusable.is_none()) else { continue };
        let text = toml::to_string(mapping).unwrap_or_default();
        match found.iter_mut().find(|(other, _)| *other == text) {
            Some((_, users)) => users.push(&config.name),
            None => found.push((text, vec![&config.name])),
        }
    }
    found
}

/// The traps that are checked, a sentence each.
fn checks(card: &Card) -> Vec<String> {
    let mut lines = Vec::new();
    for config in &card.config {
        let name = &config.name;
        if !config.repeats.is_empty() {
            lines.push(format!("Refused: `{name}` in one phase with {}.", code(&config.repeats)));
        }
        if let Some(reason) = &config.unusable {
            lines.push(format!("Refused: `{name}` {reason}."));
        }
        if !config.repackages.is_empty() {
            lines.push(format!("Warned of: `{name}` beside {}.", code(&config.repackages)));
        }
        if let Some(first) = config.first_part {
            lines.push(format!("Refused: files of `{name}` whose number is not counted from {first}."));
        }
    }
    if !card.repackages.is_empty() {
        lines.push(format!("Warned of: beside {}.", code(&card.repackages)));
    }
    lines
}

fn code<T: AsRef<str>>(items: &[T]) -> String {
    let quoted = items.iter().map(|item| format!("`{}`", item.as_ref().replace('|', "\\|")));
    quoted.collect::<Vec<_>>().join(", ")
}

fn show(card: &Card) -> String {
    let mut text = format!("{}\n{}\nlicence {}", card.id, card.title, card.licence);
    if card.gated {
        text += ", gated: accept its terms first";
    }
    if let Some(revision) = &card.revision {
        text += &format!("\nrevision {revision}");
    }
    for config in &card.config {
        text += &show_config(card, config);
    }
    text += "\n";
    for line in checks(card).iter().chain(&card.notes) {
        text += &format!("\n- {line}");
    }
    text + "\n"
}

fn show_config(card: &Card, config: &CardConfig) -> String {
    let mark = if config.name == card.default_config { " (default)" } else { "" };
    let rows = config.rows.map(|rows| format!(", {} rows", grouped(rows))).unwrap_or_default();
    let (name, split, format) = (&config.name, &config.split, config.format.name());
    let mut text = format!("\n\nconfig {name}{mark}: split {split}, {format}{rows}");
    text += &format!("\n  files {}", config.files.join(", "));
    for (split, files) in &config.eval {
        text += &format!("\n  for evaluation, split {split}: {}", files.join(", "));
    }
    text += &format!("\n  columns {}", card.columns_of(config).join("; "));
    if let Some(predicate) = &config.train_where {
        text += &format!("\n  always where {predicate}, unless `allow_eval_split`");
    }
    if let Some(predicate) = &config.where_ {
        text += &format!("\n  where {predicate}");
    }
    if let Some(reason) = &config.unusable {
        text += &format!("\n  {reason}");
    } else if let Some(mapping) = &config.mapping {
        let mapping = toml::to_string(mapping).unwrap_or_default();
        for line in mapping.lines() {
            text += &format!("\n  {line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "rewrites the committed document")]
    fn the_committed_document_is_what_the_cards_say() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/corpora.md");
        let made = markdown(&cards().unwrap());
        if std::env::var_os("POTABLE_BLESS").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        assert!(std::fs::read_to_string(&path).unwrap() == made, "run the tests with POTABLE_BLESS=1");
    }
}
