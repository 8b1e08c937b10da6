//! What a recipe takes from the repository of a model: its tokenizer, its chat template.

use std::path::Path;

use super::error::RecipeError;
use super::file::{NormaliseFile, TokeniseFile};
use super::pins::{Matching, Splits, Want};
use super::resolve::{MAIN, is_repo_id};
use crate::source::hub::RepoKind;

/// Where a chat template may stand in a repository, the first that is there counts. Special tokens are
/// in `tokenizer_config.json` in any case.
pub const TEMPLATE_FILES: [&str; 3] = ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"];

/// The tokenizer of a section.
pub(super) fn tokenizer(file: &TokeniseFile) -> String {
    file.tokenizer.clone().unwrap_or_else(|| crate::tokenise::encoder::BUILT_IN.to_owned())
}

/// A tokenizer `owner/name` that is no file is a model of the Hub.
///
/// # Errors
/// A revision without a model.
pub(super) fn tokenizer_want(file: &TokeniseFile, base: &Path) -> Result<Option<Want>, RecipeError> {
    let name = tokenizer(file);
    if !is_model(&name, base) {
        return match &file.revision {
            None => Ok(None),
            Some(_) => Err(RecipeError::value_hint(
                "[tokenise]",
                "`revision` is for a tokenizer of the Hub",
                "name a model as `tokenizer = \"OWNER/NAME\"`, or leave `revision` out",
            )),
        };
    }
    let user = format!("tokenizer `{name}`");
    Ok(Some(want(user, name, &file.revision, (&["tokenizer.json"], Matching::Every))))
}

/// A template `owner/name` that is no file is that of a model of the Hub.
///
/// # Errors
/// A revision without a model.
pub(super) fn template_want(file: &NormaliseFile, base: &Path) -> Result<Option<Want>, RecipeError> {
    let Some(name) = file.template.clone().filter(|name| is_model(name, base)) else {
        return match &file.template_revision {
            None => Ok(None),
            Some(_) => Err(RecipeError::value_hint(
                "[normalise]",
                "`template_revision` is for a chat template of the Hub",
                "name a model as `template = \"OWNER/NAME\"`, or leave `template_revision` out",
            )),
        };
    };
    let user = format!("chat template `{name}`");
    Ok(Some(want(user, name, &file.template_revision, (&TEMPLATE_FILES, Matching::Any))))
}

fn is_model(name: &str, base: &Path) -> bool {
    let is_file_name = [".json", ".jinja"].iter().any(|ending| name.ends_with(ending));
    is_repo_id(name) && !is_file_name && !base.join(name).exists()
}

fn want(user: String, repo: String, revision: &Option<String>, files: (&[&str], Matching)) -> Want {
    let (patterns, matching) = files;
    Want {
        user,
        kind: RepoKind::Model,
        repo,
        revision: revision.clone().unwrap_or_else(|| MAIN.to_owned()),
        patterns: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
        matching,
        splits: Splits::Any,
    }
}
