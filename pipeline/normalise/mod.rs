//! Conversations to the exact text that a model sees, and which spans of it are trained on.

pub mod policy;
pub mod qwen3;
pub mod rendered;
mod turn;

pub use policy::{
    ControlText, EmptyThink, History, LeadingNewlines, OnLossy, OnUnclosed, Policy, TextFormat, Train,
};
pub use rendered::{Acted, ControlFinder, RenderedSample};

use crate::decontaminate::{Checked, CheckedRow};
use crate::run::reason::DropReason;
use crate::source::adapt::Outcome;

/// Renders checked rows by one policy.
#[derive(Clone, Debug)]
pub struct Normaliser {
    policy: Policy,
    controls: ControlFinder,
}

impl Normaliser {
    /// A normaliser of this policy, for a tokenizer with these control strings.
    pub fn new(policy: Policy, controls: ControlFinder) -> Self {
        Normaliser { policy, controls }
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Renders a row to one or more samples. What the policy did besides is counted in `acted`.
    pub fn apply(&self, row: &CheckedRow, acted: &mut Acted) -> Outcome<Vec<RenderedSample>> {
        let drops = self.policy.control_text == ControlText::Drop;
        match row.content() {
            Checked::Document(document) => {
                if drops && self.controls.finds(&document.text) {
                    return Outcome::Drop(DropReason::NormaliseControlText);
                }
                Outcome::Keep(vec![RenderedSample::document(&document.text)])
            }
            Checked::Chat(conversation) => {
                if drops && conversation.strings().iter().any(|(_, text, _)| self.controls.finds(text)) {
                    return Outcome::Drop(DropReason::NormaliseControlText);
                }
                qwen3::normalise(conversation, &self.policy, acted)
            }
        }
    }
}
