//! The Qwen3 (hybrid) chat format. The text is that of the model's own chat template, rule by rule;
//! the options of the policy say what is dropped, stripped or trained on besides.

use super::policy::{EmptyThink, History, LeadingNewlines, OnLossy, OnUnclosed, Policy, Train};
use super::rendered::{Acted, RenderedSample};
use super::turn::{Fault, Turn};
use crate::run::reason::DropReason;
use crate::source::adapt::{Conversation, Message, Outcome, Role};

/// How a rendered conversation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With its last message: a sample.
    Closed,
    /// With the header of an answer, for inference; `Prompt { thinking: false }` closes the think
    /// block in the prompt.
    Prompt {
        /// Whether the model is to reason.
        thinking: bool,
    },
}

/// Renders a conversation to its samples, or says why there are none. Control strings in its text are
/// looked for before, by [`super::Normaliser`].
pub fn normalise(
    conversation: &Conversation,
    policy: &Policy,
    acted: &mut Acted,
) -> Outcome<Vec<RenderedSample>> {
    if let Some(reason) = refuse(conversation, policy) {
        return Outcome::Drop(reason);
    }
    let last = conversation.messages.len();
    let turns: Vec<usize> = match policy.history {
        History::Unroll => (0..last).filter(|&i| is_assistant(conversation, i)).collect(),
        History::Template | History::Keep => vec![last.saturating_sub(1)],
    };
    let mut samples = Vec::with_capacity(turns.len());
    for (number, end) in turns.into_iter().enumerate() {
        let mut renderer = Renderer::new(conversation, policy, end, acted);
        let sample = match renderer.render(Ending::Closed) {
            Ok(sample) => sample,
            Err(reason) => return Outcome::Drop(reason),
        };
        if sample.trained.is_empty() && policy.drop_unanswered {
            return Outcome::Drop(DropReason::NormaliseNothingTrained);
        }
        samples.push(RenderedSample { turn: number as u32, ..sample });
    }
    Outcome::Keep(samples)
}

/// Renders a conversation as the template does under `policy`, without looking for reasons to drop
/// it. With [`Policy::FAITHFUL`] the text is the template's own, byte for byte.
///
/// # Errors
/// The reason why the policy drops the row.
pub fn render(
    conversation: &Conversation,
    policy: &Policy,
    ending: Ending,
) -> Result<RenderedSample, DropReason> {
    let mut acted = Acted::new();
    let last = conversation.messages.len().saturating_sub(1);
    Renderer::new(conversation, policy, last, &mut acted).render(ending)
}

fn refuse(conversation: &Conversation, policy: &Policy) -> Option<DropReason> {
    let messages = &conversation.messages;
    if policy.on_lossy == OnLossy::Drop
        && messages.iter().any(|m| m.lossy || matches!(m.role, Role::Other(_)))
    {
        return Some(DropReason::NormaliseLossy);
    }
    if policy.drop_unanswered {
        if !messages.iter().any(|m| m.role == Role::Assistant) {
            return Some(DropReason::NormaliseNoAssistant);
        }
        let asks = |m: &Message| m.role == Role::User && !m.text().trim().is_empty();
        let query = messages.get(last_query(messages)).filter(|m| m.role == Role::User);
        if !messages.iter().any(asks) || query.is_some_and(|m| !asks(m)) {
            return Some(DropReason::NormaliseNoUser);
        }
    }
    messages.iter().filter(|m| m.role == Role::Assistant).find_map(|message| match Turn::of(message).fault {
        Some(Fault::Lossy) if policy.on_lossy == OnLossy::Drop => Some(DropReason::NormaliseLossy),
        Some(Fault::Unclosed) if policy.on_unclosed == OnUnclosed::Drop => {
            Some(DropReason::NormaliseUnclosedThink)
        }
        _ => None,
    })
}

fn is_assistant(conversation: &Conversation, index: usize) -> bool {
    conversation.messages.get(index).is_some_and(|m| m.role == Role::Assistant)
}

struct Renderer<'a> {
    conversation: &'a Conversation,
    messages: &'a [Message],
    policy: &'a Policy,
    /// Index of the last user query; turns after it keep their reasoning.
    query: usize,
    acted: &'a mut Acted,
    sample: RenderedSample,
}

impl<'a> Renderer<'a> {
    fn new(conversation: &'a Conversation, policy: &'a Policy, end: usize, acted: &'a mut Acted) -> Self {
        let messages = conversation.messages.get(..=end).unwrap_or(&conversation.messages);
        Renderer {
            conversation,
            messages,
            policy,
            query: last_query(messages),
            acted,
            sample: RenderedSample::default(),
        }
    }

    fn render(&mut self, ending: Ending) -> Result<RenderedSample, DropReason> {
        self.head();
        for (index, message) in self.messages.iter().enumerate() {
            match &message.role {
                Role::User => self.plain(message, "user"),
                Role::System if index > 0 => self.plain(message, "system"),
                Role::System | Role::Other(_) => {}
                Role::Assistant => self.assistant(index, message)?,
                Role::Tool => self.tool(index, message),
            }
        }
        if let Ending::Prompt { thinking } = ending {
            self.open("assistant\n");
            if !thinking {
                self.sample.text.push_str("<think>\n\n</think>\n\n");
            }
        }
        Ok(std::mem::take(&mut self.sample))
    }

    /// Rule 2: tools and the first system message share one block.
    fn head(&mut self) {
        let system = self.messages.first().filter(|m| m.role == Role::System);
        if self.conversation.tools.is_empty() {
            if let Some(message) = system {
                self.plain(message, "system");
            }
            return;
        }
        self.open("system\n");
        if let Some(message) = system {
            self.push(message.text());
            self.push("\n\n");
        }
        self.push(TOOLS_BEFORE);
        for tool in &self.conversation.tools {
            self.push("\n");
            self.push(tool);
        }
        self.push(TOOLS_AFTER);
        self.close();
    }

    fn plain(&mut self, message: &Message, role: &str) {
        self.open(role);
        self.push("\n");
        self.push(message.text());
        self.close();
    }

    /// Rule 9: a run of tool results shares one user block.
    fn tool(&mut self, index: usize, message: &Message) {
        let is_tool = |i: usize| self.messages.get(i).is_some_and(|m| m.role == Role::Tool);
        let (first, last) = (index == 0 || !is_tool(index - 1), !is_tool(index + 1));
        if first {
            self.open("user");
        }
        self.push("\n<tool_response>\n");
        self.push(message.text());
        self.push("\n</tool_response>");
        if last {
            self.close();
        }
    }

    /// Rules 5 to 8.
    fn assistant(&mut self, index: usize, message: &Message) -> Result<(), DropReason> {
        let mut turn = Turn::of(message);
        let closes = turn.fault == Some(Fault::Unclosed) && self.policy.on_unclosed == OnUnclosed::Close;
        if closes {
            turn = Turn { reasoning: Turn::unclosed_reasoning(message), answer: "", fault: None };
            self.count("unclosed-think-closed");
        }
        if self.policy.drop_unanswered && turn.reasoning.trim().is_empty() {
            // White space is no reasoning to train on.
            turn.reasoning = "";
        }
        let trained = self.is_trained(index);
        let unanswered = turn.answer.trim().is_empty() && message.tool_calls.is_empty() && !closes;
        if trained && unanswered && self.policy.drop_unanswered {
            return Err(DropReason::NormaliseEmptyAnswer);
        }
        self.open("assistant\n");
        let mut start = self.sample.text.len();
        let keeps = index > self.query || self.policy.history == History::Keep;
        let last = index + 1 == self.messages.len();
        let mut answer = turn.answer;
        if keeps && !turn.reasoning.is_empty() {
            self.think(turn.reasoning);
            answer = self.strip(answer, true);
        } else if keeps && last && index > self.query && self.policy.empty_think != EmptyThink::Omit {
            if trained && self.policy.empty_think == EmptyThink::Drop {
                return Err(DropReason::NormaliseEmptyThink);
            }
            self.think("");
            answer = self.strip(answer, true);
            if self.policy.empty_think == EmptyThink::Mask {
                start = self.sample.text.len();
                self.count("empty-think-masked");
            }
        } else {
            if !turn.reasoning.is_empty() {
                self.count("history-reasoning-stripped");
            }
            answer = self.strip(answer, self.policy.leading_newlines == LeadingNewlines::Strip);
        }
        self.push(answer);
        self.calls(message, answer);
        self.close();
        if trained {
            self.train(start);
        }
        Ok(())
    }

    fn train(&mut self, start: usize) {
        // `close` wrote the end of the turn and a newline.
        let newline = usize::from(!self.policy.train_newline);
        let end = self.sample.text.len() - newline;
        self.sample.trained.push(start..end);
    }

    fn is_trained(&self, index: usize) -> bool {
        match (self.policy.history, self.policy.train) {
            (History::Unroll, _) => index + 1 == self.messages.len(),
            (History::Keep, _) | (_, Train::AllTurns) => true,
            (History::Template, Train::LastTurns) => index > self.query,
        }
    }

    fn think(&mut self, reasoning: &str) {
        self.push("<think>\n");
        self.push(reasoning.trim_matches('\n'));
        self.push("\n</think>\n\n");
    }

    fn strip<'t>(&mut self, answer: &'t str, strip: bool) -> &'t str {
        let stripped = answer.trim_start_matches('\n');
        if !strip {
            return answer;
        }
        if stripped.len() < answer.len() {
            self.count("leading-newlines-stripped");
        }
        stripped
    }

    /// Rule 7.
    fn calls(&mut self, message: &Message, answer: &str) {
        for (number, call) in message.tool_calls.iter().enumerate() {
            if number > 0 || !answer.is_empty() {
                self.push("\n");
            }
            self.push("<tool_call>\n{\"name\": \"");
            self.push(&call.name);
            self.push("\", \"arguments\": ");
            self.push(&call.arguments);
            self.push("}\n</tool_call>");
        }
    }

    fn open(&mut self, header: &str) {
        self.sample.control("<|im_start|>");
        self.sample.text.push_str(header);
    }

    fn close(&mut self) {
        self.sample.control("<|im_end|>");
        self.sample.text.push('\n');
    }

    fn push(&mut self, text: &str) {
        self.sample.text.push_str(text);
    }

    fn count(&mut self, what: &'static str) {
        *self.acted.entry(what).or_default() += 1;
    }
}

/// Rule 3: the last user message that is not a wrapped tool result; the last message if there is none.
fn last_query(messages: &[Message]) -> usize {
    let is_query = |m: &Message| {
        let wrapped = m.text().starts_with("<tool_response>") && m.text().ends_with("</tool_response>");
        m.role == Role::User && m.content.is_some() && !wrapped
    };
    messages.iter().rposition(is_query).unwrap_or(messages.len().saturating_sub(1))
}

/// Text of the template before the tools.
const TOOLS_BEFORE: &str = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>";
/// Text of the template after the tools.
const TOOLS_AFTER: &str = "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";
