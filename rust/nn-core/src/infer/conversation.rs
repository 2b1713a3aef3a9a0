//! A conversation with a model: its history, and what of it the model sees.

use serde::Serialize;

use super::events::{Canceller, Generation};
use super::language_model::{GenerateOptions, LanguageModel};
use super::sampling::Sampling;
use crate::error::{Error, Result};

/// The part of the context that is kept free for an answer, where the history could fill it all: one in so many.
const ROOM: usize = 8;

/// A turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// "system", "user" or "assistant".
    pub role: String,
    /// What was said.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.to_owned(), content: content.into() }
    }
}

/// Turns of a user and a model in the form of the model's chat template.
///
/// A turn costs the tokens that are new in it, since the model's cache holds the others, as long as the template gives them
/// back unchanged.
#[derive(Debug)]
pub struct Conversation {
    /// What the system says before the first turn.
    pub system: Option<String>,
    model: LanguageModel,
    sampling: Sampling,
    max_new_tokens: Option<usize>,
    messages: Vec<Message>,
    left_out: usize,
    turns: i64,
}

impl Conversation {
    /// A conversation without turns yet. `max_new_tokens` is for each answer; by default an answer has what the context
    /// leaves it.
    pub fn new(
        model: LanguageModel,
        system: Option<String>,
        sampling: Sampling,
        max_new_tokens: Option<usize>,
    ) -> Self {
        Self { system, model, sampling, max_new_tokens, messages: Vec::new(), left_out: 0, turns: 0 }
    }

    /// The model.
    pub fn model(&self) -> &LanguageModel {
        &self.model
    }

    /// The whole history.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// How many of the messages, the oldest but that of the system, the model does not see any more, since the history no
    /// longer fits in the context.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Puts a short question into the model's template, as the first one would be, so that a conversation need not begin
    /// to find out that it cannot.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] when the template cannot be used, [`Error::Value`] when the model has no tokenizer.
    pub fn check(&self) -> Result<()> {
        let mut messages = self.head();
        messages.push(Message::new("user", "Hello"));
        self.model.chat_ids(&messages).map(drop)
    }

    /// Forgets all turns; the system's message stays.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.left_out = 0;
    }

    /// The answer to `text`, piece by piece. Both become part of the history when the answer is dropped, as far as it came;
    /// without an answer neither does. Turn n draws with seed + n.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when the text alone is too long, and what [`LanguageModel::chat`] says.
    pub fn answer(&mut self, text: &str) -> Result<Answer<'_>> {
        self.messages.push(Message::new("user", text));
        match self.begin() {
            Ok(generation) => Ok(Answer { conversation: self, generation, text: String::new() }),
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    fn begin(&mut self) -> Result<Generation> {
        let visible = self.visible()?;
        let mut sampling = self.sampling.clone();
        sampling.seed = sampling.seed.wrapping_add(self.turns);
        self.turns += 1;
        let options = GenerateOptions { max_new_tokens: self.max_new_tokens, sampling, ..GenerateOptions::default() };
        self.model.chat(&visible, &options)
    }

    /// The messages that the model sees: the system's and the newest exchanges that leave room for an answer.
    fn visible(&mut self) -> Result<Vec<Message>> {
        let context = self.model.context();
        let room = self.max_new_tokens.unwrap_or(context / ROOM);
        loop {
            let mut visible = self.head();
            visible.extend_from_slice(&self.messages[self.left_out..]);
            let length = self.model.chat_ids(&visible)?.len();
            let last = self.left_out + 2 >= self.messages.len();
            if length + room <= context || (last && length <= context) {
                return Ok(visible); // the last question with what room there is
            }
            if last {
                return Err(Error::value(format!(
                    "the message and the system message have {length} tokens; the context has room for {context}"
                )));
            }
            self.left_out += 2; // a question and its answer
        }
    }

    fn head(&self) -> Vec<Message> {
        self.system.iter().map(|text| Message::new("system", text)).collect()
    }
}

/// An answer as it comes.
#[derive(Debug)]
#[must_use = "dropping it ends the answer"]
pub struct Answer<'c> {
    conversation: &'c mut Conversation,
    generation: Generation,
    text: String,
}

impl Answer<'_> {
    /// Ends the answer before its next token, from whatever thread.
    pub fn canceller(&self) -> Canceller {
        self.generation.canceller()
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.generation.next()? {
                Err(error) => return Some(Err(error)),
                Ok(event) if event.text.is_empty() => {}
                Ok(event) => {
                    self.text.push_str(&event.text);
                    return Some(Ok(event.text));
                }
            }
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        // Without the space that begins most answers: templates write it themselves, or the model does again.
        match self.text.trim() {
            "" => drop(self.conversation.messages.pop()),
            text => self.conversation.messages.push(Message::new("assistant", text)),
        }
    }
}
