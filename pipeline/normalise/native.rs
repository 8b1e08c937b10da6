//! The native chat formats. The text is that of each model's own chat template, rule by rule (the
//! rules are numbered as in Qwen3's); the options of the policy say what is dropped, stripped or
//! trained on besides.

use super::calls;
use super::dialect::{Dialect, Prompt};
use super::policy::{EmptyThink, History, LeadingNewlines, OnLossy, OnUnclosed, Policy, Train};
use super::python;
use super::rendered::{Acted, RenderedSample};
use super::turn::{Fault, Turn, after_newlines};
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
/// The reason why the policy drops the row; [`DropReason::NormaliseRefused`] where the template
/// itself raises an error.
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
    let dialect = Dialect::of(policy.format);
    if policy.on_lossy == OnLossy::Drop
        && messages.iter().any(|m| m.lossy || matches!(m.role, Role::Other(_)) || answers_by_another(m))
    {
        return Some(DropReason::NormaliseLossy);
    }
    if policy.drop_unanswered {
        if !messages.iter().any(|m| m.role == Role::Assistant) {
            return Some(DropReason::NormaliseNoAssistant);
        }
        let asks = |m: &Message| m.role == Role::User && !m.text().trim().is_empty();
        let query = last_query(messages, dialect).and_then(|index| messages.get(index));
        if !messages.iter().any(asks) || query.is_some_and(|m| !asks(m)) {
            return Some(DropReason::NormaliseNoUser);
        }
    }
    messages.iter().filter(|m| m.role == Role::Assistant).find_map(|m| refuse_answer(m, policy, dialect))
}

/// Why an answer is not to be rendered: what is lost by it, or reasoning that is cut off.
fn refuse_answer(message: &Message, policy: &Policy, dialect: Dialect) -> Option<DropReason> {
    let fault = Turn::of(message, dialect.parting).fault?;
    let unclosed = fault.is_unclosed();
    let lossy = match policy.on_unclosed {
        OnUnclosed::Close if unclosed => Turn::closed(message, dialect.parting).fault.is_some(),
        _ => fault.is_lossy(),
    };
    if lossy && policy.on_lossy == OnLossy::Drop {
        return Some(DropReason::NormaliseLossy);
    }
    (unclosed && policy.on_unclosed == OnUnclosed::Drop).then_some(DropReason::NormaliseUnclosedThink)
}

/// Whether a message that is no answer has reasoning or calls, which templates print of answers only.
fn answers_by_another(message: &Message) -> bool {
    let reasons = message.reasoning.as_deref().is_some_and(|text| !text.trim().is_empty());
    message.role != Role::Assistant && (reasons || !message.tool_calls.is_empty())
}

fn is_assistant(conversation: &Conversation, index: usize) -> bool {
    conversation.messages.get(index).is_some_and(|m| m.role == Role::Assistant)
}

struct Renderer<'a> {
    conversation: &'a Conversation,
    messages: &'a [Message],
    policy: &'a Policy,
    dialect: Dialect,
    /// Index of the last user query, if there is one.
    asked: Option<usize>,
    /// Turns after this one keep their reasoning.
    query: usize,
    acted: &'a mut Acted,
    sample: RenderedSample,
}

impl<'a> Renderer<'a> {
    fn new(conversation: &'a Conversation, policy: &'a Policy, end: usize, acted: &'a mut Acted) -> Self {
        let messages = conversation.messages.get(..=end).unwrap_or(&conversation.messages);
        let dialect = Dialect::of(policy.format);
        let asked = last_query(messages, dialect);
        let query = asked.unwrap_or(messages.len().saturating_sub(1));
        let sample = RenderedSample::default();
        Renderer { conversation, messages, policy, dialect, asked, query, acted, sample }
    }

    fn render(&mut self, ending: Ending) -> Result<RenderedSample, DropReason> {
        if self.dialect.is_second() && self.asked.is_none() {
            return Err(DropReason::NormaliseRefused);
        }
        self.head()?;
        for (index, message) in self.messages.iter().enumerate() {
            match &message.role {
                Role::User => self.plain(message, "user"),
                Role::System if index == 0 => {}
                Role::System | Role::Other(_) if self.dialect.is_second() => {
                    return Err(DropReason::NormaliseRefused);
                }
                Role::System => self.plain(message, "system"),
                Role::Other(_) => {}
                Role::Assistant => self.assistant(index, message)?,
                Role::Tool => self.tool(index, message),
            }
        }
        if let Ending::Prompt { thinking } = ending {
            self.prompt(thinking);
        }
        Ok(std::mem::take(&mut self.sample))
    }

    /// Rule 10.
    fn prompt(&mut self, thinking: bool) {
        self.open("assistant\n");
        match (self.dialect.prompt, thinking) {
            (Prompt::Bare | Prompt::OpenedOrEmpty, false) => self.push("<think>\n\n</think>\n\n"),
            (Prompt::Opened, _) | (Prompt::OpenedOrEmpty, true) => self.push("<think>\n"),
            (Prompt::Bare, true) | (Prompt::Header, _) => {}
        }
    }

    /// Rule 2: tools and the first system message share one block.
    fn head(&mut self) -> Result<(), DropReason> {
        let system = self.messages.first().filter(|m| m.role == Role::System);
        if !self.dialect.is_second() && system.is_some_and(|m| m.content.is_none()) {
            // Qwen3's templates add to it without a look.
            return Err(DropReason::NormaliseRefused);
        }
        if self.conversation.tools.is_empty() {
            if let Some(message) = system {
                self.plain(message, "system");
            }
            return Ok(());
        }
        let second = self.dialect.is_second();
        self.open("system\n");
        if let Some(message) = system.filter(|_| !second) {
            self.push(message.text());
            self.push("\n\n");
        }
        self.push(if second { calls::XML_TOOLS_BEFORE } else { calls::JSON_TOOLS_BEFORE });
        for tool in &self.conversation.tools {
            self.push("\n");
            self.push(tool);
        }
        self.push(if second { calls::XML_TOOLS_AFTER } else { calls::JSON_TOOLS_AFTER });
        if let Some(text) = system.filter(|_| second).map(|m| self.text(m)).filter(|text| !text.is_empty()) {
            self.push("\n\n");
            self.push(text);
        }
        self.close();
        Ok(())
    }

    fn plain(&mut self, message: &'a Message, role: &str) {
        self.open(role);
        self.push("\n");
        self.push(self.text(message));
        self.close();
    }

    /// A message's text as the template takes it.
    fn text(&self, message: &'a Message) -> &'a str {
        if self.dialect.is_second() { python::strip(message.text()) } else { message.text() }
    }

    /// Rule 9: a run of tool results shares one user block. The templates of Qwen3.5 and later open
    /// none for a run at the very start.
    fn tool(&mut self, index: usize, message: &'a Message) {
        let is_tool = |i: usize| self.messages.get(i).is_some_and(|m| m.role == Role::Tool);
        let starts = if index == 0 { !self.dialect.is_second() } else { !is_tool(index - 1) };
        let ends = !is_tool(index + 1);
        if starts {
            self.open("user");
        }
        self.push("\n<tool_response>\n");
        self.push(self.text(message));
        self.push("\n</tool_response>");
        if ends {
            self.close();
        }
    }

    /// Rules 5 to 8.
    fn assistant(&mut self, index: usize, message: &'a Message) -> Result<(), DropReason> {
        let mut turn = Turn::of(message, self.dialect.parting);
        let closes =
            turn.fault.is_some_and(Fault::is_unclosed) && self.policy.on_unclosed == OnUnclosed::Close;
        if closes {
            turn = Turn::closed(message, self.dialect.parting);
            self.count("unclosed-think-closed");
        }
        if self.policy.drop_unanswered && turn.reasoning.trim().is_empty() {
            // White space is no reasoning to train on.
            turn.reasoning = "";
        }
        let trained = self.is_trained(index);
        let cut_off = closes && !turn.reasoning.is_empty();
        let unanswered = turn.answer.trim().is_empty() && message.tool_calls.is_empty() && !cut_off;
        if trained && unanswered && self.policy.drop_unanswered {
            return Err(DropReason::NormaliseEmptyAnswer);
        }
        let lacks = self.dialect.reasons() && turn.reasoning.is_empty();
        if trained && lacks && self.policy.empty_think == EmptyThink::Drop {
            return Err(DropReason::NormaliseEmptyThink);
        }
        self.open("assistant\n");
        let header = self.sample.text.len();
        let (answer, start) = match self.block(index, &turn) {
            Block::Reasoning => {
                self.think(turn.reasoning);
                let start = if self.policy.mask_reasoning { self.sample.text.len() } else { header };
                (self.strip(turn.answer, turn.answer.trim_start_matches('\n')), start)
            }
            Block::Empty => {
                let answer = self.strip(turn.answer, turn.answer.trim_start_matches('\n'));
                (answer, self.empty_block(header))
            }
            Block::None => {
                if !turn.reasoning.is_empty() {
                    self.count("history-reasoning-stripped");
                }
                (self.strip(turn.answer, turn.answer), header)
            }
        };
        self.push(answer);
        // The template looks at the text before it strips newlines off it.
        let keeps = self.policy.leading_newlines == LeadingNewlines::Keep;
        self.calls(message, if keeps { turn.answer } else { answer })?;
        self.close();
        if trained {
            self.train(start);
        }
        Ok(())
    }

    /// Rule 6: whether a turn has a think block, and which.
    fn block(&self, index: usize, turn: &Turn) -> Block {
        let after = index > self.query;
        let keeps = after || self.policy.history == History::Keep;
        if !self.dialect.reasons() || !keeps {
            return Block::None;
        }
        if !turn.reasoning.is_empty() {
            return Block::Reasoning;
        }
        // With an answer right after another one, the prompt of inference ends with the first of them.
        let unrolls = self.policy.history == History::Unroll;
        let last = self.messages.len() <= index + 1 + usize::from(unrolls);
        let has_empty = self.dialect.is_second() || (last && after);
        match has_empty && self.policy.empty_think != EmptyThink::Omit {
            true => Block::Empty,
            false => Block::None,
        }
    }

    /// Writes an empty think block; gives where training starts.
    fn empty_block(&mut self, header: usize) -> usize {
        self.think("");
        let masks = self.policy.empty_think == EmptyThink::Mask;
        if masks {
            self.count("empty-think-masked");
        }
        if masks || self.policy.mask_reasoning { self.sample.text.len() } else { header }
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

    /// The answer as the policy has it; `by_template` is what the template leaves of it.
    fn strip<'t>(&mut self, answer: &'t str, by_template: &'t str) -> &'t str {
        let stripped = match self.policy.leading_newlines {
            LeadingNewlines::Strip => after_newlines(answer),
            LeadingNewlines::Keep => by_template,
        };
        if stripped.len() < answer.len() {
            self.count("leading-newlines-stripped");
        }
        stripped
    }

    /// Rule 7. Qwen3.5 and later have a blank line after a text that is not white space.
    fn calls(&mut self, message: &Message, answer: &str) -> Result<(), DropReason> {
        for (number, call) in message.tool_calls.iter().enumerate() {
            match self.dialect.xml {
                None => {
                    if number > 0 || !answer.is_empty() {
                        self.push("\n");
                    }
                    calls::push_json(&mut self.sample.text, call);
                }
                Some(scalars) => {
                    let answered = !python::strip(answer).is_empty();
                    self.push(match (number, answered) {
                        (0, true) => "\n\n",
                        (0, false) => "",
                        _ => "\n",
                    });
                    calls::push_xml(&mut self.sample.text, call, scalars)?;
                }
            }
        }
        Ok(())
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

/// The think block of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Reasoning,
    Empty,
    None,
}

/// Rule 3: the last user message that is not a wrapped tool result.
fn last_query(messages: &[Message], dialect: Dialect) -> Option<usize> {
    let second = dialect.is_second();
    messages.iter().rposition(|message| {
        let text = if second { python::strip(message.text()) } else { message.text() };
        let wrapped = text.starts_with("<tool_response>") && text.ends_with("</tool_response>");
        message.role == Role::User && (second || message.content.is_some()) && !wrapped
    })
}
