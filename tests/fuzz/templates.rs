//! The models' own templates, read from a folder beside the project, and the comparison of the native
//! formats with them.

use std::path::Path;

use potable::normalise::native::{Ending, render};
use potable::normalise::{ChatTemplate, History, Policy, TextFormat};
use potable::run::reason::DropReason;
use potable::source::adapt::Conversation;
use serde_json::json;

/// A native format and its template.
pub struct Model {
    pub name: &'static str,
    pub format: TextFormat,
    pub template: ChatTemplate,
    /// Whether its prompt ends as the format's does.
    pub prompts: bool,
}

/// The formats that are rendered natively.
pub const FORMATS: [TextFormat; 5] = [
    TextFormat::Qwen3,
    TextFormat::Qwen3Thinking2507,
    TextFormat::Qwen3Instruct2507,
    TextFormat::Qwen35,
    TextFormat::Qwen36,
];

/// All native formats with the templates of `folder`.
pub fn models(folder: &Path) -> Vec<Model> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let qwen3 = read("qwen3.jinja");
    // Thinking-2507 has the text of Qwen3 and a prompt that opens the think block in any case.
    let at = qwen3.rfind("{%- if add_generation_prompt %}").unwrap();
    let ending =
        "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n<think>\\n' }}\n{%- endif %}";
    let thinking = format!("{}{ending}", qwen3.get(..at).unwrap());
    let rows = [
        ("qwen3", TextFormat::Qwen3, qwen3, true),
        ("qwen3 with marks", TextFormat::Qwen3, read("qwen3_official_with_markers.jinja"), true),
        ("qwen3-thinking-2507", TextFormat::Qwen3Thinking2507, thinking, true),
        ("qwen3-instruct-2507", TextFormat::Qwen3Instruct2507, read("qwen3_instruct_2507.jinja"), true),
        ("qwen3.5", TextFormat::Qwen35, read("qwen3_5_think.jinja"), true),
        ("qwen3.5 nothink", TextFormat::Qwen35, read("qwen3_5_nothink.jinja"), false),
        ("qwen3.6", TextFormat::Qwen36, read("qwen3_6.jinja"), true),
    ];
    rows.map(|(name, format, source, prompts)| Model {
        name,
        format,
        template: ChatTemplate::new(&source, Vec::new()).unwrap(),
        prompts,
    })
    .into()
}

/// What a format makes of a conversation without any policy; `None` where it is refused.
pub fn native(format: TextFormat, conversation: &Conversation, ending: Ending) -> Option<String> {
    let policy = Policy { format, ..Policy::FAITHFUL };
    outcome(render(conversation, &policy, ending).map(|sample| sample.text))
}

fn outcome(text: Result<String, DropReason>) -> Option<String> {
    match text {
        Ok(text) => Some(text),
        Err(DropReason::NormaliseRefused) => None,
        Err(other) => panic!("{other}"),
    }
}

impl Model {
    /// Compares the texts; gives how many were compared and how many of them both refused.
    pub fn compare(&self, conversation: &Conversation) -> Result<(u64, u64), String> {
        let mut counts = (0, 0);
        let mut same = |what: &str, ours: Option<String>, theirs: Option<String>| {
            counts = (counts.0 + 1, counts.1 + u64::from(ours.is_none()));
            match ours == theirs {
                true => Ok(()),
                false => Err(format!(
                    "{} {what}:\n{conversation:?}\nours   {ours:?}\ntheirs {theirs:?}",
                    self.name
                )),
            }
        };
        let closed = native(self.format, conversation, Ending::Closed);
        same("sample", closed, self.template.text(conversation, false).ok())?;
        for thinking in [true, false].into_iter().filter(|_| self.prompts) {
            let ours = native(self.format, conversation, Ending::Prompt { thinking });
            let variables = [("enable_thinking", json!(thinking))];
            same("prompt", ours, self.template.text_with(conversation, true, &variables).ok())?;
        }
        if self.format == TextFormat::Qwen36 {
            let policy = Policy { format: self.format, history: History::Keep, ..Policy::FAITHFUL };
            let ours = outcome(render(conversation, &policy, Ending::Closed).map(|sample| sample.text));
            let variables = [("preserve_thinking", json!(true))];
            same("with all reasoning", ours, self.template.text_with(conversation, false, &variables).ok())?;
        }
        Ok(counts)
    }
}
