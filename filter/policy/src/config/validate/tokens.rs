//! How a model's prompts are counted: its tokenizer and its template.

use super::{Faults, Fields};
use crate::config::Tokenizer;
use crate::request::Effort;
use crate::tokens::{Template, vocabulary_is_built_in};

/// Most tokens of one part of a template: more than any context holds.
const MAX_PART: u32 = 1_000_000;

pub(super) fn tokens(model: &mut Fields, faults: &mut Faults) -> (Tokenizer, Template) {
    let named = model.text("tokenizer", faults);
    let base = named.as_deref().map_or(Template::GENERIC, Template::of_tokenizer);
    let tokenizer = match named {
        None => Tokenizer::Estimate,
        Some(name) if name == "estimate" => Tokenizer::Estimate,
        Some(name) => {
            if !vocabulary_is_built_in(&name) {
                faults.add(
                    model.path("tokenizer"),
                    "must be estimate, or a vocabulary this module was built with; \
                     it was built without this one",
                );
            }
            Tokenizer::Vocabulary(name)
        }
    };
    let template = model.object("template", faults).map(|fields| template(fields, &base, faults));
    (tokenizer, template.unwrap_or(base))
}

fn template(mut fields: Fields, base: &Template, faults: &mut Faults) -> Template {
    let mut template = match fields.text("like", faults).as_deref() {
        None => base.clone(),
        Some("generic") => Template::GENERIC,
        Some("deepseek-v4") => Template::DEEPSEEK_V4,
        Some(_) => {
            faults.add(fields.path("like"), "must be generic or deepseek-v4");
            base.clone()
        }
    };
    for (field, part) in [
        ("start", &mut template.start),
        ("prompt_start", &mut template.prompt_start),
        ("user", &mut template.user),
        ("reply", &mut template.reply),
        ("assistant_end", &mut template.assistant_end),
        ("tools", &mut template.tools),
        ("high_effort", &mut template.high_effort),
        ("max_effort", &mut template.max_effort),
        ("image_tokens", &mut template.image),
        ("audio_tokens", &mut template.audio),
    ] {
        if let Some(tokens) = fields.number(field, 0, MAX_PART, faults) {
            *part = u64::from(tokens);
        }
    }
    if let Some(thinking) = fields.flag("thinking", faults) {
        template.thinking = thinking;
    }
    template.effort = match fields.text("reasoning_effort", faults).as_deref() {
        None => template.effort,
        Some("none") => Some(Effort::None),
        Some("low") => Some(Effort::Low),
        Some("high") => Some(Effort::High),
        Some("max") => Some(Effort::Max),
        Some(_) => {
            faults.add(fields.path("reasoning_effort"), "must be none, low, high or max");
            None
        }
    };
    fields.finish(faults);
    template
}
