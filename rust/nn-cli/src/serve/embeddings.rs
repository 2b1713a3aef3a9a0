//! How the answers of /v1/embeddings are written.

use nn_core::infer::Event;

use super::answers::Writing;
use super::api::ApiError;
use super::log;
use super::logprobs::TokenNames;
use super::wire::Json;

/// How a vector is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Numbers,
    /// Of f32, the lowest byte first.
    Base64,
}

impl Encoding {
    fn json(self, vector: &[f32]) -> Json {
        match self {
            Self::Numbers => Json::List(vector.iter().copied().map(Json::Float).collect()),
            Self::Base64 => {
                Json::Text(base64(&vector.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>()))
            }
        }
    }
}

/// Writes the vectors of texts.
#[derive(Debug)]
pub(super) struct VectorWriter {
    encoding: Encoding,
    model: String,
    prompt_tokens: usize,
}

impl VectorWriter {
    pub(super) fn new(encoding: Encoding, model: &str, prompt_tokens: usize) -> Self {
        Self { encoding, model: model.to_owned(), prompt_tokens }
    }
}

impl Writing for VectorWriter {
    fn id(&self) -> &str {
        ""
    }

    fn tokens(&self) -> usize {
        0
    }

    // Vectors are never streamed.
    fn parts(&mut self, _: usize, _: Event, _: &TokenNames) -> String {
        String::new()
    }

    fn counts(&self) -> String {
        String::new()
    }

    fn whole(&mut self, texts: Vec<Vec<Event>>, _: &TokenNames) -> Result<String, ApiError> {
        let mut data = Vec::new();
        for (index, mut events) in texts.into_iter().enumerate() {
            let vector = events.pop().and_then(|event| event.embedding);
            let Some(vector) = vector.filter(|vector| vector.iter().all(|number| number.is_finite())) else {
                log::message("error", "the model gives a text a vector that is not finite, which JSON cannot have");
                return Err(ApiError::new("internal_error", &[]));
            };
            let embedding = self.encoding.json(&vector);
            data.push(Json::object([
                ("object", "embedding".into()),
                ("index", index.into()),
                ("embedding", embedding),
            ]));
        }
        let used = self.prompt_tokens;
        let usage = Json::object([("prompt_tokens", used.into()), ("total_tokens", used.into())]);
        let whole = Json::object([
            ("object", "list".into()),
            ("data", Json::List(data)),
            ("model", self.model.as_str().into()),
            ("usage", usage),
        ]);
        Ok(whole.text())
    }

    fn failure(&mut self, error: &ApiError) -> String {
        error.body()
    }
}

/// (RFC 4648, section 4)
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_the_standard() {
        // RFC 4648, section 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xbf]), "+/+/");
    }
}
