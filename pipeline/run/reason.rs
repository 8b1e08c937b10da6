//! Why a row or a sample is not in the shards. A closed list: every reason is `STAGE.WHY`, counted
//! in the ledger, and named in the manifest and in `dropped/`.

use std::fmt;

/// A stage of the pipeline; its stem names the folder, the recipe section and the drop reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Files to conversations.
    Source,
    /// Benchmark overlap.
    Decontaminate,
    /// Conversations to text.
    Normalise,
    /// Text to ids.
    Tokenise,
    /// Duplicates.
    Dedup,
    /// Samples to packs.
    Pack,
    /// Packs to files.
    Shard,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $stage:ident, $name:literal, $text:literal;)*) => {
        /// A reason to drop a row or a sample.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DropReason {
            $($(#[$doc])* $variant,)*
        }

        impl DropReason {
            /// All reasons, in the order of the stages.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)*];

            /// The stage that drops.
            pub fn stage(self) -> Stage {
                match self { $(DropReason::$variant => Stage::$stage,)* }
            }

            /// The key in ledgers and manifests.
            pub fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }

            /// The reason in a few words, for the summary.
            pub fn text(self) -> &'static str {
                match self { $(DropReason::$variant => $text,)* }
            }
        }
    };
}

reasons! {
    /// The source's `where` is false or null.
    SourceWhere = Source, "source.where", "left out by `where`";
    /// Its text stands in another corpus, and is not there.
    SourceUnjoined = Source, "source.unjoined", "without their text in another corpus";
    /// No messages, no prompt or no text.
    SourceEmptyRow = Source, "source.empty-row", "empty row";
    /// The answer column is null, or a list without an answer.
    SourceNoResponse = Source, "source.no-response", "no answer in the row";
    /// None of several answers passes its checks.
    SourceNoChoice = Source, "source.no-choice", "no answer passes its checks";
    /// Marks round reasoning and answer are missing.
    SourceNoTags = Source, "source.no-tags", "marks of reasoning or answer missing";
    /// Shares n consecutive words with a benchmark item.
    DecontaminateNgram = Decontaminate, "decontaminate.ngram", "n-gram of a benchmark item";
    /// Holds a short benchmark item whole.
    DecontaminateShortItem = Decontaminate, "decontaminate.short-item", "short benchmark item";
    /// Is a near copy of a benchmark item.
    DecontaminateNearCopy = Decontaminate, "decontaminate.near-copy", "near copy of a benchmark item";
    /// Holds a benchmark's canary string.
    DecontaminateCanary = Decontaminate, "decontaminate.canary", "canary string of a benchmark";
    /// No assistant turn.
    NormaliseNoAssistant = Normalise, "normalise.no-assistant", "no assistant turn";
    /// No user turn.
    NormaliseNoUser = Normalise, "normalise.no-user", "no user turn";
    /// Reasoning that is opened and never closed.
    NormaliseUnclosedThink = Normalise, "normalise.unclosed-think", "reasoning cut off";
    /// Text that the template would lose.
    NormaliseLossy = Normalise, "normalise.lossy", "text that the template would lose";
    /// A control string in the row's text.
    NormaliseControlText = Normalise, "normalise.control-text", "control string in the text";
    /// A trained answer without text and without tool calls.
    NormaliseEmptyAnswer = Normalise, "normalise.empty-answer", "empty answer";
    /// An answer without reasoning, with `empty_think = "drop"`.
    NormaliseEmptyThink = Normalise, "normalise.empty-think", "answer without reasoning";
    /// No token of the row would be trained on.
    NormaliseNothingTrained = Normalise, "normalise.nothing-trained", "nothing to train on";
    /// The template of the format raises an error for the row.
    NormaliseRefused = Normalise, "normalise.refused", "refused by the template";
    /// A template whose rendering does not show which part an assistant turn is.
    NormaliseSpan = Normalise, "normalise.span", "no telling which part is trained on";
    /// The same content as an earlier row.
    DedupExact = Dedup, "dedup.exact", "exact duplicates";
    /// Nearly the same words as an earlier row.
    DedupNear = Dedup, "dedup.near", "near duplicates";
    /// The same content as a row that an earlier phase took.
    DedupOtherPhase = Dedup, "dedup.other-phase", "taken by another phase";
    /// Longer than the longest pack.
    PackOverlong = Pack, "pack.overlong", "longer than the pack";
}

impl DropReason {
    /// The reason with this key.
    pub fn from_name(name: &str) -> Option<DropReason> {
        DropReason::ALL.iter().copied().find(|reason| reason.name() == name)
    }

    /// Whether dropped rows are listed in `dropped/`; the others are counts only.
    pub fn is_listed(self) -> bool {
        !matches!(self, DropReason::SourceWhere | DropReason::DedupExact | DropReason::DedupOtherPhase)
    }
}

impl Stage {
    /// All stages, in the order of the pipeline.
    pub const ALL: [Stage; 7] = [
        Stage::Source,
        Stage::Decontaminate,
        Stage::Normalise,
        Stage::Tokenise,
        Stage::Dedup,
        Stage::Pack,
        Stage::Shard,
    ];

    /// The stem.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Source => "source",
            Stage::Decontaminate => "decontaminate",
            Stage::Normalise => "normalise",
            Stage::Tokenise => "tokenise",
            Stage::Dedup => "dedup",
            Stage::Pack => "pack",
            Stage::Shard => "shard",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_begins_with_the_stem_of_its_stage() {
        for reason in DropReason::ALL {
            assert!(reason.name().starts_with(&format!("{}.", reason.stage().name())), "{reason}");
            assert_eq!(DropReason::from_name(reason.name()), Some(*reason));
        }
    }
}
