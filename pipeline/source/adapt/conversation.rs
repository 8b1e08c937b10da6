//! What a row means: a conversation, or a plain document.

/// A row after mapping.
#[derive(Clone, Debug, PartialEq)]
pub enum Adapted {
    /// A chat row.
    Chat(Conversation),
    /// A row of plain text (pre-training).
    Document(Document),
}

/// A plain document.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Document {
    /// The text, never empty.
    pub text: String,
}

/// A conversation in the order of the row.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Conversation {
    /// Messages, the system message first if there is one.
    pub messages: Vec<Message>,
    /// One JSON text a tool, as Python's `json.dumps` writes it.
    pub tools: Vec<String>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The text; `None` where the row has null.
    pub content: Option<String>,
    /// Reasoning that stands apart from the text.
    pub reasoning: Option<String>,
    /// Calls of tools.
    pub tool_calls: Vec<ToolCall>,
    /// Name of who speaks, or of the tool whose result this is: templates may print it.
    pub name: Option<String>,
    /// Id of the call whose result this is: templates may print it.
    pub tool_call_id: Option<String>,
    /// Whether the row holds something here that no template renders (an image, say).
    pub lossy: bool,
}

/// Who speaks.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// Instructions that hold for the whole conversation.
    System,
    /// The person.
    #[default]
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
    /// A role that chat templates have no branch for.
    Other(String),
}

/// One call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ToolCall {
    /// Id of the call: templates may print it.
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// Arguments as JSON text: the row's own text, or what Python's `json.dumps` makes of them.
    pub arguments: String,
}

impl Role {
    /// The role by its usual names: `human` and `gpt` of ShareGPT rows among them.
    pub fn from_name(name: &str) -> Role {
        match name {
            "system" => Role::System,
            "user" | "human" => Role::User,
            "assistant" | "gpt" => Role::Assistant,
            "tool" => Role::Tool,
            other => Role::Other(other.to_owned()),
        }
    }

    /// The role's name.
    pub fn name(&self) -> &str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::Other(name) => name,
        }
    }
}

impl Message {
    /// A message of plain text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Message { role, content: Some(content.into()), ..Message::default() }
    }

    /// The text, empty where the row has null.
    pub fn text(&self) -> &str {
        self.content.as_deref().unwrap_or_default()
    }
}

impl Conversation {
    /// Whether there is a user turn.
    pub fn has_user(&self) -> bool {
        self.messages.iter().any(|message| message.role == Role::User)
    }

    /// Every string of the conversation that can end up in a shard, with the index of its message
    /// (tools count as message 0) and whether it is a whole user message.
    pub fn strings(&self) -> Vec<(u32, &str, bool)> {
        let mut strings: Vec<(u32, &str, bool)> =
            self.tools.iter().map(|tool| (0, tool.as_str(), false)).collect();
        for (index, message) in self.messages.iter().enumerate() {
            let index = index as u32;
            if let Some(reasoning) = &message.reasoning {
                strings.push((index, reasoning, false));
            }
            if let Some(content) = &message.content {
                strings.push((index, content, message.role == Role::User));
            }
            for call in &message.tool_calls {
                strings.push((index, &call.name, false));
                strings.push((index, &call.arguments, false));
            }
        }
        strings
    }

    /// What names things beside those strings and that a chat template may print all the same: roles
    /// that have no branch of their own, names of speakers and tools, ids of calls. With the index of the message, as in
    /// [`Conversation::strings`].
    pub fn labels(&self) -> Vec<(u32, &str, bool)> {
        let mut labels = Vec::new();
        for (index, message) in self.messages.iter().enumerate() {
            let index = index as u32;
            if let Role::Other(name) = &message.role {
                labels.push((index, name.as_str(), false));
            }
            let ids = message.tool_calls.iter().filter_map(|call| call.id.as_deref());
            let names = message.name.as_deref().into_iter().chain(message.tool_call_id.as_deref());
            labels.extend(names.chain(ids).map(|text| (index, text, false)));
        }
        labels
    }

    /// Strings and labels: all that a chat template can print.
    pub fn printable(&self) -> Vec<(u32, &str, bool)> {
        let mut all = self.strings();
        all.extend(self.labels());
        all
    }
}
