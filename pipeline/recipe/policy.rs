//! `[normalise]` becomes a policy: a set of options to start from, what is said over it, and what has
//! no meaning refused.

use super::error::RecipeError;
use super::file::{NormaliseFile, PolicyName};
use crate::normalise::{History, Policy, TextFormat};

/// The policy of a section.
///
/// # Errors
/// A key without a meaning in the format; `format = "template"` without a template.
pub(super) fn resolve(file: &NormaliseFile) -> Result<Policy, RecipeError> {
    let place = "[normalise]";
    let base = match file.policy.unwrap_or(PolicyName::Default) {
        PolicyName::Default => Policy::DEFAULT,
        PolicyName::Faithful => Policy::FAITHFUL,
    };
    let format = file.format.unwrap_or(base.format);
    let written = serde_json::to_value(file).unwrap_or_default();
    let is_set = |key: &&&str| written.get(**key).is_some_and(|value| !value.is_null());
    if let Some(key) = Policy::meaningless(format).iter().find(is_set) {
        return Err(RecipeError::value_hint(
            place,
            format!("`{key}` has no meaning with `format = \"{}\"`", format.name()),
            "remove the key, or choose a format with think blocks",
        ));
    }
    if format == TextFormat::Template && file.template.is_none() {
        return Err(RecipeError::value_hint(
            place,
            "`format = \"template\"` needs a `template`",
            "name the model's own: `template = \"OWNER/MODEL\"`, a chat_template.jinja, or a tokenizer_config.json",
        ));
    }
    if format == TextFormat::Template && file.history == Some(History::Keep) {
        return Err(RecipeError::value_hint(
            place,
            "`history = \"keep\"` has no meaning with `format = \"template\"`",
            "the template decides which reasoning stays; `train = \"all-turns\"` trains on all answers",
        ));
    }
    Ok(Policy {
        format,
        history: file.history.unwrap_or(base.history),
        train: file.train.unwrap_or(base.train),
        empty_think: file.empty_think.unwrap_or(base.empty_think),
        on_lossy: file.on_lossy.unwrap_or(base.on_lossy),
        on_unclosed: file.on_unclosed.unwrap_or(base.on_unclosed),
        control_text: file.control_text.unwrap_or(base.control_text),
        leading_newlines: file.leading_newlines.unwrap_or(base.leading_newlines),
        train_newline: file.train_newline.unwrap_or(base.train_newline),
        mask_reasoning: file.mask_reasoning.unwrap_or(base.mask_reasoning),
        drop_unanswered: base.drop_unanswered,
    })
}
