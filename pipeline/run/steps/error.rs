//! What can go wrong between steps.

/// An error of a step.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A work folder without a plan.
    #[error("{place}: holds no plan")]
    NoPlan {
        /// The work folder.
        place: String,
    },
    /// A plan that this potable cannot use.
    #[error("{place}: {problem}")]
    BadPlan {
        /// The plan.
        place: String,
        /// What is wrong with it.
        problem: String,
        /// The way out.
        way_out: &'static str,
    },
    /// A work folder or an output folder that is taken.
    #[error("{place}: {problem}")]
    Taken {
        /// The folder.
        place: String,
        /// By what.
        problem: String,
        /// The way out.
        way_out: String,
    },
    /// A phase that the plan has not.
    #[error("`--phase {name}`: the plan has no such phase (it has: {known})")]
    NoPhase {
        /// As asked.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// Numbers without the phase that they count in.
    #[error("the plan has several phases ({known}), each with numbers of its own")]
    WhichPhase {
        /// Those that there are.
        known: String,
    },
    /// Numbers that there are not.
    #[error("{what} {start}..{end}: the plan has {count}")]
    OutOfRange {
        /// Units or partitions.
        what: &'static str,
        /// First.
        start: u64,
        /// One after the last.
        end: u64,
        /// How many there are.
        count: u64,
    },
    /// A step before its turn.
    #[error("{place}: {missing}")]
    TooEarly {
        /// The work folder, with the phase.
        place: String,
        /// What is not done.
        missing: String,
        /// What to run.
        way_out: String,
    },
    /// A staged object that is not as it was written.
    #[error("{place}: is damaged: {reason}")]
    Damaged {
        /// The object.
        place: String,
        /// What shows it.
        reason: String,
        /// Names of the objects to remove, so that its step is done again.
        names: Vec<String>,
        /// What to run after they are removed.
        again: String,
    },
}

impl StepError {
    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            StepError::NoPlan { .. } => "`potable plan RECIPE --work URI` writes it".to_owned(),
            StepError::BadPlan { way_out, .. } => (*way_out).to_owned(),
            StepError::NoPhase { .. } | StepError::WhichPhase { .. } => {
                "name one with `--phase`".to_owned()
            }
            StepError::OutOfRange { .. } => {
                "numbers begin at 0 and the last one of `K..L` is not taken; `potable status --work URI` has them"
                    .to_owned()
            }
            StepError::Taken { way_out, .. } | StepError::TooEarly { way_out, .. } => way_out.clone(),
            StepError::Damaged { again, .. } => format!("what led to it was removed; run `{again}` to have it made again"),
        }
    }
}
