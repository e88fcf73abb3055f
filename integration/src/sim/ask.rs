//! From a body to what the engine is asked for, with the engine's own refusals on the way.

use serde_json::Value;

use super::config::{Counting, SimConfig};
use super::lax;
use super::reply::ApiError;

const KNOWN: &[&str] = &[
    "model",
    "messages",
    "prompt",
    "input",
    "system",
    "instructions",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "ignore_eos",
    "priority",
    "temperature",
];

/// Which inference API a request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Completions,
    Embeddings,
    Responses,
    Messages,
}

/// A valid request.
#[expect(clippy::struct_excessive_bools, reason = "they are the request's own flags")]
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) api: Api,
    pub(crate) prompt_tokens: usize,
    /// Tokens that each choice will have.
    pub(crate) output_tokens: usize,
    /// Whether the cap ends the output, rather than the end-of-sequence token.
    pub(crate) capped: bool,
    pub(crate) choices: usize,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    pub(crate) priority: i64,
}

impl Ask {
    /// Reads a request; `api` is `None` on the path that tells by the fields which API is meant.
    pub(crate) fn read(
        api: Option<Api>,
        body: &[u8],
        config: &SimConfig,
    ) -> Result<Self, ApiError> {
        let fields =
            lax::read(body, KNOWN).map_err(|err| ApiError::bad_body(&err.message, &err.param))?;
        let api = match api {
            Some(api) => api,
            None if fields.contains_key("messages") => Api::Chat,
            None if fields.contains_key("prompt") => Api::Completions,
            None if fields.contains_key("input") => Api::Embeddings,
            None => return Err(ApiError::bad_body("Field required", "body.messages")),
        };
        let fields = Reader { fields: &fields };
        let stream = fields.boolean("stream")?.unwrap_or(false) && api != Api::Embeddings;
        let (include_usage, continuous_usage) = fields.stream_options(stream)?;
        let prompt_tokens = fields.prompt_tokens(api, config.counting)?;
        let n = fields.int("n")?.unwrap_or(1);
        let choices = usize::try_from(n).ok().filter(|n| (1..=16_384).contains(n));
        let choices = choices.ok_or_else(|| ApiError::bad_value("n must be at least 1", "n"))?;
        fields.check_model(config)?;
        fields.check_temperature()?;
        let cap = match api {
            Api::Chat => fields.int("max_completion_tokens")?.or(fields.int("max_tokens")?),
            Api::Responses => fields.int("max_output_tokens")?,
            _ => fields.int("max_tokens")?,
        };
        let cap = check_lengths(prompt_tokens, cap, config)?;
        let ignore_eos = fields.boolean("ignore_eos")?.unwrap_or(false);
        let natural = if ignore_eos { usize::MAX } else { config.output_tokens };
        let output_tokens = match api {
            Api::Embeddings => 0,
            _ => cap.min(natural).max(1),
        };
        Ok(Self {
            api,
            prompt_tokens,
            output_tokens,
            capped: cap <= natural,
            choices: if api == Api::Embeddings { 1 } else { choices },
            stream,
            include_usage: include_usage || config.force_include_usage,
            continuous_usage: continuous_usage || config.force_include_usage,
            priority: fields.priority()?,
        })
    }
}

/// Tokens of the prompt in a `/tokenize` body, or of its messages.
pub(crate) fn count_for_tokenize(body: &[u8], counting: Counting) -> Result<usize, ApiError> {
    let fields =
        lax::read(body, KNOWN).map_err(|err| ApiError::bad_body(&err.message, &err.param))?;
    let reader = Reader { fields: &fields };
    let api = if fields.contains_key("messages") { Api::Chat } else { Api::Completions };
    reader.prompt_tokens(api, counting)
}

/// The output cap of each choice, after the engine's checks of lengths.
fn check_lengths(prompt: usize, cap: Option<i64>, config: &SimConfig) -> Result<usize, ApiError> {
    let max = config.max_model_len;
    if prompt >= max {
        let message = format!(
            "This model's maximum context length is {max} tokens. However, your request has \
             {prompt} input tokens. Please reduce the length of the input."
        );
        return Err(ApiError::bad_value(&message, "input_tokens"));
    }
    let Some(cap) = cap else {
        return Ok(max - prompt);
    };
    let cap = usize::try_from(cap).ok().filter(|&cap| cap >= 1);
    let cap =
        cap.ok_or_else(|| ApiError::bad_value("max_tokens must be at least 1", "max_tokens"))?;
    if cap > max {
        let message = format!("max_tokens={cap} is above the context length of {max} tokens");
        return Err(ApiError::bad_value(&message, "max_tokens"));
    }
    if prompt + cap > max {
        let message = format!(
            "This model's maximum context length is {max} tokens. However, you asked for {cap} \
             output tokens and your prompt has {prompt} input tokens."
        );
        return Err(ApiError::bad_value(&message, "input_tokens"));
    }
    Ok(cap)
}

/// Typed access to the fields; a wrong type is the engine's 400 with the field as `param`.
struct Reader<'a> {
    fields: &'a lax::Fields,
}

impl Reader<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn wrong(name: &str, wanted: &str) -> ApiError {
        ApiError::bad_body(&format!("Input should be {wanted}"), &format!("body.{name}"))
    }

    fn int(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = lax::int(value);
        number.map(Some).ok_or_else(|| Self::wrong(name, "a valid integer"))
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let flag = lax::boolean(value);
        flag.map(Some).ok_or_else(|| Self::wrong(name, "a valid boolean"))
    }

    /// Unlike the other numbers, a null is refused.
    fn priority(&self) -> Result<i64, ApiError> {
        match self.fields.get("priority") {
            None => Ok(0),
            Some(value) => {
                lax::int(value).ok_or_else(|| Self::wrong("priority", "a valid integer"))
            }
        }
    }

    fn check_model(&self, config: &SimConfig) -> Result<(), ApiError> {
        match self.get("model") {
            None => Ok(()),
            Some(Value::String(name)) if name.is_empty() || config.models.contains(name) => Ok(()),
            Some(Value::String(name)) => Err(ApiError::unknown_model(name, &config.models)),
            Some(_) => Err(Self::wrong("model", "a valid string")),
        }
    }

    fn check_temperature(&self) -> Result<(), ApiError> {
        let Some(value) = self.get("temperature") else {
            return Ok(());
        };
        let wrong = || Self::wrong("temperature", "a valid number");
        let temperature = lax::float(value).ok_or_else(wrong)?;
        if temperature.is_finite() && temperature >= 0.0 {
            return Ok(());
        }
        let message = format!("temperature must be non-negative, got {temperature}.");
        Err(ApiError::bad_value(&message, "temperature"))
    }

    fn stream_options(&self, stream: bool) -> Result<(bool, bool), ApiError> {
        let Some(value) = self.get("stream_options") else {
            return Ok((false, false));
        };
        let Some(options) = value.as_object() else {
            return Err(Self::wrong("stream_options", "a valid dictionary"));
        };
        if !stream {
            let message = "Stream options can only be defined when `stream=True`.";
            return Err(ApiError::bad_value(message, "stream_options"));
        }
        let flag = |name: &str| options.get(name).and_then(lax::boolean).unwrap_or(false);
        let include = flag("include_usage");
        // Continuous usage alone gives no usage at all.
        Ok((include, include && flag("continuous_usage_stats")))
    }

    fn prompt_tokens(&self, api: Api, counting: Counting) -> Result<usize, ApiError> {
        let required = |name: &str| {
            let missing = || ApiError::bad_body("Field required", &format!("body.{name}"));
            self.fields.get(name).ok_or_else(missing)
        };
        let content = |name: &str| {
            content_bytes(required(name)?)
                .ok_or_else(|| Self::wrong(name, "a valid string or list"))
        };
        match api {
            Api::Chat | Api::Messages => {
                let messages = required("messages")?.as_array();
                let messages = messages.ok_or_else(|| Self::wrong("messages", "a valid list"))?;
                let system = self.get("system").and_then(content_bytes).unwrap_or(0);
                let mut bytes = system + "assistant: ".len();
                for message in messages {
                    let wrong = || Self::wrong("messages", "a valid message");
                    let role = message.get("role").and_then(Value::as_str).ok_or_else(wrong)?;
                    let text = match message.get("content") {
                        None | Some(Value::Null) => 0,
                        Some(content) => content_bytes(content).ok_or_else(wrong)?,
                    };
                    bytes += role.len() + ": ".len() + text + "\n".len();
                }
                Ok(counting.tokens(bytes))
            }
            Api::Completions => text_or_ids(required("prompt")?, counting)
                .ok_or_else(|| Self::wrong("prompt", "a valid string or list")),
            Api::Embeddings => text_or_ids(required("input")?, counting)
                .ok_or_else(|| Self::wrong("input", "a valid string or list")),
            Api::Responses => {
                let extra = self.get("instructions").and_then(content_bytes).unwrap_or(0);
                Ok(counting.tokens(content("input")? + extra))
            }
        }
    }
}

/// Bytes of text in a string, or in a list of parts or items with `text` or `content`.
fn content_bytes(value: &Value) -> Option<usize> {
    match value {
        Value::String(text) => Some(text.len()),
        Value::Array(parts) => parts.iter().map(content_bytes).sum(),
        Value::Object(part) => Some(
            ["text", "content"]
                .iter()
                .filter_map(|name| part.get(*name).and_then(content_bytes))
                .sum(),
        ),
        _ => None,
    }
}

/// A prompt as text, token ids, or a list of either; several prompts count together.
fn text_or_ids(value: &Value, counting: Counting) -> Option<usize> {
    match value {
        Value::String(text) => Some(counting.tokens(text.len())),
        Value::Number(_) => Some(1),
        Value::Array(items) => items.iter().map(|item| text_or_ids(item, counting)).sum(),
        _ => None,
    }
}
