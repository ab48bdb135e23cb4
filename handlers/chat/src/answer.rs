//! The documents for OpenAI's clients.

use serde::Serialize;

use crate::generate::Drawn;
use crate::request::{Kind, Request};

/// The common fields of all documents of one answer.
pub struct Answer {
    kind: Kind,
    id: String,
    /// Seconds since the Unix epoch.
    created: u64,
    is_stream: bool,
    include_usage: bool,
}

/// A whole answer, or one event of a stream.
#[derive(Serialize)]
pub struct Document {
    id: String,
    object: &'static str,
    created: u64,
    model: &'static str,
    choices: Vec<Choice>,
    /// Null before the last event, in a stream that ends with the usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Serialize)]
struct Choice {
    index: u32,
    #[serde(flatten)]
    content: Content,
    logprobs: (),
    finish_reason: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Content {
    Message { role: &'static str, content: String, refusal: () },
    Delta(Delta),
    Text(String),
}

#[derive(Serialize, Default)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

/// Numbers of tokens of the input and the output.
#[derive(Serialize, Clone, Copy)]
pub struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
}

impl Usage {
    pub fn new(prompt_tokens: usize, drawn: &Drawn) -> Self {
        Self {
            prompt_tokens,
            completion_tokens: drawn.tokens,
            total_tokens: prompt_tokens + drawn.tokens,
        }
    }
}

impl Answer {
    pub fn new(kind: Kind, request: &Request, job_id: &str, created: u64) -> Self {
        let prefix = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
        Self {
            kind,
            id: format!("{prefix}-{job_id}"),
            created,
            is_stream: request.is_stream,
            include_usage: request.include_usage,
        }
    }

    /// The document with the whole text.
    pub fn whole(&self, text: String, drawn: &Drawn, usage: Usage) -> Document {
        let content = match self.kind {
            Kind::Chat => Content::Message { role: "assistant", content: text, refusal: () },
            Kind::Completion => Content::Text(text),
        };
        let choice = self.choice(content, Some(drawn.finish_reason));
        self.document(vec![choice], Some(Some(usage)))
    }

    /// One piece of a stream.
    pub fn piece(&self, text: String, is_first: bool) -> Document {
        let content = match self.kind {
            Kind::Chat => {
                Content::Delta(Delta { role: is_first.then_some("assistant"), content: Some(text) })
            }
            Kind::Completion => Content::Text(text),
        };
        self.event(vec![self.choice(content, None)])
    }

    /// The event with the reason for a stream's end.
    pub fn finish(&self, drawn: &Drawn) -> Document {
        let content = match self.kind {
            Kind::Chat => Content::Delta(Delta::default()),
            Kind::Completion => Content::Text(String::new()),
        };
        self.event(vec![self.choice(content, Some(drawn.finish_reason))])
    }

    /// The last event of a stream whose client requested the usage.
    pub fn usage(&self, usage: Usage) -> Document {
        self.document(vec![], Some(Some(usage)))
    }

    fn choice(&self, content: Content, finish_reason: Option<&'static str>) -> Choice {
        Choice { index: 0, content, logprobs: (), finish_reason }
    }

    fn event(&self, choices: Vec<Choice>) -> Document {
        self.document(choices, self.include_usage.then_some(None))
    }

    fn document(&self, choices: Vec<Choice>, usage: Option<Option<Usage>>) -> Document {
        let object = match (self.kind, self.is_stream) {
            (Kind::Chat, false) => "chat.completion",
            (Kind::Chat, true) => "chat.completion.chunk",
            (Kind::Completion, _) => "text_completion",
        };
        let (id, created) = (self.id.clone(), self.created);
        Document { id, object, created, model: crate::MODEL, choices, usage }
    }
}
