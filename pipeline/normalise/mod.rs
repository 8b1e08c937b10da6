//! Conversations to the exact text that a model sees, and which spans of it are trained on.

mod calls;
mod dialect;
mod jinja;
pub mod native;
pub mod policy;
mod printed;
mod python;
pub mod rendered;
mod tags;
pub mod template;
mod turn;

pub use policy::{
    ControlText, EmptyThink, History, LeadingNewlines, OnLossy, OnUnclosed, Policy, TextFormat, Train,
};
pub use rendered::{Acted, ControlFinder, RenderedSample};
pub use template::{ChatTemplate, TemplateError};

use crate::decontaminate::{Checked, CheckedRow};
use crate::run::reason::DropReason;
use crate::source::adapt::Outcome;

/// Renders checked rows by one policy.
#[derive(Clone, Debug)]
pub struct Normaliser {
    policy: Policy,
    controls: ControlFinder,
    end_of_text: String,
    template: Option<ChatTemplate>,
}

/// What a normaliser takes from the tokenizer.
#[derive(Clone, Debug)]
pub struct Controls {
    /// Finds the control strings in text.
    pub finder: ControlFinder,
    /// The control string that ends a plain document.
    pub end_of_text: String,
}

impl Normaliser {
    /// A normaliser of this policy, for a tokenizer with these control strings. `template` is what
    /// `format = "template"` renders by, and what [`Normaliser::verify`] compares with.
    pub fn new(policy: Policy, controls: Controls, template: Option<ChatTemplate>) -> Self {
        Normaliser { policy, controls: controls.finder, end_of_text: controls.end_of_text, template }
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What renders, for the manifest: the native renderer and its version, with the digest of that
    /// name, or a template of a model repository with its own.
    pub fn record(&self) -> (String, String) {
        match (self.policy.format, &self.template) {
            (TextFormat::Template, Some(template)) => {
                (template.name().to_owned(), template.digest().to_owned())
            }
            (format, _) => {
                let native = match format {
                    TextFormat::Text => TextFormat::Qwen3.name(),
                    format => format.name(),
                };
                let name = format!("potable-{native}-1");
                let digest = potable_manifests::sha256_hex(name.as_bytes());
                (name, digest)
            }
        }
    }

    /// Renders a row to one or more samples. What the policy did besides is counted in `acted`.
    pub fn apply(&self, row: &CheckedRow, acted: &mut Acted) -> Outcome<Vec<RenderedSample>> {
        let drops = self.policy.control_text == ControlText::Drop;
        match row.content() {
            Checked::Document(document) => {
                if drops && self.controls.finds(&document.text) {
                    return Outcome::Drop(DropReason::NormaliseControlText);
                }
                Outcome::Keep(vec![RenderedSample::document(&document.text, &self.end_of_text)])
            }
            Checked::Chat(conversation) => {
                if drops && conversation.printable().iter().any(|(_, text, _)| self.controls.finds(text)) {
                    return Outcome::Drop(DropReason::NormaliseControlText);
                }
                match (self.policy.format, &self.template) {
                    (TextFormat::Template, Some(template)) => {
                        template::normalise(template, conversation, (&self.policy, &self.controls), acted)
                    }
                    _ => native::normalise(conversation, &self.policy, acted),
                }
            }
        }
    }

    /// Compares what the native format makes of a chat row, without any policy, with what the model's
    /// own template makes of it. Rows that both refuse are equal; documents have no template.
    ///
    /// # Errors
    /// The first difference.
    pub fn verify(&self, row: &CheckedRow, id: &dyn Fn() -> String) -> Result<(), TemplateError> {
        let (Some(template), Checked::Chat(conversation)) = (&self.template, row.content()) else {
            return Ok(());
        };
        let faithful = Policy { format: self.policy.format, ..Policy::FAITHFUL };
        let ours = native::render(conversation, &faithful, native::Ending::Closed).map(|sample| sample.text);
        let theirs = template.text(conversation, false);
        let ours = ours.unwrap_or_else(|_| REFUSED.to_owned());
        let theirs = theirs.unwrap_or_else(|_| REFUSED.to_owned());
        if ours == theirs {
            return Ok(());
        }
        let equal = ours.bytes().zip(theirs.bytes()).take_while(|(a, b)| a == b).count();
        let at = (0..=equal).rev().find(|&at| ours.is_char_boundary(at)).unwrap_or_default();
        let part = |text: &str| text.get(at..).unwrap_or_default().chars().take(40).collect::<String>();
        Err(TemplateError::Differs {
            row: id(),
            format: self.policy.format.name(),
            at,
            ours: part(&ours),
            theirs: part(&theirs),
        })
    }
}

/// Stands for the text of a row that a template raises an error for.
const REFUSED: &str = "(refused)";
