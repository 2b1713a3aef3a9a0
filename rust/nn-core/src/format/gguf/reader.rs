//! The part of a GGUF file before its tensors, read and checked from front to back.

use std::collections::HashSet;
use std::path::Path;

use nn_ffi::HostBytes;

use super::super::block_formats::{FORMATS, OTHER_GGUF_TYPES, TERNARY_FORMATS, TernaryFormat};
use super::super::limits::{GGUF_ENTRIES, GGUF_KEY_BYTES, GGUF_NAME_BYTES};
use super::super::value::quoted;
use super::metadata::text;
use super::{MetadataValue, StringArray, TensorEntry, ValueType};
use crate::error::{Error, Result};

pub(super) const MAGIC: &[u8] = b"GGUF";
pub(super) const MOST_DIMENSIONS: u32 = 4;
/// A key of one byte, its type and a value of one byte.
pub(super) const LEAST_ENTRY: u64 = 8 + 1 + 4 + 1;
/// A name of one byte, one dimension.
pub(super) const LEAST_TENSOR: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// What was read so far, and checked reading of what follows.
pub(super) struct Reader<'f> {
    path: &'f Path,
    data: &'f HostBytes,
    at: usize,
}

/// A tensor as it is described, its offset that from the beginning of all tensors. No sum of these numbers wraps: what does
/// not fit is larger than any file.
struct Described {
    name: String,
    type_name: String,
    shape: Vec<u64>,
    offset: u64,
    bytes: Option<u128>,
}

impl<'f> Reader<'f> {
    pub(super) fn new(path: &'f Path, data: &'f HostBytes) -> Self {
        Self { path, data, at: 0 }
    }

    pub(super) fn wrong(&self, problem: impl std::fmt::Display) -> Error {
        Error::format(self.path, format!("at byte {}: {problem}", self.at))
    }

    fn need(&self, count: u128, what: &str) -> Result<()> {
        let left = self.data.len() - self.at;
        if count > left as u128 {
            return Err(self.wrong(format!("{what} takes {count} bytes, but only {left} are left in the file")));
        }
        Ok(())
    }

    fn take(&mut self, count: u64, what: &str) -> Result<&'f [u8]> {
        self.need(count.into(), what)?;
        let begin = self.at;
        self.at += count as usize; // no more than are left
        Ok(&self.data[begin..self.at])
    }

    fn fixed<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N as u64, what)?);
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.fixed(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.fixed(what)?))
    }

    fn string(&mut self, what: &str, longest: Option<u64>) -> Result<&'f str> {
        let length = self.u64(&format!("the length of {what}"))?;
        if let Some(longest) = longest.filter(|longest| !(1..=*longest).contains(&length)) {
            return Err(self.wrong(format!("{what} has {length} bytes; it may have 1 to {longest}")));
        }
        let begin = self.at;
        let bytes = self.take(length, what)?;
        text(self.path, bytes, &format!("{what} at byte {begin}"))
    }

    /// The version.
    pub(super) fn header(&mut self) -> Result<u32> {
        let magic = self.take(MAGIC.len() as u64, "the magic number")?;
        if magic != MAGIC {
            let (found, right) = (magic.escape_ascii(), MAGIC.escape_ascii());
            return Err(Error::format(self.path, format!("begins with '{found}'; a GGUF file begins with '{right}'")));
        }
        match self.u32("the version")? {
            version @ (2 | 3) => Ok(version),
            0x0200_0000 | 0x0300_0000 => {
                Err(Error::format(self.path, "is a big-endian GGUF file; this program reads little-endian ones"))
            }
            version => {
                let problem = format!("is a GGUF file of version {version}; this program reads versions 2 and 3");
                Err(Error::format(self.path, problem))
            }
        }
    }

    /// A number of entries of at least so many bytes.
    pub(super) fn count(&mut self, what: &str, least: u64) -> Result<u64> {
        let value = self.u64(&format!("the number of {what}"))?;
        let most = (self.data.len() - self.at) as u64 / least;
        let promise = format!("the header promises {value} {what}");
        if value > most {
            return Err(self.wrong(format!("{promise}; the rest of the file has room for {most} at most")));
        }
        if value > GGUF_ENTRIES {
            return Err(self.wrong(format!("{promise}; this program reads {GGUF_ENTRIES} at most")));
        }
        Ok(value)
    }

    /// A key of metadata and its value.
    pub(super) fn entry(&mut self) -> Result<(String, MetadataValue)> {
        let key = self.string("a key of metadata", Some(GGUF_KEY_BYTES))?.to_owned();
        let value = match self.kind(&format!("the type of {key}"))? {
            ValueType::Array => self.array(&key)?,
            ValueType::String => MetadataValue::One(ValueType::String, self.string(&key, None)?.into()),
            kind => {
                let bytes = self.take(kind.size() as u64, &key)?;
                if kind == ValueType::Bool && bytes[0] > 1 {
                    return Err(self.wrong(format!("{key} is {}; as a bool it must be 0 or 1", bytes[0])));
                }
                MetadataValue::One(kind, kind.read(bytes))
            }
        };
        Ok((key, value))
    }

    fn kind(&mut self, what: &str) -> Result<ValueType> {
        let number = self.u32(what)?;
        let last = ValueType::ALL.len() - 1;
        ValueType::ALL
            .get(number as usize)
            .copied()
            .ok_or_else(|| self.wrong(format!("{what} is {number}; it must be 0 to {last}")))
    }

    fn array(&mut self, key: &str) -> Result<MetadataValue> {
        let kind = self.kind(&format!("the element type of the array {key}"))?;
        if kind == ValueType::Array {
            let problem = "is an array of arrays; this program reads arrays of numbers, bools and strings";
            return Err(self.wrong(format!("{key} {problem}")));
        }
        let length = self.u64(&format!("the length of the array {key}"))?;
        if kind == ValueType::String {
            return Ok(MetadataValue::Strings(self.strings(key, length)?));
        }
        let bytes = u128::from(length) * kind.size() as u128;
        self.need(bytes, &format!("the array {key} of {length} × {}", kind.name()))?;
        let range = self.at..self.at + bytes as usize;
        let most = self.data[range.clone()].iter().copied().max().unwrap_or(0);
        if kind == ValueType::Bool && most > 1 {
            return Err(self.wrong(format!("the array {key} has a bool of {most}; it must be 0 or 1")));
        }
        self.at = range.end;
        let elements = self.data.slice(range).ok_or_else(|| self.wrong(format!("{key} is cut")))?;
        Ok(MetadataValue::Numbers(kind, elements))
    }

    fn strings(&mut self, key: &str, length: u64) -> Result<StringArray> {
        self.need(u128::from(length) * 8, &format!("the array {key} of {length} strings"))?;
        // As many bytes as the lengths alone take in the file.
        let mut starts = Vec::with_capacity(length as usize);
        for index in 0..length {
            let size = self.u64("the length of a string").map_err(|_| {
                let left = self.data.len() - self.at;
                let problem = format!("takes 8 bytes, but only {left} are left in the file");
                self.wrong(format!("the length of string {index} of {key} {problem}"))
            })?;
            starts.push(self.at);
            self.need(size.into(), "a string").map_err(|_| {
                let left = self.data.len() - self.at;
                let problem = format!("takes {size} bytes, but only {left} are left in the file");
                self.wrong(format!("string {index} of {key} {problem}"))
            })?;
            self.at += size as usize;
        }
        Ok(StringArray::new(self.path, key, self.data.clone(), starts))
    }

    /// The descriptions of so many tensors, each of which lies inside the file and beside the others.
    pub(super) fn tensors(&mut self, count: u64, alignment: usize) -> Result<Vec<(String, TensorEntry)>> {
        let mut described: Vec<Described> = Vec::new();
        let mut seen = HashSet::new();
        for _ in 0..count {
            let name = self.string("the name of a tensor", Some(GGUF_NAME_BYTES))?;
            if !seen.insert(name) {
                return Err(self.wrong(format!("tensor {} is described twice", quoted(name))));
            }
            described.push(self.tensor(name, alignment as u64)?);
        }
        let (start, size) = (self.at.next_multiple_of(alignment) as u128, self.data.len());
        let mut entries = Vec::with_capacity(described.len());
        for tensor in described {
            let (first, bytes) = (start + u128::from(tensor.offset), tensor.bytes.unwrap_or(0));
            if first.saturating_add(bytes) > size as u128 {
                let place = format!("has {bytes} bytes from byte {first} on");
                let name = quoted(&tensor.name);
                let problem = format!("tensor {name} {place}, but the file ends at byte {size}");
                return Err(Error::format(self.path, problem));
            }
            let entry = TensorEntry {
                type_name: tensor.type_name,
                // Of a tensor of an unknown type nothing else bounds the sizes; nothing is made of them either.
                shape: tensor.shape.iter().map(|size| usize::try_from(*size).unwrap_or(usize::MAX)).collect(),
                offset: first as usize,
                bytes: tensor.bytes.map(|bytes| bytes as usize),
            };
            entries.push((tensor.name, entry));
        }
        self.check_places(&entries, start as usize, alignment)?;
        Ok(entries)
    }

    fn check_places(&self, entries: &[(String, TensorEntry)], start: usize, alignment: usize) -> Result<()> {
        let mut in_order: Vec<_> = entries.iter().collect();
        in_order.sort_by_key(|(_, entry)| entry.offset);
        let (mut end, mut before) = (start, "");
        for (name, entry) in &in_order {
            if entry.offset < end {
                let (name, before, offset) = (quoted(name), quoted(before), entry.offset);
                let problem = format!("tensor {name} begins at byte {offset}, inside tensor {before} before it");
                return Err(Error::format(self.path, problem));
            }
            (end, before) = (entry.offset + entry.bytes.unwrap_or(0).max(1), name);
        }
        // Number 36 has been another type in other programs. As an i2_s, a tensor ends where the next begins.
        let ends = in_order.iter().skip(1).map(|(_, entry)| entry.offset).chain([self.data.len()]);
        for ((name, entry), end) in in_order.iter().zip(ends) {
            let (room, bytes) = (end - entry.offset, entry.bytes.unwrap_or(0));
            if entry.type_name == "i2_s" && room >= bytes + alignment {
                let problem = format!(
                    "tensor {} of type 36 has {room} bytes to the next tensor; as i2_s it takes {bytes}, so that this is \
                     another type of this number",
                    quoted(name)
                );
                return Err(Error::format(self.path, problem));
            }
        }
        Ok(())
    }

    fn tensor(&mut self, name: &str, alignment: u64) -> Result<Described> {
        let shown = quoted(name);
        let dimensions = self.u32(&format!("the number of dimensions of tensor {shown}"))?;
        if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
            let problem = format!("tensor {shown} has {dimensions} dimensions; it may have 1 to {MOST_DIMENSIONS}");
            return Err(self.wrong(problem));
        }
        let mut sizes = Vec::new();
        for _ in 0..dimensions {
            sizes.push(self.u64(&format!("a dimension of tensor {shown}"))?);
        }
        if sizes.contains(&0) {
            return Err(self.wrong(format!("tensor {shown} has the dimensions {sizes:?}; each must be 1 or more")));
        }
        let number = self.u32(&format!("the type of tensor {shown}"))?;
        let offset = self.u64(&format!("the offset of tensor {shown}"))?;
        if offset % alignment != 0 {
            let problem = format!("tensor {shown} has the offset {offset}; it must be a multiple of {alignment}");
            return Err(self.wrong(problem));
        }
        let elements = sizes.iter().fold(1_u128, |product, size| product.saturating_mul((*size).into()));
        let row = sizes[0];
        sizes.reverse();
        let described =
            |type_name: String, bytes| Described { name: name.to_owned(), type_name, shape: sizes, offset, bytes };
        let Some((kind, block, bytes, tail)) = blocks(number) else {
            return Ok(described(format!("unknown ({number})"), None));
        };
        if row % block as u64 != 0 {
            let problem = format!("tensor {shown} has rows of {row} elements; blocks of {kind} have {block}");
            return Err(self.wrong(problem));
        }
        let bytes = (elements / block as u128).saturating_mul(bytes as u128).saturating_add(tail as u128);
        Ok(described(kind.to_owned(), Some(bytes)))
    }
}

/// Name, elements and bytes of a block, and bytes after the last, of a type by its number.
fn blocks(number: u32) -> Option<(&'static str, usize, usize, usize)> {
    if let Some(format) = FORMATS.iter().find(|format| format.gguf_type == number) {
        return Some((format.name, format.elements, format.bytes, 0));
    }
    if let Some(TernaryFormat { name, elements, bytes, tail, .. }) =
        TERNARY_FORMATS.iter().find(|format| format.gguf_type == number)
    {
        return Some((*name, *elements, *bytes, *tail));
    }
    let other = OTHER_GGUF_TYPES.iter().find(|other| other.0 == number)?;
    Some((other.1, other.2, other.3, 0))
}
