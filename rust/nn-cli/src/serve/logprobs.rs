//! Log-probabilities in the forms of OpenAI's two routes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use nn_core::infer::{LanguageModel, TokenLogprobs};

use super::wire::Json;

/// What stands for a log-probability that is less, or that is none, as JSON has no infinity.
const LEAST: f32 = -9999.0;

/// A token and what came with it, `None` for the first one of a prompt.
pub(super) type Scored = (i32, Option<TokenLogprobs>);

/// What a token is called, how many characters it adds to a text, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    name: String,
    characters: usize,
    bytes: Vec<u8>,
}

/// The tokens of a vocabulary, each looked up once. A token is called by its text; by its bytes, as `bytes:\xe2`, where it is
/// a part of a character; and as the vocabulary calls it where it adds no text.
#[derive(Debug)]
pub(super) struct TokenNames {
    model: LanguageModel,
    known: Mutex<HashMap<i32, Token>>,
}

impl TokenNames {
    pub(super) fn new(model: LanguageModel) -> Self {
        Self { model, known: Mutex::default() }
    }

    fn get(&self, token: i32) -> Token {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(token).or_insert_with(|| self.look_up(token)).clone()
    }

    fn look_up(&self, token: i32) -> Token {
        let tokenizer = self.model.tokenizer().filter(|tokenizer| (token as usize) < tokenizer.vocab_size());
        let unnamed = || Token { name: format!("token_id:{token}"), characters: 0, bytes: Vec::new() };
        let Some(tokenizer) = tokenizer else { return unnamed() };
        let (text, bytes) = tokenizer.added(token);
        let name = if bytes != text.as_bytes() {
            bytes.iter().fold("bytes:".to_owned(), |name, byte| name + &format!("\\x{byte:02x}"))
        } else if text.is_empty() {
            tokenizer.piece(token).unwrap_or_default().to_owned()
        } else {
            text.clone()
        };
        Token { name, characters: text.chars().count(), bytes }
    }
}

/// A log-probability that JSON can have.
fn finite(logprob: f32) -> Json {
    Json::Float(if logprob > LEAST { logprob + 0.0 } else { LEAST }) // the sum makes -0 a 0
}

/// Those of the next tokens of a text of /v1/completions, whose texts begin at `offset`, which moves on. Of alternatives with
/// the same name the likeliest stands; the token itself is among them.
pub(super) fn of_completion(names: &TokenNames, tokens: &[Scored], offset: &mut usize) -> Json {
    let (mut called, mut logprobs, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (token, scores) in tokens {
        let known = names.get(*token);
        called.push(Json::Text(known.name));
        offsets.push((*offset).into());
        *offset += known.characters;
        let Some(scores) = scores else {
            logprobs.push(Json::Null);
            tops.push(Json::Null);
            continue;
        };
        logprobs.push(finite(scores.logprob));
        let mut top: Vec<(String, Json)> = Vec::new();
        for (one, logprob) in scores.top.iter().copied().chain([(*token, scores.logprob)]) {
            let name = names.get(one).name;
            if top.iter().all(|(known, _)| *known != name) {
                top.push((name, finite(logprob)));
            }
        }
        tops.push(Json::Object(top));
    }
    let [called, logprobs, tops, offsets] = [called, logprobs, tops, offsets].map(Json::List);
    Json::object([("tokens", called), ("token_logprobs", logprobs), ("top_logprobs", tops), ("text_offset", offsets)])
}

/// Those of the next tokens of an answer of /v1/chat/completions.
pub(super) fn of_chat(names: &TokenNames, tokens: &[Scored]) -> Json {
    Json::object([("content", Json::List(entries_of(names, tokens))), ("refusal", Json::Null)])
}

/// Those of the next tokens of an answer, one for each.
pub(super) fn entries_of(names: &TokenNames, tokens: &[Scored]) -> Vec<Json> {
    let entry = |token: i32, logprob: f32| {
        let known = names.get(token);
        let bytes = known.bytes.into_iter().map(|byte| usize::from(byte).into()).collect();
        vec![
            ("token".to_owned(), Json::Text(known.name)),
            ("logprob".to_owned(), finite(logprob)),
            ("bytes".to_owned(), Json::List(bytes)),
        ]
    };
    // An answer has no prompt, so each token has one.
    let scored = tokens.iter().filter_map(|(token, scores)| Some((*token, scores.as_ref()?)));
    let whole = |(token, scores): (i32, &TokenLogprobs)| {
        let top = scores.top.iter().map(|(one, logprob)| Json::Object(entry(*one, *logprob))).collect();
        let mut whole = entry(token, scores.logprob);
        whole.push(("top_logprobs".to_owned(), Json::List(top)));
        Json::Object(whole)
    };
    scored.map(whole).collect()
}
