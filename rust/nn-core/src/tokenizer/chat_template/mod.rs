//! Chat templates: how the turns of a conversation become the text that a model was trained on.
//!
//! A template is a program in Jinja from a file of strangers. `minijinja` runs it, which has no way out of its values and
//! stops when its fuel is spent: a measure of steps and of the memory that they ask for. Two things cost no fuel: what is
//! done with a list that has another twice, and that one another, and so on, which is small and stands for a great deal;
//! and the stack that a list takes which has another, and that one another, thousands of times. Programs that run models of
//! strangers therefore render apart: see [`render_templates_apart`].
//! (<https://huggingface.co/docs/transformers/chat_templating>)

mod apart;
mod python;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value as Held};
use serde::Serialize;

use super::folder::{optional_json, token_name};
pub use apart::{answer_template, render_templates_apart};

use super::gguf::{Metadata, MetadataValue};
use super::{Encoding, TextTokenizer};
use crate::error::{Error, Result};
use crate::format::limits::TEMPLATE_BYTES;
use crate::format::{Table, Value, present, read_regular};

/// For models without a template: each turn as `User: …` or `Assistant: …` on its own line, the system's text above.
const PLAIN: &str = concat!(
    "{%- for message in messages -%}",
    "{%- if message['role'] == 'system' -%}{{ message['content'] + '\\n\\n' }}",
    "{%- else -%}{{ message['role'] | capitalize + ': ' + message['content'] + '\\n' }}",
    "{%- endif -%}{%- endfor -%}",
    "{%- if add_generation_prompt -%}{{ 'Assistant:' }}{%- endif -%}",
);

/// Characters of a template, and of a text that one writes: about a million tokens.
const LONGEST_TEMPLATE: usize = 1 << 20;
const LONGEST_TEXT: usize = 1 << 22;

/// A step costs one, and so do 64 bytes that it makes: half a gibibyte at most, and about two seconds.
const FUEL: u64 = 1 << 23;

const NAME: &str = "chat template";

/// A template, ready to render. Threads may share one.
#[derive(Debug)]
pub struct ChatTemplate {
    source: PathBuf,
    plain: bool,
    template: String,
    begin: String,
    end: String,
    /// The compiled template, or why there is none: models are used for other texts as well.
    compiled: std::result::Result<Environment<'static>, String>,
}

/// How a conversation becomes text.
#[derive(Debug, Clone)]
pub struct Rendering {
    /// Whether the turn of the model is opened.
    pub add_generation_prompt: bool,
    /// Further variables that the template asks for, such as `tools` or `enable_thinking`.
    pub variables: Table,
}

impl Default for Rendering {
    fn default() -> Self {
        Self { add_generation_prompt: true, variables: Table::new() }
    }
}

impl ChatTemplate {
    /// A template, or a plain one for none. `begin` and `end` are the names of the tokens that it knows as `bos_token` and
    /// `eos_token`; `source` is what errors name. `Error::Format` for a template that is too long.
    pub fn new(template: Option<String>, source: impl AsRef<Path>, begin: &str, end: &str) -> Result<Self> {
        let source = source.as_ref().to_owned();
        let plain = template.is_none();
        let template = template.unwrap_or_else(|| PLAIN.to_owned());
        let length = template.chars().count();
        if length > LONGEST_TEMPLATE {
            let problem = format!("has {length} characters; it may have at most {LONGEST_TEMPLATE}");
            return Err(Error::format(source, format!("the chat template {problem}")));
        }
        let compiled = compile(&template);
        Ok(Self { source, plain, template, begin: begin.to_owned(), end: end.to_owned(), compiled })
    }

    /// The template of a folder: chat_template.jinja, or that of tokenizer_config.json (the default of several).
    /// `Error::Format` when it is wrong.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let described = optional_json(&folder.join("tokenizer_config.json"))?;
        let template = template_of_folder(folder, &described)?;
        Self::new(template, folder, token_name(&described, "bos_token"), token_name(&described, "eos_token"))
    }

    /// The template in the metadata of a GGUF file, whose tokens a tokenizer names. `Error::Format` when it is wrong.
    pub fn from_gguf(metadata: &dyn Metadata, tokenizer: &TextTokenizer, source: impl AsRef<Path>) -> Result<Self> {
        let template = match metadata.value("tokenizer.chat_template") {
            None => None,
            Some(MetadataValue::Text(text)) => Some(text.to_owned()),
            Some(_) => return Err(Error::format(source, "tokenizer.chat_template is not a string")),
        };
        let end = match metadata.value("tokenizer.ggml.eos_token_id") {
            Some(MetadataValue::Whole(id)) => i32::try_from(id).ok().and_then(|id| tokenizer.piece(id)),
            _ => None,
        };
        let begin = tokenizer.begin_id().and_then(|id| tokenizer.piece(id));
        Self::new(template, source, begin.unwrap_or_default(), end.unwrap_or_default())
    }

    /// The template itself.
    pub fn text(&self) -> &str {
        &self.template
    }

    /// Whether the model has no template of its own.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// The name of the token that it knows as `eos_token`; empty for none.
    pub fn end(&self) -> &str {
        &self.end
    }

    /// The text of a conversation. Each message has `role` and `content`, and what else the template looks for.
    /// `Error::Format` when the template fails, or takes too many steps, too much memory or text.
    pub fn render<M: Serialize>(&self, messages: &[M], how: &Rendering) -> Result<String> {
        let failed = |problem: String| Error::format(&self.source, format!("the chat template {problem}"));
        let compiled = self.compiled.as_ref().map_err(|problem| failed(problem.clone()))?;
        let variables = how.variables.iter().map(|(name, value)| (name.to_owned(), Held::from(Serde(value))));
        let tokens = [("bos_token", &self.begin), ("eos_token", &self.end)];
        let mut values: BTreeMap<String, Held> =
            tokens.into_iter().map(|(name, token)| (name.to_owned(), Held::from(token.as_str()))).collect();
        // Templates are written for transformers, which gives them all of these.
        values.extend(["tools", "documents"].map(|name| (name.to_owned(), Held::from(()))));
        values.extend(variables);
        values.insert("messages".to_owned(), Held::from(Serde(messages)));
        values.insert("add_generation_prompt".to_owned(), how.add_generation_prompt.into());
        match apart::program() {
            Some(program) => apart::ask(program, &self.template, &values).map_err(failed),
            None => rendered(compiled, Held::from(values)).map_err(failed),
        }
    }

    /// Ids of the rendered text, its control tokens recognised; the begin id once, where the tokenizer adds it or the
    /// template wrote it. Errors as of `render` and of the tokenizer.
    pub fn ids<M: Serialize>(&self, tokenizer: &TextTokenizer, messages: &[M], how: &Rendering) -> Result<Vec<i32>> {
        let text = self.render(messages, how)?;
        // A plain template writes no begin, but strangers may write its name.
        let written = !self.plain && !self.begin.is_empty() && text.starts_with(&self.begin);
        tokenizer.encode(&text, Encoding { begin: tokenizer.adds_begin() && !written, special: !self.plain })
    }
}

fn compile(template: &str) -> std::result::Result<Environment<'static>, String> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|error| python::described(&error))?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    python::equip(&mut environment);
    let added = environment.add_template_owned(NAME, python::without_generation_marks(template));
    added.map_err(|error| python::described(&error))?;
    Ok(environment)
}

/// The text, or what a sentence about the template says of it.
fn rendered(compiled: &Environment<'static>, values: Held) -> std::result::Result<String, String> {
    let template = compiled.get_template(NAME).map_err(|error| python::described(&error))?;
    let mut text = Text { bytes: Vec::new(), left: LONGEST_TEXT };
    match template.render_captured_to(values, &mut text).map(drop) {
        Ok(()) => Ok(String::from_utf8_lossy(&text.bytes).into_owned()),
        Err(_) if text.left == 0 => Err(format!("writes more than {LONGEST_TEXT} characters")),
        Err(error) => Err(python::described(&error)),
    }
}

fn template_of_folder(folder: &Path, described: &Table) -> Result<Option<String>> {
    let path = folder.join("chat_template.jinja");
    if present(&path) {
        let text = String::from_utf8(read_regular(&path, TEMPLATE_BYTES)?);
        return text.map(Some).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Error::format(path, format!("is not UTF-8 (at byte {at})"))
        });
    }
    let path = folder.join("tokenizer_config.json");
    let template = match described.get("chat_template") {
        Some(Value::List(several)) => {
            let mut named = several.iter().filter_map(Value::as_table);
            let default = named.find(|entry| entry.get("name").and_then(Value::as_text) == Some("default"));
            let default = default
                .ok_or_else(|| Error::format(&path, "has several chat templates, none of them named 'default'"))?;
            default.get("template")
        }
        other => other,
    };
    match template {
        None | Some(Value::None) => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Error::format(path, "chat_template is neither a string nor a list of named ones")),
    }
}

/// What a template writes, up to its limit.
struct Text {
    bytes: Vec<u8>,
    /// Characters; none once there were too many.
    left: usize,
}

impl Write for Text {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let characters = part.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
        if characters > self.left {
            self.left = 0;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.left -= characters;
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
