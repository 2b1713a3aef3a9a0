//! The unigram language model: of all ways to cut a text, the one whose pieces' scores have the largest sum.
//! (Kudo 2018, "Subword Regularization", section 3.2; Viterbi 1967)

use super::model_file::{Kind, Piece};
use super::trie::Trie;
use super::{Cut, character_length};

/// How much worse than the worst piece an unknown character is.
const UNKNOWN_PENALTY: f32 = 10.0;
/// What a user-defined piece gains for each byte after its first, so that it is taken rather than what it consists of:
/// scores of other pieces are logarithms of probabilities, thus negative.
const USER_DEFINED_GAIN: f64 = 0.1;

#[derive(Debug, Clone)]
pub(super) struct Unigram {
    pieces: Trie,
    /// None: not given out.
    scores: Vec<Option<f32>>,
    unknown: usize,
    unknown_score: f32,
}

/// The best way to cut the text before a place.
#[derive(Clone, Copy)]
struct Best {
    score: f32,
    /// Where its last piece begins, and which it is; None while no way is known.
    last: Option<(usize, usize)>,
}

impl Unigram {
    pub(super) fn new(pieces: &[Piece], unknown: usize) -> Self {
        let text = pieces.iter().enumerate().filter(|(_, piece)| piece.kind.is_text());
        let normal = pieces.iter().filter(|piece| piece.kind == Kind::Normal).map(|piece| piece.score);
        Self {
            pieces: Trie::new(text.map(|(id, piece)| (piece.text.as_bytes(), id)).collect()),
            scores: pieces
                .iter()
                .map(|piece| match piece.kind {
                    Kind::UserDefined => Some(((piece.text.len() - 1) as f64 * USER_DEFINED_GAIN) as f32),
                    Kind::Unused => None,
                    _ => Some(piece.score),
                })
                .collect(),
            unknown,
            unknown_score: normal.fold(f32::MAX, f32::min) - UNKNOWN_PENALTY,
        }
    }

    /// Cuts a text. Sums are in f32 and, of equally good ways, the one whose last piece is longest stays, so that
    /// ids are SentencePiece's.
    pub(super) fn cut(&self, text: &[u8]) -> Vec<Cut> {
        let mut best = vec![Best { score: 0.0, last: None }; text.len() + 1];
        let mut start = 0;
        while start < text.len() {
            let before = best[start].score;
            let character = character_length(text[start]).min(text.len() - start);
            let mut character_is_known = false;
            let mut node = Trie::ROOT;
            for (length, &byte) in (1..).zip(&text[start..]) {
                let Some(next) = self.pieces.step(node, byte) else { break };
                node = next;
                let Some(id) = self.pieces.value(node) else { continue };
                let Some(score) = self.scores[id] else { continue };
                best[start + length].offer(score + before, start, id);
                character_is_known |= length == character;
            }
            if !character_is_known {
                best[start + character].offer(self.unknown_score + before, start, self.unknown);
            }
            start += character;
        }
        let mut cuts = Vec::new();
        let mut end = text.len();
        while let Some((start, id)) = best[end].last {
            cuts.push(Cut { length: end - start, id });
            end = start;
        }
        cuts.reverse();
        cuts
    }
}

impl Best {
    fn offer(&mut self, score: f32, start: usize, id: usize) {
        if self.last.is_none() || score > self.score {
            *self = Self { score, last: Some((start, id)) };
        }
    }
}
