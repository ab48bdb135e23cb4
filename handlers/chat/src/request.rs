//! The requests of clients. Every parameter is checked, and an error names it; parameters without
//! an effect are refused.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::generate::Settings;
use crate::refusal::Refusal;
use crate::tokens::tokenize;

const MAX_TOKENS: RangeInclusive<u64> = 1..=4096;
const MAX_TOKENS_DEFAULT: usize = 256;
const TEMPERATURE: RangeInclusive<f64> = 0.0..=2.0;
const STOPS_MAX: usize = 4;

/// Parameters that have an effect, or do not change the text.
const SUPPORTED: &str = "messages or prompt, model, max_tokens, max_completion_tokens, temperature, \
     seed, stop, stream, stream_options, user, metadata and store";

/// The text route of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Chat,
    Completion,
}

/// A request that was checked.
pub struct Request {
    /// The subject of the text: the last message of the user, or the prompt.
    pub prompt: String,
    /// Number of tokens of all messages.
    pub prompt_tokens: usize,
    pub settings: Settings,
    pub is_stream: bool,
    pub include_usage: bool,
}

impl Request {
    /// Checks the body of a request.
    pub fn parse(kind: Kind, body: &Map<String, Value>) -> Result<Self, Refusal> {
        check_names(kind, body)?;
        let fields = Fields(body);
        match fields.get("model") {
            Some(Value::String(name)) if name == crate::MODEL => {}
            Some(Value::String(name)) => return Err(Refusal::unknown_model(name)),
            _ => return Err(Refusal::invalid("model", "`model` must be a string")),
        }
        let (prompt, prompt_tokens) = match kind {
            Kind::Chat => messages(&fields)?,
            Kind::Completion => {
                let prompt = prompt(&fields)?;
                (prompt.to_owned(), tokenize(prompt).count())
            }
        };
        let is_stream = fields.boolean("stream")?;
        Ok(Self {
            prompt,
            prompt_tokens,
            settings: settings(&fields)?,
            is_stream,
            include_usage: include_usage(&fields, is_stream)?,
        })
    }
}

/// Refuses parameters that would otherwise be ignored.
fn check_names(kind: Kind, body: &Map<String, Value>) -> Result<(), Refusal> {
    let input = if kind == Kind::Chat { "messages" } else { "prompt" };
    for (name, value) in body {
        let is_supported = match name.as_str() {
            "model"
            | "max_tokens"
            | "max_completion_tokens"
            | "temperature"
            | "seed"
            | "stop"
            | "stream"
            | "stream_options"
            | "user"
            | "metadata"
            | "store" => true,
            // Only with the value of their default.
            "n" | "best_of" | "top_p" => value.as_f64() == Some(1.0),
            "presence_penalty" | "frequency_penalty" => value.as_f64() == Some(0.0),
            name => name == input,
        };
        if !is_supported && !value.is_null() {
            let message =
                format!("`{name}` is not supported with this value; supported: {SUPPORTED}");
            return Err(Refusal::invalid(name, message));
        }
    }
    Ok(())
}

fn settings(fields: &Fields<'_>) -> Result<Settings, Refusal> {
    let max_tokens = match fields.max_tokens("max_completion_tokens")? {
        None => fields.max_tokens("max_tokens")?,
        some => some,
    };
    Ok(Settings {
        max_tokens: max_tokens.unwrap_or(MAX_TOKENS_DEFAULT),
        temperature: fields.temperature()?,
        seed: fields.seed()?,
        stop: stop(fields)?,
    })
}

fn include_usage(fields: &Fields<'_>, is_stream: bool) -> Result<bool, Refusal> {
    match fields.get("stream_options") {
        None => Ok(false),
        Some(Value::Object(options)) if is_stream => Fields(options).boolean("include_usage"),
        Some(_) => {
            let message = "`stream_options` must be an object, and only with `stream`: true";
            Err(Refusal::invalid("stream_options", message))
        }
    }
}

fn prompt<'a>(fields: &Fields<'a>) -> Result<&'a str, Refusal> {
    let prompt = match fields.get("prompt") {
        Some(Value::Array(prompts)) if prompts.len() == 1 => prompts.first(),
        other => other,
    };
    let message = "`prompt` must be a string, or a list of one string";
    prompt.and_then(Value::as_str).ok_or_else(|| Refusal::invalid("prompt", message))
}

/// The last message of the user, and the number of tokens of all messages.
fn messages(fields: &Fields<'_>) -> Result<(String, usize), Refusal> {
    let messages = fields.get("messages").and_then(Value::as_array);
    let messages = messages.filter(|messages| !messages.is_empty()).ok_or_else(|| {
        Refusal::invalid("messages", "`messages` must be a list of at least one message")
    })?;
    let (mut last, mut tokens) = (String::new(), 0);
    for (index, message) in messages.iter().enumerate() {
        let invalid = |field: &str, message: &str| {
            let param = format!("messages[{index}].{field}");
            Refusal::invalid(&param, format!("`{param}` must be {message}"))
        };
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        if !["developer", "system", "user", "assistant"].contains(&role) {
            return Err(invalid("role", "developer, system, user or assistant"));
        }
        let text = message.get("content").and_then(text_of);
        let text = text.ok_or_else(|| invalid("content", "a string, or a list of text parts"))?;
        tokens += tokenize(&text).count();
        if role == "user" {
            last = text;
        }
    }
    Ok((last, tokens))
}

/// The text of a message's content; `None` if it contains anything else.
fn text_of(content: &Value) -> Option<String> {
    let Value::Array(parts) = content else { return content.as_str().map(str::to_owned) };
    let texts = parts.iter().map(|part| {
        let is_text = part.get("type").and_then(Value::as_str) == Some("text");
        part.get("text").and_then(Value::as_str).filter(|_| is_text)
    });
    Some(texts.collect::<Option<Vec<_>>>()?.join("\n"))
}

fn stop(fields: &Fields<'_>) -> Result<Vec<String>, Refusal> {
    let stops = match fields.get("stop") {
        None => return Ok(vec![]),
        Some(Value::Array(stops)) => stops.iter().map(Value::as_str).collect(),
        Some(stop) => stop.as_str().map(|stop| vec![stop]),
    };
    let stops =
        stops.filter(|stops| stops.len() <= STOPS_MAX && stops.iter().all(|stop| !stop.is_empty()));
    let message = format!("`stop` must be a string or a list of at most {STOPS_MAX}, none empty");
    let stops = stops.ok_or_else(|| Refusal::invalid("stop", message))?;
    Ok(stops.into_iter().map(str::to_owned).collect())
}

/// The parameters of a body. A null parameter counts as missing.
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn boolean(&self, name: &str) -> Result<bool, Refusal> {
        let Some(value) = self.get(name) else { return Ok(false) };
        let message = format!("`{name}` must be true or false");
        value.as_bool().ok_or_else(|| Refusal::invalid(name, message))
    }

    fn max_tokens(&self, name: &str) -> Result<Option<usize>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_u64().filter(|number| MAX_TOKENS.contains(number));
        let number = number.and_then(|number| usize::try_from(number).ok());
        let (min, max) = MAX_TOKENS.into_inner();
        let message = format!("`{name}` must be an integer from {min} to {max}");
        number.map(Some).ok_or_else(|| Refusal::invalid(name, message))
    }

    fn temperature(&self) -> Result<f64, Refusal> {
        let Some(value) = self.get("temperature") else { return Ok(1.0) };
        let number = value.as_f64().filter(|number| TEMPERATURE.contains(number));
        let message = "`temperature` must be a number from 0 to 2";
        number.ok_or_else(|| Refusal::invalid("temperature", message))
    }

    fn seed(&self) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.get("seed") else { return Ok(None) };
        let number = value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
        let message = "`seed` must be an integer of at most 64 bits";
        number.map(Some).ok_or_else(|| Refusal::invalid("seed", message))
    }
}
