//! What is done to a text before it is cut: characters rewritten by a map, spaces added, removed and marked.

use super::model_file::NormalizerSpec;
use super::trie::Trie;
use super::{SPACE, first_character};

#[derive(Debug, Clone)]
pub(super) struct Normalizer {
    charsmap: Option<CharsMap>,
    /// Pieces that no rule touches.
    verbatim: Trie,
    dummy_prefix: bool,
    remove_extra_spaces: bool,
    space: &'static str,
    space_as_suffix: bool,
}

impl Normalizer {
    pub(super) fn new(spec: &NormalizerSpec, space_as_suffix: bool, verbatim: Trie) -> Result<Self, String> {
        Ok(Self {
            charsmap: match &spec.charsmap[..] {
                [] => None,
                map => Some(CharsMap::read(map).ok_or("its map of characters is damaged")?),
            },
            verbatim,
            dummy_prefix: spec.dummy_prefix,
            remove_extra_spaces: spec.remove_extra_spaces,
            space: if spec.escape_spaces { SPACE } else { " " },
            space_as_suffix,
        })
    }

    /// Prepares a text. What comes out is UTF-8 unless the map of characters says otherwise.
    pub(super) fn normalize(&self, mut text: &[u8]) -> Vec<u8> {
        if self.remove_extra_spaces {
            while let Some((b" ", used)) = self.first(text) {
                text = &text[used..];
            }
        }
        if text.is_empty() {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(text.len() + text.len() / 4 + SPACE.len());
        if self.dummy_prefix && !self.space_as_suffix {
            out.extend_from_slice(self.space.as_bytes());
        }
        let mut after_space = self.remove_extra_spaces;
        while let Some((mut part, used)) = self.first(text) {
            text = &text[used..];
            while let (true, Some(rest)) = (after_space, part.strip_prefix(b" ")) {
                part = rest;
            }
            for &byte in part {
                match byte {
                    b' ' => out.extend_from_slice(self.space.as_bytes()),
                    _ => out.push(byte),
                }
            }
            if let Some(&last) = part.last() {
                after_space = self.remove_extra_spaces && last == b' ';
            }
        }
        if self.remove_extra_spaces {
            while out.ends_with(self.space.as_bytes()) {
                out.truncate(out.len() - self.space.len());
            }
        }
        if self.dummy_prefix && self.space_as_suffix {
            out.extend_from_slice(self.space.as_bytes());
        }
        out
    }

    /// What the text's beginning becomes, and how many bytes of the text that is; None at the end of the text.
    fn first<'a>(&'a self, text: &'a [u8]) -> Option<(&'a [u8], usize)> {
        if text.is_empty() {
            return None;
        }
        if let Some(used) = self.verbatim.longest(text) {
            return Some((&text[..used], used));
        }
        if let Some(rule) = self.charsmap.as_ref().and_then(|map| map.longest_rule(text)) {
            return Some(rule);
        }
        match first_character(text) {
            Some(character) => Some((character, character.len())),
            None => Some(("\u{FFFD}".as_bytes(), 1)),
        }
    }
}

/// Rules that rewrite characters: a double-array trie of their left sides, whose values are places of right sides.
///
/// The array is as Darts-clone packs it: a unit of 32 bits holds the byte that leads to it (bits 0-7), whether a value
/// hangs on it (bit 8), and the offset of its children (bits 10-30, times 256 where bit 9 is set); the unit of a value
/// holds that in bits 0-30. (Aoe 1989, "An efficient digital search algorithm by using a double-array structure")
#[derive(Debug, Clone)]
struct CharsMap {
    units: Vec<u32>,
    /// The right sides, each ended by a zero.
    results: Vec<u8>,
}

impl CharsMap {
    /// Reads bytes of the array (their number first, 32 bits), then the right sides.
    fn read(map: &[u8]) -> Option<Self> {
        let (size, rest) = map.split_first_chunk()?;
        let size = usize::try_from(u32::from_le_bytes(*size)).ok()?;
        let (array, results) = rest.split_at_checked(size)?;
        let (units, odd) = array.as_chunks();
        let whole = !units.is_empty() && odd.is_empty() && results.last() == Some(&0);
        let units = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        whole.then(|| Self { units, results: results.to_vec() })
    }

    /// The rule with the longest left side that the text begins with: its right side, and the left side's length.
    fn longest_rule(&self, text: &[u8]) -> Option<(&[u8], usize)> {
        let mut found = None;
        let mut place = offset(self.units[0]);
        for (position, &byte) in text.iter().enumerate() {
            place ^= u32::from(byte);
            // Damaged arrays lead anywhere: what does not lie in them ends the search.
            let Some(unit) = self.unit(place) else { break };
            if unit & (1 << 31 | 0xFF) != u32::from(byte) {
                break;
            }
            place ^= offset(unit);
            if unit >> 8 & 1 == 1 {
                found = self
                    .unit(place)
                    .and_then(|value| self.result(value & !(1 << 31)))
                    .map(|to| (to, position + 1))
                    .or(found);
            }
        }
        found
    }

    fn unit(&self, place: u32) -> Option<u32> {
        self.units.get(usize::try_from(place).ok()?).copied()
    }

    fn result(&self, place: u32) -> Option<&[u8]> {
        let from = self.results.get(usize::try_from(place).ok()?..)?;
        from.split(|&byte| byte == 0).next().filter(|_| !from.is_empty())
    }
}

fn offset(unit: u32) -> u32 {
    (unit >> 10) << ((unit & 1 << 9) >> 6)
}
