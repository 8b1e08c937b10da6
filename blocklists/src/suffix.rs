//! What people write around a question in a prompt; cut off before a whole message is compared.

use std::ops::Range;

use crate::text::Words;

/// Behind a question. Only the words count, so spelling and punctuation are free.
const SUFFIXES: &[&str] = &[
    r"please reason step by step, and put your final answer within \boxed{}",
    r"reason step by step and put your final answer in \boxed{}",
    r"let's think step by step and output the final answer within \boxed{}",
    r"put your final answer within \boxed{}",
    r"put your final answer in \boxed{}",
    r"put the final answer in \boxed{}",
    r"give your final answer in \boxed{}",
    r"write your answer in \boxed{}",
    "let's think step by step",
    "let us think step by step",
    "think step by step",
    "please think step by step",
    "please reason step by step",
    "solve it step by step",
    "solve this step by step",
    "step by step",
    "show your work",
    "show your reasoning",
    "explain your reasoning",
    "explain your answer",
    "give a short answer",
    "answer with the option letter only",
    "answer with a single number",
    "answer with a single word",
    "answer with a number",
    "give only the final answer",
    "answer:",
    "final answer:",
    "the answer is",
    "solution:",
    "response:",
    "please",
    "thank you",
    "thanks",
    r"请逐步推理，并将您的最终答案放在 \boxed{} 中",
    r"请逐步推理，并把最终答案放在 \boxed{} 里",
    "请一步一步地思考",
    "让我们一步一步地思考",
    "请逐步推理",
    "答案",
    "答",
];

/// Before a question.
const PREFIXES: &[&str] = &[
    "question:",
    "problem:",
    "q:",
    "user:",
    "please answer the following question",
    "answer the following question",
    "please solve the following problem",
    "solve the following problem",
    "solve the following math problem",
    "solve the following math problem step by step",
    "please solve the following math problem",
    "solve this problem",
    "help me solve this problem",
    "please",
    "hi",
    "hello",
    "问题",
    "题目",
    "问",
];

/// The word hashes of all of them, longest first.
#[derive(Debug)]
pub(crate) struct Surroundings {
    before: Vec<Vec<u64>>,
    behind: Vec<Vec<u64>>,
}

impl Surroundings {
    pub(crate) fn new() -> Self {
        Self { before: hashes(PREFIXES), behind: hashes(SUFFIXES) }
    }

    /// The words of a message, given by their hashes, without what stands around the question: a
    /// range of them.
    pub(crate) fn strip(&self, words: &[u64]) -> Range<usize> {
        let mut rest = words;
        let mut start = 0;
        loop {
            let length = rest.len();
            if let Some(cue) = self.behind.iter().find(|cue| rest.ends_with(cue)) {
                rest = rest.get(..length - cue.len()).unwrap_or_default();
            }
            if let Some(cue) = self.before.iter().find(|cue| rest.starts_with(cue)) {
                rest = rest.get(cue.len()..).unwrap_or_default();
                start += cue.len();
            }
            if rest.len() == length {
                return start..start + length;
            }
        }
    }
}

fn hashes(cues: &[&str]) -> Vec<Vec<u64>> {
    let (mut scanner, mut words) = (Words::new(), Vec::new());
    let mut all: Vec<Vec<u64>> = cues
        .iter()
        .map(|cue| {
            scanner.scan(cue, &mut words);
            words.iter().map(|word| word.hash).collect()
        })
        .collect();
    all.sort_by_key(|cue| std::cmp::Reverse(cue.len()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(text: &str) -> String {
        let mut words = Vec::new();
        Words::new().scan(text, &mut words);
        let hashes: Vec<u64> = words.iter().map(|word| word.hash).collect();
        let rest = words.get(Surroundings::new().strip(&hashes)).unwrap_or_default();
        let bounds = rest.first().zip(rest.last());
        let bounds = bounds.map_or(0..0, |(a, b)| a.start as usize..b.end as usize);
        text.get(bounds).unwrap_or_default().to_owned()
    }

    #[test]
    fn cuts_what_stands_around_a_question() {
        let bare = "What is 2 + 2";
        assert_eq!(stripped("Question: What is 2 + 2? Answer:"), bare);
        assert_eq!(
            stripped(
                "What is 2 + 2?\nPlease reason step by step, and put your final answer within $\\boxed{}$.\n"
            ),
            bare
        );
        assert_eq!(stripped("What is 2 + 2? Let\u{2019}s think step by step. Answer:"), bare);
        assert_eq!(stripped("What is 2 + 2"), bare);
    }

    #[test]
    fn leaves_nothing_of_cues_alone() {
        assert_eq!(stripped("Answer: answer"), "");
        assert_eq!(stripped(""), "");
    }
}
