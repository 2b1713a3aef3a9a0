//! Byte-pair encoding: neighbours are merged, best piece first, until no two neighbours make a piece.
//! (Sennrich, Haddow, Birch 2016, "Neural Machine Translation of Rare Words with Subword Units", section 3.2)

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::model_file::{Kind, Piece};
use super::trie::Trie;
use super::{Cut, character_length};

#[derive(Debug, Clone)]
pub(super) struct Bpe {
    pieces: Trie,
    scores: Vec<f32>,
    unused: Vec<bool>,
    /// Pieces that are never cut, nor merged.
    whole: Trie,
    unknown: usize,
}

/// A part of the text, linked to its neighbours; it is empty once it was merged into the one before it.
struct Part {
    start: usize,
    end: usize,
    previous: Option<usize>,
    next: Option<usize>,
    frozen: bool,
}

/// Two neighbours that make a piece.
struct Merge {
    score: f32,
    left: usize,
    right: usize,
    length: usize,
}

impl Bpe {
    pub(super) fn new(pieces: &[Piece], unknown: usize, whole: Trie) -> Self {
        let text = pieces.iter().enumerate().filter(|(_, piece)| piece.kind.is_text());
        Self {
            pieces: Trie::new(text.map(|(id, piece)| (piece.text.as_bytes(), id)).collect()),
            scores: pieces.iter().map(|piece| piece.score).collect(),
            unused: pieces.iter().map(|piece| piece.kind == Kind::Unused).collect(),
            whole,
            unknown,
        }
    }

    /// Cuts a text. Of equally good merges the leftmost is made first, as in SentencePiece.
    pub(super) fn cut(&self, text: &[u8]) -> Vec<Cut> {
        let mut parts = self.parts(text);
        let mut merges = BinaryHeap::new();
        // Where the left half ends of what was merged, or might have been, into a piece that is not given out.
        let mut halves: HashMap<&[u8], usize> = HashMap::new();
        for right in 1..parts.len() {
            self.offer(text, &parts, Some(right - 1), Some(right), &mut merges, &mut halves);
        }
        while let Some(Merge { left, right, length, .. }) = merges.pop() {
            let (start, end) = (parts[left].start, parts[right].end);
            // Either half may have been merged with another part since this merge was found.
            let stale = parts[left].is_empty() || parts[right].is_empty();
            if stale || parts[left].length() + parts[right].length() != length {
                continue;
            }
            let next = parts[right].next;
            parts[left].end = end;
            parts[left].next = next;
            parts[right].start = end;
            if let Some(next) = next {
                parts[next].previous = Some(left);
            }
            debug_assert_eq!(end - start, length);
            self.offer(text, &parts, parts[left].previous, Some(left), &mut merges, &mut halves);
            self.offer(text, &parts, Some(left), next, &mut merges, &mut halves);
        }
        let mut cuts = Vec::new();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            self.divide(&text[part.start..part.end], &halves, &mut cuts);
        }
        cuts
    }

    /// Characters and user-defined pieces.
    fn parts(&self, text: &[u8]) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut start = 0;
        while start < text.len() {
            let whole = self.whole.longest(&text[start..]);
            let length = whole.unwrap_or_else(|| character_length(text[start]).min(text.len() - start));
            let index = parts.len();
            let end = start + length;
            let next = (end < text.len()).then_some(index + 1);
            parts.push(Part { start, end, previous: index.checked_sub(1), next, frozen: whole.is_some() });
            start = end;
        }
        parts
    }

    fn offer<'a>(
        &self,
        text: &'a [u8],
        parts: &[Part],
        left: Option<usize>,
        right: Option<usize>,
        merges: &mut BinaryHeap<Merge>,
        halves: &mut HashMap<&'a [u8], usize>,
    ) {
        let (Some(left), Some(right)) = (left, right) else { return };
        if parts[left].frozen || parts[right].frozen {
            return;
        }
        let piece = &text[parts[left].start..parts[right].end];
        let Some(id) = self.pieces.get(piece) else { return };
        merges.push(Merge { score: self.scores[id], left, right, length: piece.len() });
        if self.unused[id] {
            halves.insert(piece, parts[left].length());
        }
    }

    /// The piece of a part or, where that is not given out, the pieces that it was merged from. A character whose piece
    /// is not given out is unknown.
    fn divide(&self, part: &[u8], halves: &HashMap<&[u8], usize>, cuts: &mut Vec<Cut>) {
        let mut waiting = vec![part];
        while let Some(part) = waiting.pop() {
            let id = self.pieces.get(part).unwrap_or(self.unknown);
            match halves.get(part) {
                Some(&half) if self.unused[id] => waiting.extend([&part[half..], &part[..half]]),
                _ if self.unused[id] => cuts.push(Cut { length: part.len(), id: self.unknown }),
                _ => cuts.push(Cut { length: part.len(), id }),
            }
        }
    }
}

impl Part {
    fn length(&self) -> usize {
        self.end - self.start
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

impl Ord for Merge {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest. Scores are numbers: a file with others was refused.
        self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Merge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Merge {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Merge {}
