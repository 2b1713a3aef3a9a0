//! Token shards: the encoded text that training reads, window by window.
//!
//! Layout, little-endian: a header of 64 bytes, then `count` token ids of `width` bytes each. In version 1 nothing follows
//! them. In version 2 two bits for each token do, those of the first kind and then those of the second, each kind in
//! ceil(count / 8) bytes: bit i % 8, from the lowest, of byte i / 8 is that of token i, and bits beyond the last are 0.
//!
//! ```text
//! bytes  0..7    magic "NNTOKENS"
//! bytes  8..11   version, 1 or 2
//! bytes 12..15   width: 2 (uint16) or 4 (uint32)
//! bytes 16..23   vocab_size: every id is below it
//! bytes 24..31   count
//! bytes 32..63   SHA-256 of the tokenizer file that made the ids; zeros when unknown
//! first bits     1 where the token is the last of its document; a document has at least two tokens
//! second bits    1 where the token counts as a target: a model learns to say it. The first of a document never is one
//! ```
//!
//! Windows are read by position, so a shard may be larger than memory, and one that is cut short while it is in use gives
//! an error where a mapped one would end the program. The file is opened again for each read: a run over thousands of
//! shards holds none of them open.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::atomic::write_file_with;
use super::regular::open_regular;
use crate::error::{Error, Result};

/// What a shard begins with.
pub const MAGIC: &[u8; 8] = b"NNTOKENS";
const PLAIN: u32 = 1;
const WITH_DOCUMENTS: u32 = 2;
const HEADER_BYTES: usize = 64;

/// A shard, opened and checked: header, version, width and length of the file.
///
/// Ids are checked by `check_ids`, which reads the whole file; readers that take windows check those.
#[derive(Debug)]
pub struct TokenShard {
    path: PathBuf,
    /// Bytes of the file when it was opened first.
    size: u64,
    width: usize,
    vocab_size: u64,
    count: u64,
    tokenizer: [u8; 32],
    has_documents: bool,
}

/// What a shard with documents says of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBits {
    /// It is the last of its document.
    pub ends: bool,
    /// It counts as a target; of a document's first token that says nothing.
    pub target: bool,
}

impl TokenShard {
    /// Opens a shard.
    pub fn open(path: &Path) -> Result<Self> {
        let unreadable = |error: std::io::Error| Error::unreadable(path, error);
        let (file, size) = open_regular(path)?;
        let mut head = [0; HEADER_BYTES];
        let have = HEADER_BYTES.min(usize::try_from(size).unwrap_or(HEADER_BYTES));
        file.read_exact_at(&mut head[..have], 0).map_err(unreadable)?;
        if have < MAGIC.len() || head[..8] != *MAGIC {
            return Err(Error::format(path, "is not a token shard: it does not begin with NNTOKENS"));
        }
        if have < HEADER_BYTES {
            return Err(Error::format(path, format!("is cut off inside its header, at byte {size}")));
        }
        let (version, width) = (word(&head, 8), word(&head, 12));
        let (vocab_size, count) = (long(&head, 16), long(&head, 24));
        let has_documents = version == WITH_DOCUMENTS;
        let bits = if has_documents { 2 * u128::from(count.div_ceil(8)) } else { 0 };
        let needed = HEADER_BYTES as u128 + u128::from(count) * u128::from(width) + bits;
        let wrong = if version != PLAIN && version != WITH_DOCUMENTS {
            format!("is a token shard of version {version}; this program reads versions 1 and 2")
        } else if width != 2 && width != 4 {
            format!("has ids of {width} bytes; they must have 2 or 4")
        } else if vocab_size < 1 || vocab_size > 1 << (8 * width) {
            format!("has a vocabulary of {vocab_size}, which ids of {width} bytes cannot hold")
        } else if u128::from(size) != needed {
            format!("is {size} bytes long, but its {count} tokens take {needed}")
        } else {
            let mut tokenizer = [0; 32];
            tokenizer.copy_from_slice(&head[32..]);
            let (path, width) = (path.to_owned(), width as usize);
            return Ok(Self { path, size, width, vocab_size, count, tokenizer, has_documents });
        };
        Err(Error::format(path, wrong))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tokens.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Every id is below it.
    pub fn vocab_size(&self) -> u64 {
        self.vocab_size
    }

    /// Bytes an id: 2 or 4.
    pub fn width(&self) -> usize {
        self.width
    }

    /// SHA-256 of the tokenizer's file; zeros when unknown.
    pub fn tokenizer(&self) -> &[u8; 32] {
        &self.tokenizer
    }

    /// Whether it knows where its documents end and which tokens count as targets.
    pub fn has_documents(&self) -> bool {
        self.has_documents
    }

    /// What it says of the tokens `start .. stop`. `Error::Value` for tokens that are not there, or of a shard without
    /// documents.
    pub fn bits(&self, start: u64, stop: u64) -> Result<Vec<TokenBits>> {
        if start > stop || stop > self.count || !self.has_documents {
            return Err(Error::value(format!("no bits of tokens {start} .. {stop} are among {}", self.count)));
        }
        let (first, kind) = (start / 8, self.count.div_ceil(8));
        let mut ends = vec![0u8; (stop.div_ceil(8) - first) as usize];
        let mut targets = ends.clone();
        let offset = HEADER_BYTES as u64 + self.count * self.width as u64 + first;
        self.with_file(|file| {
            file.read_exact_at(&mut ends, offset)?;
            file.read_exact_at(&mut targets, offset + kind)
        })?;
        let bit = |bytes: &[u8], at: u64| bytes[(at / 8) as usize] >> (at % 8) & 1 == 1;
        let tokens = (start..stop).map(|token| token - 8 * first);
        Ok(tokens.map(|at| TokenBits { ends: bit(&ends, at), target: bit(&targets, at) }).collect())
    }

    /// Calls `visit` for all tokens, in their order: with whether each is the last of its document, and whether it is a
    /// target, which is one that counts and not the first of its document.
    ///
    /// `Error::Format` when a document has one token, or the last has no end; `Error::Value` of a shard without documents.
    pub fn documents(&self, mut visit: impl FnMut(u64, TokenBits) -> Result<()>) -> Result<()> {
        const CHUNK: u64 = 1 << 20;
        let mut begins = true;
        for start in (0..self.count).step_by(CHUNK as usize) {
            let bits = self.bits(start, self.count.min(start + CHUNK))?;
            for (at, TokenBits { ends, target }) in (start..).zip(bits) {
                if ends && begins {
                    let problem = format!("the document at token {at} has one token; it must have two");
                    return Err(Error::format(&self.path, problem));
                }
                visit(at, TokenBits { ends, target: target && !begins })?;
                begins = ends;
            }
        }
        if begins { Ok(()) } else { Err(Error::format(&self.path, "its last token does not end a document")) }
    }

    /// The ids at places `start .. start + ids.len()`, each of them below the vocabulary's size.
    ///
    /// `Error::Format` when an id is not, or the file has become shorter or is gone.
    pub fn read(&self, start: u64, ids: &mut [i32]) -> Result<()> {
        let end = start.checked_add(ids.len() as u64).filter(|end| *end <= self.count);
        if end.is_none() {
            return Err(Error::value(format!("tokens {start} .. {start}+{} of {}", ids.len(), self.count)));
        }
        let mut bytes = vec![0; ids.len() * self.width];
        let offset = HEADER_BYTES as u64 + start * self.width as u64;
        self.with_file(|file| file.read_exact_at(&mut bytes, offset))?;
        for (id, bytes) in ids.iter_mut().zip(bytes.chunks_exact(self.width)) {
            let token = match *bytes {
                [low, high] => u32::from(u16::from_le_bytes([low, high])),
                _ => word(bytes, 0),
            };
            *id = i32::try_from(token).ok().filter(|_| u64::from(token) < self.vocab_size).ok_or_else(|| {
                let size = self.vocab_size;
                Error::format(&self.path, format!("holds the token {token}; its vocabulary has {size}"))
            })?;
        }
        Ok(())
    }

    /// Adds all bytes of the file, its header included, to a digest.
    pub(crate) fn add_to(&self, digest: &mut Sha256) -> Result<()> {
        const CHUNK: usize = 1 << 20;
        let mut bytes = vec![0; CHUNK];
        self.with_file(|file| {
            let mut left = self.size;
            while left > 0 {
                let part = &mut bytes[..CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
                file.read_exact(part)?;
                digest.update(&*part);
                left -= part.len() as u64;
            }
            Ok(())
        })
    }

    /// Reads from the file. `Error::Format` when it ends before it did.
    fn with_file(&self, read: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<()> {
        let unreadable = |error: std::io::Error| Error::unreadable(&self.path, error);
        let (mut file, _) = open_regular(&self.path)?;
        match read(&mut file) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                let left = file.metadata().map_err(unreadable)?.len();
                let had = self.size;
                let problem = format!("was cut to {left} bytes while it was in use; it had {had}");
                Err(Error::format(&self.path, problem))
            }
            done => done.map_err(unreadable),
        }
    }

    /// `Error::Format` when an id is not below the vocabulary's size.
    pub fn check_ids(&self) -> Result<()> {
        const CHUNK: u64 = 1 << 20;
        let mut ids = vec![0; CHUNK.min(self.count) as usize];
        let mut start = 0;
        while start < self.count {
            let length = CHUNK.min(self.count - start) as usize;
            self.read(start, &mut ids[..length])?;
            start += length as u64;
        }
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// Writes a shard of ids, in one step. Ids of vocabularies up to 65 536 take two bytes.
///
/// `Error::Value`, with nothing written, when an id is not below `vocab_size`. `tokenizer` is the SHA-256 of the
/// tokenizer's file, zeros when unknown.
pub fn write_shard(path: &Path, ids: &[u32], vocab_size: u64, tokenizer: &[u8; 32]) -> Result<()> {
    let width: u32 = if vocab_size <= 1 << 16 { 2 } else { 4 };
    if let Some(worst) = ids.iter().find(|id| u64::from(**id) >= vocab_size) {
        return Err(Error::value(format!("id {worst} in a vocabulary of {vocab_size}")));
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + ids.len() * width as usize);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&PLAIN.to_le_bytes());
    bytes.extend_from_slice(&width.to_le_bytes());
    bytes.extend_from_slice(&vocab_size.to_le_bytes());
    bytes.extend_from_slice(&(ids.len() as u64).to_le_bytes());
    bytes.extend_from_slice(tokenizer);
    for id in ids {
        bytes.extend_from_slice(&id.to_le_bytes()[..width as usize]);
    }
    write_file_with(path, |file| file.write_all(&bytes).map_err(|error| Error::io(path, error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shard(ids: &[u32], vocab_size: u64) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.tokens");
        write_shard(&path, ids, vocab_size, &[7; 32]).unwrap();
        (root, path)
    }

    #[test]
    fn ids_come_back_in_both_widths() {
        for vocab_size in [100, 70_000] {
            let (_root, path) = shard(&[1, 2, 99, 0], vocab_size);
            let opened = TokenShard::open(&path).unwrap();
            opened.check_ids().unwrap();
            let mut ids = [0; 3];
            opened.read(1, &mut ids).unwrap();
            assert_eq!((ids, opened.count(), opened.tokenizer()), ([2, 99, 0], 4, &[7; 32]));
            assert!(opened.read(2, &mut ids).is_err());
        }
    }

    #[test]
    fn a_shard_that_is_cut_short_while_it_is_in_use_is_told() {
        let (_root, path) = shard(&[1, 2, 3, 4], 100);
        let opened = TokenShard::open(&path).unwrap();
        let mut ids = [0; 2];
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(69).unwrap();
        opened.read(0, &mut ids).unwrap();
        assert_eq!(ids, [1, 2]);
        for error in [opened.read(1, &mut ids), opened.read(2, &mut ids), opened.add_to(&mut Sha256::new())] {
            let error = error.unwrap_err();
            let sentence = format!("{}: was cut to 69 bytes while it was in use; it had 72", path.display());
            assert_eq!((error.to_string(), error.exit_code()), (sentence, 3));
        }
        std::fs::remove_file(&path).unwrap();
        let error = opened.read(0, &mut ids).unwrap_err();
        assert!(error.to_string().ends_with("a.tokens: cannot be read: No such file or directory"), "{error}");
    }

    #[test]
    fn a_shard_with_a_wrong_id_is_not_written() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.tokens");
        assert!(write_shard(&path, &[1, 5], 5, &[0; 32]).is_err());
        assert!(!path.exists());
    }

    /// A shard of ten zeros, with these bits.
    fn with_bits(bits: [u8; 4]) -> (tempfile::TempDir, Result<TokenShard>) {
        let (root, path) = shard(&[0; 10], 100);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] = 2;
        bytes.extend(bits);
        std::fs::write(&path, bytes).unwrap();
        let opened = TokenShard::open(&path);
        (root, opened)
    }

    #[test]
    fn a_shard_knows_its_documents() {
        let (_root, opened) = with_bits([0b100, 0b10, 0b1111_1010, 0b01]);
        let opened = opened.unwrap();
        let (mut ends, mut targets) = (Vec::new(), Vec::new());
        opened
            .documents(|at, bits| {
                ends.extend(bits.ends.then_some(at));
                targets.extend(bits.target.then_some(at));
                Ok(())
            })
            .unwrap();
        assert_eq!((ends, targets), (vec![2, 9], vec![1, 4, 5, 6, 7, 8]));
        let bits = |ends, target| TokenBits { ends, target };
        assert_eq!(opened.bits(7, 10).unwrap(), [bits(false, true), bits(false, true), bits(true, false)]);
        assert!(opened.bits(3, 2).is_err() && opened.bits(4, 11).is_err());
    }

    #[test]
    fn bits_that_make_no_documents_are_refused() {
        for (bits, problem) in [
            ([1, 2, 0, 0], "the document at token 0 has one token; it must have two"),
            ([4, 3, 0, 0], "the document at token 9 has one token; it must have two"),
            ([4, 0, 0, 0], "its last token does not end a document"),
        ] {
            let (_root, opened) = with_bits(bits);
            let error = opened.unwrap().documents(|_, _| Ok(())).unwrap_err().to_string();
            assert!(error.ends_with(problem), "{error}");
        }
        let (_root, path) = shard(&[0; 10], 100);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] = 2;
        std::fs::write(&path, bytes).unwrap();
        let error = TokenShard::open(&path).unwrap_err().to_string();
        assert!(error.ends_with("is 84 bytes long, but its 10 tokens take 88"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_shard_or_an_error(
            version in 1u8..=2,
            prefix in 0usize..=16,
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join("a.tokens");
            let mut head = MAGIC.to_vec();
            head.extend([version, 0, 0, 0, 2, 0, 0, 0]);
            head.truncate(prefix);
            head.extend(bytes);
            std::fs::write(&path, head).unwrap();
            if let Ok(opened) = TokenShard::open(&path) {
                let _ = opened.check_ids();
                let _ = opened.documents(|_, _| Ok(()));
            }
        }
    }
}
