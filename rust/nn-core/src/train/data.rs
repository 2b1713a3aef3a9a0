//! Training data: windows of tokens from shards, in an order that is a function of the seed and the position.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nn_ffi::Context;
use sha2::{Digest, Sha256};

use super::packing::{self, Packed, pack};
use super::sha256;
use crate::error::{Error, Result};
use crate::format::TokenShard;
use crate::format::value::significant;

/// A shard, or all `*.tokens` files of a folder in the order of their names.
pub fn open_shards(source: &Path) -> Result<Vec<TokenShard>> {
    if !source.is_dir() {
        return Ok(vec![TokenShard::open(source)?]);
    }
    let entries = std::fs::read_dir(source).map_err(|error| Error::unreadable(source, error))?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(|error| Error::unreadable(source, error)))
        .collect::<Result<_>>()?;
    files.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".tokens")));
    files.sort();
    if files.is_empty() {
        return Err(Error::format(source, "holds no token shards (*.tokens)"));
    }
    files.iter().map(|file| TokenShard::open(file)).collect()
}

/// Entropy of the frequencies of the shards' own tokens, in nats: what a model that knows only them would reach. Of shards
/// with documents it is that of the targets that count.
///
/// `Error::Format` when an id is not below its shard's vocabulary.
pub fn unigram_entropy(shards: &[TokenShard]) -> Result<f64> {
    const CHUNK: u64 = 1 << 20;
    let mut counts: Vec<u64> = Vec::new();
    for shard in shards {
        counts.resize(counts.len().max(shard.vocab_size() as usize), 0);
        if shard.has_documents() {
            let mut ids = Vec::new();
            shard.documents(|at, bits| {
                if at % CHUNK == 0 {
                    ids.resize(CHUNK.min(shard.count() - at) as usize, 0);
                    shard.read(at, &mut ids)?;
                }
                if bits.target {
                    counts[ids[(at % CHUNK) as usize] as usize] += 1;
                }
                Ok(())
            })?;
            continue;
        }
        for start in (0..shard.count()).step_by(CHUNK as usize) {
            let mut ids = vec![0; CHUNK.min(shard.count() - start) as usize];
            shard.read(start, &mut ids)?;
            for id in ids {
                counts[id as usize] += 1;
            }
        }
    }
    let total: u64 = counts.iter().sum();
    let shares = counts.iter().filter(|count| **count > 0).map(|count| *count as f64 / total as f64);
    Ok(shares.fold(0.0, |entropy, share| entropy - share * share.ln()))
}

/// Ids and targets of some windows, each row-major `[rows, length]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Sequences.
    pub rows: usize,
    /// Tokens of each.
    pub length: usize,
    /// What the model reads.
    pub inputs: Vec<i32>,
    /// What it should say next; `IGNORE_INDEX` counts for nothing.
    pub targets: Vec<i32>,
    /// Where sequences are packed documents, 1 at the last token of each and 0 elsewhere: none sees another, and each
    /// begins at position 0.
    pub document_ends: Option<Vec<i32>>,
}

/// Windows of `length` + 1 tokens, each beginning where the one before has its last token; none crosses a shard.
///
/// Window w gives the inputs `tokens[0 .. length]` and the targets `tokens[1 .. length + 1]` from its place. Of shards with
/// documents the windows are sequences of documents, none of which sees another.
#[derive(Debug)]
pub struct TokenWindows {
    shards: Vec<TokenShard>,
    /// The sequences of each shard, where they have documents.
    packings: Option<Vec<Vec<Packed>>>,
    /// For each shard, the windows up to its end.
    ends: Vec<u64>,
    length: usize,
    /// What `sha256` gives, once it was asked for.
    digest: OnceLock<String>,
}

impl TokenWindows {
    /// The windows of shards. `Error::Value` when their vocabularies differ or there is no window.
    pub fn new(shards: Vec<TokenShard>, length: usize) -> Result<Self> {
        let mut sizes: Vec<_> = shards.iter().map(TokenShard::vocab_size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() > 1 {
            return Err(Error::value(format!("the shards have different vocabularies: {sizes:?}")));
        }
        if length == 0 {
            return Err(Error::value("windows of 0 tokens; they must have at least one"));
        }
        let (with, without): (Vec<_>, Vec<_>) = shards.iter().partition(|shard| shard.has_documents());
        if let (Some(knows), Some(not)) = (with.first(), without.first()) {
            let [knows, not] =
                [knows, not].map(|shard| shard.path().file_name().unwrap_or_default().to_string_lossy().into_owned());
            let problem = format!("{knows} knows where its documents end and {not} does not: encode both alike");
            return Err(Error::value(problem));
        }
        let has_documents = !with.is_empty();
        let packed = || shards.iter().map(|shard| pack(shard, length)).collect::<Result<Vec<_>>>();
        let packings = has_documents.then(packed).transpose()?;
        let mut ends = Vec::with_capacity(shards.len());
        let mut windows = 0;
        for (number, shard) in shards.iter().enumerate() {
            windows += match &packings {
                Some(packings) => packings[number].len() as u64,
                None => shard.count().saturating_sub(1) / length as u64,
            };
            ends.push(windows);
        }
        if windows == 0 && packings.is_some() {
            return Err(Error::value("the data holds no document with a target that counts"));
        }
        if windows == 0 {
            return Err(Error::value(format!("the data holds no window of {length} + 1 tokens")));
        }
        Ok(Self { shards, packings, ends, length, digest: OnceLock::new() })
    }

    /// The windows of a shard or a folder of them.
    pub fn open(source: &Path, length: usize) -> Result<Self> {
        Self::new(open_shards(source)?, length).map_err(|error| error.in_file(source))
    }

    /// How many there are, at least one.
    pub fn windows(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Tokens of a window that are inputs.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether they are sequences of documents.
    pub fn has_documents(&self) -> bool {
        self.packings.is_some()
    }

    /// Every token is below it.
    pub fn vocab_size(&self) -> u64 {
        self.shards.first().map_or(0, TokenShard::vocab_size)
    }

    /// SHA-256 over the bytes of all shards, one file after the other, as 64 hexadecimal digits. They are read once.
    pub fn sha256(&self) -> Result<String> {
        if let Some(known) = self.digest.get() {
            return Ok(known.clone());
        }
        let mut digest = Sha256::new();
        self.shards.iter().try_for_each(|shard| shard.add_to(&mut digest))?;
        Ok(self.digest.get_or_init(|| sha256::digits(digest)).clone())
    }

    /// Entropy of the frequencies of its own tokens, in nats, to six digits: no more differ in meaning, and logarithms differ
    /// in the last one from language to language.
    pub fn unigram_entropy(&self) -> Result<f64> {
        Ok(significant(unigram_entropy(&self.shards)?, 6))
    }

    /// Inputs and targets of windows.
    pub fn take(&self, indices: &[u64]) -> Result<Batch> {
        let mut batch = Batch {
            rows: indices.len(),
            length: self.length,
            inputs: Vec::with_capacity(indices.len() * self.length),
            targets: Vec::with_capacity(indices.len() * self.length),
            document_ends: None,
        };
        let mut ids = vec![0; self.length + 1];
        for &window in indices {
            let which = self.ends.partition_point(|end| *end <= window);
            let Some(shard) = self.shards.get(which) else {
                return Err(Error::value(format!("window {window} of {}", self.windows())));
            };
            let before = if which == 0 { 0 } else { self.ends[which - 1] };
            if let Some(packings) = &self.packings {
                packing::append(&mut batch, shard, packings[which][(window - before) as usize])?;
                continue;
            }
            shard.read((window - before) * self.length as u64, &mut ids)?;
            batch.inputs.extend_from_slice(&ids[..self.length]);
            batch.targets.extend_from_slice(&ids[1..]);
        }
        Ok(batch)
    }

    /// The windows at positions `position .. position + size` of the endless shuffled sequence of `seed`.
    pub fn batch(&self, ctx: &Context, seed: i64, position: u64, size: usize) -> Result<Batch> {
        self.take(&self.order(ctx, seed, position, size)?)
    }

    /// Which windows these are.
    pub(super) fn order(&self, ctx: &Context, seed: i64, position: u64, size: usize) -> Result<Vec<u64>> {
        // Ids and targets lie on the host and on the device; nothing is asked of either that neither can have.
        let bytes = (size as u128).saturating_mul(self.length as u128 + 1).saturating_mul(8);
        let (_, memory) = ctx.memory_info()?;
        if bytes > memory as u128 {
            let length = self.length;
            return Err(Error::OutOfMemory(format!(
                "a batch of {size} sequences of {length} tokens takes {bytes} bytes; the device has {memory}"
            )));
        }
        let windows = i64::try_from(self.windows()).unwrap_or(i64::MAX);
        let order = ctx.data_order(seed, i64::try_from(position).unwrap_or(i64::MAX), size, windows)?;
        Ok(order.into_iter().map(|window| u64::try_from(window).unwrap_or(u64::MAX)).collect())
    }

    /// Batches of at most `size` windows, to [`take`](Self::take): all in their order, or, for so many `batches`, evenly
    /// spaced ones.
    pub fn spread(&self, size: usize, batches: usize) -> impl Iterator<Item = Vec<u64>> {
        let (windows, size) = (self.windows(), size.max(1));
        let wanted = match batches {
            0 => windows,
            _ => (batches as u64).saturating_mul(size as u64).min(windows),
        };
        (0..wanted).step_by(size).map(move |start| {
            let place = |number| (u128::from(number) * u128::from(windows) / u128::from(wanted)) as u64;
            (start..wanted.min(start.saturating_add(size as u64))).map(place).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::shards::write_shard;

    fn windows(counts: &[u32], length: usize) -> (tempfile::TempDir, Result<TokenWindows>) {
        let root = tempfile::tempdir().unwrap();
        let mut next = 0;
        for (number, count) in counts.iter().enumerate() {
            let ids: Vec<u32> = (next..next + count).collect();
            write_shard(&root.path().join(format!("{number}.tokens")), &ids, 1000, &[0; 32]).unwrap();
            next += count;
        }
        let windows = TokenWindows::open(root.path(), length);
        (root, windows)
    }

    #[test]
    fn windows_do_not_cross_shards() {
        let (_root, windows) = windows(&[10, 2, 7], 3);
        let windows = windows.unwrap();
        assert_eq!(windows.windows(), 5);
        let batch = windows.take(&[0, 2, 3, 4]).unwrap();
        assert_eq!(batch.inputs, [0, 1, 2, 6, 7, 8, 12, 13, 14, 15, 16, 17]);
        assert_eq!(batch.targets, [1, 2, 3, 7, 8, 9, 13, 14, 15, 16, 17, 18]);
        assert!(windows.take(&[5]).is_err());
    }

    /// A shard of documents, of each token its id and whether it counts.
    fn write_documents(path: &Path, documents: &[Vec<(u32, bool)>]) {
        let tokens: Vec<_> = documents.concat();
        write_shard(path, &tokens.iter().map(|(id, _)| *id).collect::<Vec<_>>(), 1000, &[0; 32]).unwrap();
        let mut bytes = std::fs::read(path).unwrap();
        bytes[8] = 2;
        let size = tokens.len().div_ceil(8);
        let (mut bits, mut at) = (vec![0u8; 2 * size], 0);
        for document in documents {
            for (place, (_, counts)) in document.iter().enumerate() {
                bits[at / 8] |= u8::from(place + 1 == document.len()) << (at % 8);
                bits[size + at / 8] |= u8::from(*counts) << (at % 8);
                at += 1;
            }
        }
        bytes.extend(bits);
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn documents_fill_sequences_in_their_order() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.tokens");
        let document = |ids: std::ops::Range<u32>, counted: &[u32]| -> Vec<_> {
            ids.map(|id| (id, counted.contains(&id))).collect()
        };
        // Of 3, 2 and 11 tokens: the last is cut into pieces of 4, 4 and 2 pairs, the first of which teaches nothing.
        let documents = [
            document(10..13, &[10, 12]),
            document(20..22, &[21]),
            document(30..41, &[36, 40]),
            document(50..52, &[51]),
        ];
        write_documents(&path, &documents);
        let windows = TokenWindows::open(&path, 4).unwrap();
        assert_eq!((windows.windows(), windows.has_documents()), (3, true));
        let batch = windows.take(&[0, 1, 2]).unwrap();
        assert_eq!(batch.inputs, [10, 11, 20, 0, 34, 35, 36, 37, 38, 39, 50, 0]);
        assert_eq!(batch.targets, [-100, 12, 21, -100, -100, 36, -100, -100, -100, 40, 51, -100]);
        assert_eq!(batch.document_ends.unwrap(), [0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0]);
        let entropy = unigram_entropy(&open_shards(&path).unwrap()).unwrap();
        assert!((entropy - 5f64.ln()).abs() < 1e-12); // five targets, each once
        write_documents(&path, &[document(10..13, &[10])]);
        let error = TokenWindows::open(&path, 4).unwrap_err().to_string();
        assert!(error.ends_with("the data holds no document with a target that counts"), "{error}");
        write_shard(&root.path().join("b.tokens"), &[0; 9], 1000, &[0; 32]).unwrap();
        let error = TokenWindows::open(root.path(), 4).unwrap_err().to_string();
        let sentence = "a.tokens knows where its documents end and b.tokens does not: encode both alike";
        assert!(error.ends_with(sentence), "{error}");
    }

    #[test]
    fn evaluation_takes_all_windows_or_evenly_spaced_ones() {
        let (_root, windows) = windows(&[21], 2);
        let windows = windows.unwrap();
        let firsts = |size, batches| {
            let batches: Result<Vec<Batch>> =
                windows.spread(size, batches).map(|chosen| windows.take(&chosen)).collect();
            batches
                .unwrap()
                .iter()
                .map(|batch| batch.inputs.iter().step_by(2).copied().collect())
                .collect::<Vec<Vec<_>>>()
        };
        assert_eq!(firsts(4, 0), [vec![0, 2, 4, 6], vec![8, 10, 12, 14], vec![16, 18]]);
        assert_eq!(firsts(2, 2), [vec![0, 4], vec![10, 14]]);
    }

    #[test]
    fn a_batch_that_no_machine_can_hold_is_refused() {
        let (_root, windows) = windows(&[21], 2);
        let ctx = Context::new(nn_ffi::Device::Cpu).unwrap_or_else(|error| panic!("{error}"));
        for size in [usize::MAX, 1 << 50] {
            let error = windows.as_ref().unwrap().batch(&ctx, 0, 0, size).unwrap_err();
            assert!(matches!(error, Error::OutOfMemory(_)) && error.exit_code() == 4, "{error}");
        }
        assert_eq!(windows.unwrap().batch(&ctx, 0, 0, 30).unwrap().rows, 30);
    }

    #[test]
    fn data_without_a_window_is_refused() {
        let (_root, windows) = windows(&[3], 3);
        assert!(windows.unwrap_err().to_string().ends_with("the data holds no window of 3 + 1 tokens"));
        let root = tempfile::tempdir().unwrap();
        let error = open_shards(root.path()).unwrap_err();
        assert!(error.to_string().ends_with("holds no token shards (*.tokens)"));
    }
}
