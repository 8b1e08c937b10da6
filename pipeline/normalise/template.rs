//! `format = "template"`: the chat template of a model repository, run as it is. Which part is trained
//! on is told by the template's own `{% generation %}` marks, or else by rendering: an assistant turn
//! is what its conversation so far has more than the prompt that the model would have seen. Where the
//! whole text does not begin with both, there is no telling, and the row is dropped.

use std::ops::Range;
use std::path::{Path, PathBuf};

use minijinja::value::Value;
use serde_json::Value as Json;

use super::jinja::{Broken, Input, Jinja, to_value};
use super::policy::{ControlText, History, LeadingNewlines, OnLossy, Policy, Train};
use super::printed::Marked;
use super::rendered::{Acted, ControlFinder, RenderedSample};
use super::turn::after_newlines;
use crate::run::reason::DropReason;
use crate::source::Cell;
use crate::source::adapt::{Conversation, Message, Outcome, Role, ToolCall};
use crate::source::python_json::to_python_json;

/// A chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    name: String,
    jinja: Jinja,
    digest: String,
    more: Vec<(String, Value)>,
    /// Whether the template has a way to print arguments that are text.
    takes_text: bool,
}

/// A chat template that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// A file that cannot be read.
    #[error("cannot read chat template `{path}`", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A file without a chat template.
    #[error("{path}: {reason}", path = path.display())]
    NoTemplate {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A template that does not compile, calls what there is not, or cannot render one question and
    /// its answer.
    #[error("{path}: the chat template cannot be used: {problem}", path = path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Line and problem.
        problem: String,
    },
    /// A row that a native format renders in another way than its template.
    #[error("{row}: format `{format}` and the chat template differ at byte {at}: `{ours}` and `{theirs}`")]
    Differs {
        /// Id of the row.
        row: String,
        /// The native format.
        format: &'static str,
        /// First byte that differs.
        at: usize,
        /// What the format has there.
        ours: String,
        /// What the template has there.
        theirs: String,
    },
}

impl TemplateError {
    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            TemplateError::Read { .. } | TemplateError::NoTemplate { .. } => {
                "`[normalise] template` is a chat_template.jinja, a tokenizer_config.json or chat_template.json that holds one, or a model of the Hub, `OWNER/NAME`"
            }
            TemplateError::Broken { .. } => {
                "use the chat template of the model's repository; if that one is at fault, a corrected copy"
            }
            TemplateError::Differs { .. } => {
                "check that the template is the one of the model that `format` names; `format = \"template\"` runs it as it is"
            }
        }
        .to_owned()
    }
}

impl ChatTemplate {
    /// Loads a template: a `.jinja` file, or the `chat_template` of a JSON file (of several, the one
    /// named `default`). Special tokens come from that file or the `tokenizer_config.json` beside it.
    ///
    /// # Errors
    /// A file that cannot be read or holds no template; a template that cannot be used.
    pub fn load(path: &Path) -> Result<ChatTemplate, TemplateError> {
        let read = |path: &Path| std::fs::read_to_string(path);
        let text = read(path).map_err(|source| TemplateError::Read { path: path.to_path_buf(), source })?;
        let no_template =
            |reason: &str| TemplateError::NoTemplate { path: path.to_path_buf(), reason: reason.to_owned() };
        let is_json = path.extension().is_some_and(|ending| ending == "json");
        let (source, config) = if is_json {
            let json: Json = serde_json::from_str(&text).map_err(|e| no_template(&e.to_string()))?;
            let found = template_of(&json).ok_or_else(|| no_template("there is no `chat_template` in it"))?;
            (found, json)
        } else {
            let beside = read(&path.with_file_name("tokenizer_config.json")).unwrap_or_default();
            (text, serde_json::from_str(&beside).unwrap_or_default())
        };
        ChatTemplate::new(&source, special_tokens(&config))
            .map_err(|problem| TemplateError::Broken { path: path.to_path_buf(), problem })
    }

    /// A template by its text, with special tokens by name (`bos_token`, …).
    ///
    /// # Errors
    /// Line and problem of a template that does not compile, calls what there is not, or cannot
    /// render a question and its answer.
    pub fn new(source: &str, special: Vec<(String, String)>) -> Result<ChatTemplate, String> {
        let mut hashed = source.to_owned();
        special.iter().for_each(|(name, token)| hashed.push_str(&format!("\n{name}={token}")));
        let template = ChatTemplate {
            name: "chat-template".to_owned(),
            jinja: Jinja::new(source).map_err(|e| e.problem)?,
            digest: potable_manifests::sha256_hex(hashed.as_bytes()),
            more: special.into_iter().map(|(name, token)| (name, Value::from(token))).collect(),
            takes_text: source.contains("arguments is string"),
        };
        let probe = Conversation {
            messages: vec![Message::new(Role::User, "2 + 2?"), Message::new(Role::Assistant, "4")],
            tools: Vec::new(),
        };
        template.render(&probe, false).map_err(|e| e.problem)?;
        Ok(template)
    }

    /// Under a name that says where it came from.
    pub fn named(mut self, name: String) -> ChatTemplate {
        self.name = name;
        self
    }

    /// The name in manifests.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 in hex over the template and the special tokens that it can print.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The text of a conversation, with the header of an answer if `prompt`.
    ///
    /// # Errors
    /// What the template raises.
    pub fn text(&self, conversation: &Conversation, prompt: bool) -> Result<String, String> {
        self.render(conversation, prompt).map_err(|e| e.problem)
    }

    /// As [`ChatTemplate::text`], with further variables such as `enable_thinking`.
    ///
    /// # Errors
    /// What the template raises.
    pub fn text_with(
        &self,
        conversation: &Conversation,
        prompt: bool,
        variables: &[(&str, Json)],
    ) -> Result<String, String> {
        let mut input = self.input(conversation, prompt);
        let more = variables.iter().map(|(name, value)| ((*name).to_owned(), to_value(value)));
        input.more.extend(more);
        self.jinja.render(&input).map_err(|e| e.problem)
    }

    fn render(&self, conversation: &Conversation, prompt: bool) -> Result<String, Broken> {
        self.jinja.render(&self.input(conversation, prompt))
    }

    fn input(&self, conversation: &Conversation, prompt: bool) -> Input {
        let messages = conversation.messages.iter().map(|m| message_value(m, self.takes_text)).collect();
        let tool = |text: &String| {
            let json = serde_json::from_str::<Json>(text);
            json.map_or_else(|_| Value::from(text.as_str()), |json| to_value(&json))
        };
        let tools = conversation.tools.iter().map(tool).collect();
        Input { messages, tools, prompt, marks: Default::default(), more: self.more.clone() }
    }
}

fn template_of(json: &Json) -> Option<String> {
    match json.get("chat_template")? {
        Json::String(text) => Some(text.clone()),
        Json::Array(named) => {
            let find = |item: &&Json| item.get("name").and_then(Json::as_str) == Some("default");
            named.iter().find(find)?.get("template")?.as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// `bos_token`, `eos_token` and the like, which stand as text or as `{"content": …}`.
fn special_tokens(config: &Json) -> Vec<(String, String)> {
    let names = ["bos_token", "eos_token", "pad_token", "unk_token"];
    let text = |value: &Json| value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_owned);
    names.iter().filter_map(|name| Some(((*name).to_owned(), text(config.get(*name)?)?))).collect()
}

fn message_value(message: &Message, takes_text: bool) -> Value {
    let mut fields = vec![
        ("role", Value::from(message.role.name())),
        ("content", message.content.as_deref().map_or(Value::from(()), Value::from)),
    ];
    if let Some(reasoning) = &message.reasoning {
        fields.push(("reasoning_content", Value::from(reasoning.as_str())));
    }
    for (key, label) in [("name", &message.name), ("tool_call_id", &message.tool_call_id)] {
        fields.extend(label.as_deref().map(|label| (key, Value::from(label))));
    }
    if !message.tool_calls.is_empty() {
        let calls: Vec<Value> = message.tool_calls.iter().map(|call| call_value(call, takes_text)).collect();
        fields.push(("tool_calls", Value::from(calls)));
    }
    Value::from_pairs(fields)
}

/// Arguments are a mapping where nothing is lost by that, or where the template cannot print text.
fn call_value(call: &ToolCall, takes_text: bool) -> Value {
    let parsed = serde_json::from_str::<Cell>(&call.arguments).ok();
    let is_mapping = |cell: &Cell| {
        matches!(cell, Cell::Struct(_)) && (!takes_text || to_python_json(cell) == call.arguments)
    };
    let arguments = match parsed.filter(is_mapping) {
        Some(_) => {
            serde_json::from_str::<Json>(&call.arguments).map(|json| to_value(&json)).unwrap_or_default()
        }
        None => Value::from(call.arguments.as_str()),
    };
    let function = Value::from_pairs([("name", Value::from(call.name.as_str())), ("arguments", arguments)]);
    let id = call.id.as_deref().map(|id| ("id", Value::from(id)));
    Value::from_pairs(id.into_iter().chain([("type", Value::from("function")), ("function", function)]))
}

/// Renders a conversation by a template and finds what is trained on.
pub(super) fn normalise(
    template: &ChatTemplate,
    conversation: &Conversation,
    by: (&Policy, &ControlFinder),
    acted: &mut Acted,
) -> Outcome<Vec<RenderedSample>> {
    let (policy, controls) = by;
    let stripped = strip_newlines(conversation, policy, acted);
    let conversation = stripped.as_ref().unwrap_or(conversation);
    let sampler = Sampler { template, conversation, policy, controls };
    match sampler.samples() {
        Ok(samples) => Outcome::Keep(samples),
        Err(reason) => Outcome::Drop(reason),
    }
}

/// The conversation without newlines at the start of answers, if there are any and they go.
fn strip_newlines(conversation: &Conversation, policy: &Policy, acted: &mut Acted) -> Option<Conversation> {
    let begins = |m: &Message| m.role == Role::Assistant && after_newlines(m.text()).len() < m.text().len();
    let count = conversation.messages.iter().filter(|m| begins(m)).count() as u64;
    if policy.leading_newlines == LeadingNewlines::Keep || count == 0 {
        return None;
    }
    *acted.entry("leading-newlines-stripped").or_default() += count;
    let mut changed = conversation.clone();
    for message in changed.messages.iter_mut().filter(|m| begins(m)) {
        message.content = Some(after_newlines(message.text()).to_owned());
    }
    Some(changed)
}

struct Sampler<'a> {
    template: &'a ChatTemplate,
    conversation: &'a Conversation,
    policy: &'a Policy,
    controls: &'a ControlFinder,
}

impl Sampler<'_> {
    fn samples(&self) -> Result<Vec<RenderedSample>, DropReason> {
        let messages = &self.conversation.messages;
        let is_answer = |m: &Message| m.role == Role::Assistant;
        let answers: Vec<usize> =
            (0..messages.len()).filter(|&i| messages.get(i).is_some_and(is_answer)).collect();
        self.refuse(&answers)?;
        if self.policy.history == History::Unroll {
            let samples = answers.iter().zip(0..).map(|(&index, turn)| {
                let part = self.head(index + 1);
                let sample = Sampler { conversation: &part, ..*self }.sample(&[index])?;
                Ok(RenderedSample { turn, ..sample })
            });
            return samples.collect();
        }
        let query = messages.iter().rposition(|m| m.role == Role::User).unwrap_or(messages.len());
        let trained: Vec<usize> = match self.policy.train {
            Train::AllTurns => answers,
            Train::LastTurns => answers.into_iter().filter(|&index| index > query).collect(),
        };
        Ok(vec![self.sample(&trained)?])
    }

    fn refuse(&self, answers: &[usize]) -> Result<(), DropReason> {
        let messages = &self.conversation.messages;
        if self.policy.on_lossy == OnLossy::Drop && messages.iter().any(|m| m.lossy) {
            return Err(DropReason::NormaliseLossy);
        }
        if !self.policy.drop_unanswered {
            return Ok(());
        }
        if answers.is_empty() {
            return Err(DropReason::NormaliseNoAssistant);
        }
        let asks = |m: &Message| m.role == Role::User && !m.text().trim().is_empty();
        if !messages.iter().any(asks) {
            return Err(DropReason::NormaliseNoUser);
        }
        Ok(())
    }

    /// One sample of the whole conversation, trained on at the answers `trained`.
    fn sample(&self, trained: &[usize]) -> Result<RenderedSample, DropReason> {
        let text = self.render(self.conversation, false)?;
        if self.policy.drop_unanswered && trained.iter().any(|&index| self.is_empty(index)) {
            return Err(DropReason::NormaliseEmptyAnswer);
        }
        if self.policy.on_lossy == OnLossy::Drop && self.loses(&text) {
            return Err(DropReason::NormaliseLossy);
        }
        let mut sample = RenderedSample::default();
        let spans = match self.template.jinja.marks_generation() {
            true => self.marked(&text, trained)?,
            false => trained.iter().map(|&index| self.differing(&text, index)).collect::<Result<_, _>>()?,
        };
        for span in spans {
            let end = self.end(&text, &span);
            if span.start < end {
                sample.trained.push(span.start..end);
            }
        }
        if sample.trained.is_empty() && self.policy.drop_unanswered {
            return Err(DropReason::NormaliseNothingTrained);
        }
        sample.controls = self.own_controls(&text)?;
        sample.text = text;
        Ok(sample)
    }

    /// Whether the template leaves out something of the conversation, or there is no telling.
    fn loses(&self, text: &str) -> bool {
        let Some(marks) = self.unused() else { return true };
        let marked = Marked::new(self.conversation, marks, self.template.takes_text);
        marked.loses(text, self.render(&marked.conversation, false).ok().as_deref())
    }

    fn is_empty(&self, index: usize) -> bool {
        self.conversation
            .messages
            .get(index)
            .is_some_and(|m| m.text().trim().is_empty() && m.tool_calls.is_empty())
    }

    /// What the answer at `index` adds to its prompt, if the whole text begins with both.
    fn differing(&self, text: &str, index: usize) -> Result<Range<usize>, DropReason> {
        let prompt = self.render(&self.head(index), true)?;
        let last = index + 1 == self.conversation.messages.len();
        let upto = match last {
            true => text.len(),
            false => {
                let until = self.render(&self.head(index + 1), false)?;
                text.starts_with(&until).then_some(until.len()).ok_or(DropReason::NormaliseSpan)?
            }
        };
        let fits = text.starts_with(&prompt) && prompt.len() <= upto;
        fits.then_some(prompt.len()..upto).ok_or(DropReason::NormaliseSpan)
    }

    /// What the template itself marks as written by the model. With marks for some answers only, none
    /// can be told from the others.
    fn marked(&self, text: &str, trained: &[usize]) -> Result<Vec<Range<usize>>, DropReason> {
        let (begin, end) = self.unused().ok_or(DropReason::NormaliseSpan)?;
        let mut input = self.template.input(self.conversation, false);
        input.marks = (begin.to_string(), end.to_string());
        let marked = self.template.jinja.render(&input).map_err(|_| DropReason::NormaliseRefused)?;
        let (mut plain, mut spans, mut open) = (String::with_capacity(text.len()), Vec::new(), None);
        for c in marked.chars() {
            match c {
                c if c == begin => open = Some(plain.len()),
                c if c == end => spans.extend(open.take().map(|start| start..plain.len())),
                c => plain.push(c),
            }
        }
        let messages = &self.conversation.messages;
        let answers: Vec<usize> =
            messages.iter().enumerate().filter(|(_, m)| m.role == Role::Assistant).map(|(i, _)| i).collect();
        if plain != text || spans.len() != answers.len() {
            return Err(DropReason::NormaliseSpan);
        }
        let wanted = answers.iter().zip(spans).filter(|(index, _)| trained.contains(index));
        Ok(wanted.map(|(_, span)| span).collect())
    }

    /// Two characters of the private use area that the row does not use.
    fn unused(&self) -> Option<(char, char)> {
        let strings = self.conversation.printable();
        let mut free =
            ('\u{f800}'..='\u{f8ff}').filter(|c| !strings.iter().any(|(_, text, _)| text.contains(*c)));
        Some((free.next()?, free.next()?))
    }

    /// The end of a span: white space after the control string that ends the turn is not generated.
    fn end(&self, text: &str, span: &Range<usize>) -> usize {
        let body = text.get(span.clone()).unwrap_or_default();
        let last = self.controls.ranges(body).pop().map_or(body.len(), |control| control.end);
        let is_space = body.get(last..).unwrap_or_default().trim().is_empty();
        if is_space && !self.policy.train_newline { span.start + last } else { span.end }
    }

    /// Where the control strings stand that the template wrote, as far as it matters: with
    /// `control_text = "text"`, those of the row are hidden from a second rendering, which has to
    /// give the same text.
    fn own_controls(&self, text: &str) -> Result<Vec<usize>, DropReason> {
        let all = || self.controls.ranges(text).into_iter().map(|range| range.start).collect::<Vec<_>>();
        let strings = self.conversation.printable();
        let theirs = strings.iter().any(|(_, text, _)| self.controls.finds(text));
        if self.policy.control_text != ControlText::Text || !theirs {
            return Ok(all());
        }
        let (open, close) = self.unused().ok_or(DropReason::NormaliseControlText)?;
        let mut hidden = Vec::new();
        let mut hide = |text: &mut String| hide(text, self.controls, (open, close), &mut hidden);
        let mut conversation = self.conversation.clone();
        for message in &mut conversation.messages {
            if let Role::Other(name) = &mut message.role {
                hide(name);
            }
            message.content.iter_mut().chain(&mut message.reasoning).for_each(&mut hide);
            message.name.iter_mut().chain(&mut message.tool_call_id).for_each(&mut hide);
            for call in &mut message.tool_calls {
                call.id.iter_mut().for_each(&mut hide);
                hide(&mut call.name);
                hide(&mut call.arguments);
            }
        }
        conversation.tools.iter_mut().for_each(&mut hide);
        let masked = self.render(&conversation, false)?;
        let (mut plain, mut own, mut at) = (String::with_capacity(text.len()), Vec::new(), 0);
        let marks = self.controls.ranges(&masked).into_iter().map(|range| (range.start, None));
        let mut places: Vec<(usize, Option<usize>)> = marks.collect();
        places.extend(masked.match_indices(open).map(|(start, _)| (start, Some(start))));
        places.sort_unstable();
        for (start, place) in places {
            plain.push_str(masked.get(at..start).unwrap_or_default());
            at = start;
            if place.is_none() {
                own.push(plain.len());
                continue;
            }
            let rest = masked.get(start + open.len_utf8()..).unwrap_or_default();
            let (number, _) = rest.split_once(close).ok_or(DropReason::NormaliseControlText)?;
            let string = number.parse::<usize>().ok().and_then(|n| hidden.get(n));
            plain.push_str(string.ok_or(DropReason::NormaliseControlText)?);
            at = start + open.len_utf8() + number.len() + close.len_utf8();
        }
        plain.push_str(masked.get(at..).unwrap_or_default());
        if plain == text { Ok(own) } else { Err(DropReason::NormaliseControlText) }
    }

    fn head(&self, count: usize) -> Conversation {
        Conversation {
            messages: self.conversation.messages.iter().take(count).cloned().collect(),
            tools: self.conversation.tools.clone(),
        }
    }

    fn render(&self, conversation: &Conversation, prompt: bool) -> Result<String, DropReason> {
        self.template.render(conversation, prompt).map_err(|_| DropReason::NormaliseRefused)
    }
}

/// Puts a numbered mark in the place of each control string.
fn hide(text: &mut String, controls: &ControlFinder, marks: (char, char), hidden: &mut Vec<String>) {
    for range in controls.ranges(text).into_iter().rev() {
        let string = text.get(range.clone()).unwrap_or_default().to_owned();
        text.replace_range(range, &format!("{}{}{}", marks.0, hidden.len(), marks.1));
        hidden.push(string);
    }
}
