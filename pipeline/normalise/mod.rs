//! Conversations to the exact text that a model sees, and which spans of it are trained on.

pub mod policy;
pub mod qwen3;
pub mod rendered;
mod turn;

pub use policy::{
    ControlText, EmptyThink, History, LeadingNewlines, OnLossy, OnUnclosed, Policy, TextFormat, Train,
};
pub use rendered::{Acted, RenderedSample};

use crate::decontaminate::{Checked, CheckedRow};
use crate::run::reason::DropReason;
use crate::source::adapt::Outcome;

/// Renders checked rows by one policy.
#[derive(Clone, Debug)]
pub struct Normaliser {
    policy: Policy,
}

impl Normaliser {
    /// A normaliser of this policy.
    pub fn new(policy: Policy) -> Self {
        Normaliser { policy }
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Renders a row to one or more samples. What the policy did besides is counted in `acted`.
    pub fn apply(&self, row: &CheckedRow, acted: &mut Acted) -> Outcome<Vec<RenderedSample>> {
        match row.content() {
            Checked::Document(document) => {
                if self.policy.control_text == ControlText::Drop && rendered::has_control_text(&document.text)
                {
                    return Outcome::Drop(DropReason::NormaliseControlText);
                }
                Outcome::Keep(vec![RenderedSample::document(&document.text)])
            }
            Checked::Chat(conversation) => qwen3::normalise(conversation, &self.policy, acted),
        }
    }
}
