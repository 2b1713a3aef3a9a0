//! Tokenizers: SentencePiece models.

use std::path::Path;

use prost::Message;

use crate::error::{Error, Result};

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<Piece>,
}

#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(string, optional, tag = "1")]
    piece: Option<String>,
    #[prost(float, optional, tag = "2")]
    score: Option<f32>,
    #[prost(int32, optional, tag = "3")]
    kind: Option<i32>,
}

/// A SentencePiece model.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    model: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Tokenizer {
    /// Reads a tokenizer file.
    pub fn load(path: &Path) -> Result<Self> {
        let model = std::fs::read(path).map_err(|error| Error::unreadable(path, &error))?;
        let proto = ModelProto::decode(&*model)
            .map_err(|error| Error::format(path, format!("is not a SentencePiece model ({error})")))?;
        if proto.pieces.is_empty() {
            return Err(Error::format(path, "is not a SentencePiece model, or one without pieces"));
        }
        Ok(Self { model, pieces: proto.pieces })
    }

    /// Its file's content.
    pub fn model(&self) -> &[u8] {
        &self.model
    }

    /// Pieces in all.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }
}
