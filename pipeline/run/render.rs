//! How a phase renders and encodes: its renderer, its tokeniser, and which rows are compared with the model's own template.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::error::RunError;
use super::plan::Plan;
use super::rows::Verify;
use crate::normalise::{ChatTemplate, ControlFinder, Controls, Normaliser, TextFormat};
use crate::recipe::models::TEMPLATE_FILES;
use crate::recipe::resolve::ResolvedPhase;
use crate::recipe::{RecipeError, Supply};
use crate::source::Format;
use crate::tokenise::{Tokeniser, TokeniserChoice};

/// Rows that a source is taken to have where that is not known before reading, when rows to compare
/// with the template are chosen.
const UNKNOWN_ROWS: u64 = 1000;

/// The tokeniser of a phase.
///
/// # Errors
/// A file that cannot be had or read, or whose tokens do not fit the format.
pub fn tokeniser(phase: &ResolvedPhase, base: &Path, supply: &Supply) -> Result<Tokeniser, RunError> {
    let load = |tokenizer: &str| {
        let end_of_text = phase.end_of_text.as_deref();
        Tokeniser::load(TokeniserChoice { tokenizer, base, format: phase.policy.format, end_of_text })
    };
    let Some(want) = &phase.tokenizer_want else { return Ok(load(&phase.tokenizer)?) };
    let mut files = supply.kept(want, Some(Format::Json))?;
    let (Some(file), Some(pin)) = (files.pop(), supply.pin(want)) else {
        return Ok(load(&phase.tokenizer)?);
    };
    let local = file.remote().map(|remote| remote.local(&|_| {})).transpose()?;
    // An absolute path stays what it is when it is joined to the recipe's folder.
    let path = std::path::absolute(local.unwrap_or_default())
        .map_err(|source| RunError::Read { path: file.path().to_path_buf(), source })?;
    Ok(load(&path.to_string_lossy())?.named(format!("{}@{}", pin.repo, pin.commit)))
}

/// The chat template of a phase, if it names one: a local file, or the first of [`TEMPLATE_FILES`] that
/// the model's repository has.
///
/// # Errors
/// A file that cannot be had or read, a chat template that cannot be used.
pub fn template(phase: &ResolvedPhase, supply: &Supply) -> Result<Option<ChatTemplate>, RunError> {
    let Some(want) = &phase.template_want else {
        return Ok(phase.template.as_deref().map(ChatTemplate::load).transpose()?);
    };
    let mut paths = Vec::new();
    for file in supply.kept(want, Some(Format::Json))? {
        paths.extend(file.remote().map(|remote| remote.local(&|_| {})).transpose()?);
    }
    let named = |name: &&str| paths.iter().find(|path| path.ends_with(name));
    let (Some(path), Some(pin)) = (TEMPLATE_FILES.iter().find_map(named), supply.pin(want)) else {
        return Ok(None);
    };
    Ok(Some(ChatTemplate::load(path)?.named(format!("chat-template of {}@{}", pin.repo, pin.commit))))
}

/// The renderer of a phase.
///
/// # Errors
/// A chat template that cannot be used.
pub fn normaliser(
    phase: &ResolvedPhase,
    tokeniser: &Tokeniser,
    supply: &Supply,
) -> Result<Normaliser, RunError> {
    let template = template(phase, supply)?;
    let controls = Controls {
        finder: ControlFinder::new(&tokeniser.control_strings()),
        end_of_text: tokeniser.end_of_text().to_owned(),
    };
    Ok(Normaliser::new(phase.policy, controls, template))
}

/// Which rows are compared with the template, if the user asked for `rows` of them; they are counted
/// in `compared`.
///
/// # Errors
/// A recipe that names no template.
pub fn verify<'a>(
    rows: Option<u64>,
    plan: &Plan,
    compared: &'a AtomicU64,
) -> Result<Option<Verify<'a>>, RunError> {
    let Some(rows) = rows.filter(|rows| *rows > 0) else { return Ok(None) };
    if matches!(plan.phase.policy.format, TextFormat::Template | TextFormat::Text) {
        return Ok(None);
    }
    if plan.phase.template.is_none() {
        return Err(RecipeError::value_hint(
            "[normalise]",
            "`--verify-template` has no template to compare with",
            "name the model's own: `template = \"OWNER/MODEL\"`, a chat_template.jinja, or a tokenizer_config.json",
        )
        .into());
    }
    let planned: u64 = plan.sources.iter().map(|source| source.rows().unwrap_or(UNKNOWN_ROWS)).sum();
    Ok(Some(Verify { every: (planned / rows).max(1), most: rows + compared.load(Relaxed), compared }))
}
