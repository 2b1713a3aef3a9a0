//! safetensors files and folders of them.
//!
//! A file is eight bytes of header length (little-endian), that many bytes of JSON, then the tensors' bytes, row-major
//! and little-endian, without holes (<https://github.com/huggingface/safetensors>, section "Format"). A folder holds
//! either `model.safetensors` or shards with `model.safetensors.index.json`, as transformers writes them.
//!
//! Headers are written by the `safetensors` crate, as Python's package does it, so that the same tensors give the same
//! bytes from every language. They are read by position: a header is checked in full, a tensor when it is asked for.

mod folder;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nn_ffi::HostBytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::block_formats::{BlockFormat, StoredTensor};
use super::json::check_marks;
use super::limits::{FILE_TENSORS, HEADER_BYTES, JSON_MARKS};
use super::regular::open_regular;
use super::value::{excerpt, quoted};
use crate::error::{Error, Result};
pub use folder::SafetensorsFolder;
pub use write::{
    DEFAULT_SHARD_BYTES, ReadBytes, Source, fill_safetensors, fill_safetensors_folder, lay_out_safetensors,
    lay_out_safetensors_folder, write_safetensors,
};

/// Element types that this program can read or show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtype {
    code: &'static str,
    /// As NumPy calls it.
    pub name: &'static str,
    /// Bytes of an element.
    pub size: u64,
    /// Whether it can hold weights.
    pub floating: bool,
}

impl Dtype {
    const fn new(code: &'static str, name: &'static str, size: u64, floating: bool) -> Self {
        Self { code, name, size, floating }
    }

    /// What files call a dtype of which this program writes tensors: f32, f16, bf16 or u8.
    pub fn of(dtype: nn_ffi::DType) -> Self {
        match dtype {
            nn_ffi::DType::F16 => F16,
            nn_ffi::DType::BF16 => BF16,
            nn_ffi::DType::U8 => U8,
            _ => F32,
        }
    }
}

/// IEEE binary32.
pub const F32: Dtype = Dtype::new("F32", "float32", 4, true);
const F64: Dtype = Dtype::new("F64", "float64", 8, true);
const F16: Dtype = Dtype::new("F16", "float16", 2, true);
const BF16: Dtype = Dtype::new("BF16", "bfloat16", 2, true);
const U8: Dtype = Dtype::new("U8", "uint8", 1, false);
const DTYPES: [Dtype; 13] = [
    F64,
    F32,
    F16,
    BF16,
    Dtype::new("I64", "int64", 8, false),
    Dtype::new("I32", "int32", 4, false),
    Dtype::new("I16", "int16", 2, false),
    Dtype::new("I8", "int8", 1, false),
    Dtype::new("U64", "uint64", 8, false),
    Dtype::new("U32", "uint32", 4, false),
    Dtype::new("U16", "uint16", 2, false),
    U8,
    Dtype::new("BOOL", "bool", 1, false),
];

/// One tensor of a file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Element type.
    pub dtype: Dtype,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    offset: u64,
}

impl Entry {
    /// Elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product() // checked on opening
    }

    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        self.count() as u64 * self.dtype.size
    }
}

/// A safetensors file, opened: its header is checked in full, and that the tensors cover the data exactly.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    file: File,
    size: u64,
    pages: OnceLock<HostBytes>,
    entries: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
}

impl SafetensorsFile {
    /// Opens a file. `Error::Format` when it is truncated, or no safetensors file.
    pub fn open(path: &Path) -> Result<Self> {
        let unreadable = |error: std::io::Error| Error::unreadable(path, error);
        let wrong = |why: &str| Error::format(path, format!("is truncated, or not a safetensors file (header: {why})"));
        let (file, size) = open_regular(path)?;
        let mut length = [0; 8];
        if size < 8 {
            return Err(wrong("too small"));
        }
        file.read_exact_at(&mut length, 0).map_err(unreadable)?;
        let length = u64::from_le_bytes(length);
        if length > HEADER_BYTES {
            return Err(wrong(&format!("its length is {length}; it may be {HEADER_BYTES}")));
        }
        if length > size - 8 {
            return Err(wrong(&format!("its length is {length}, the file's {size}")));
        }
        let mut header = vec![0; length as usize];
        file.read_exact_at(&mut header, 8).map_err(unreadable)?;
        check_marks(&header, JSON_MARKS).map_err(|problem| wrong(&problem))?;
        let header = std::str::from_utf8(&header).map_err(|error| wrong(&error.to_string()))?;
        let Header { tensors, metadata } = serde_json::from_str(header).map_err(|error| wrong(&error.to_string()))?;
        if tensors.len() > FILE_TENSORS {
            let count = tensors.len();
            return Err(Error::format(path, format!("has {count} tensors; a file may have at most {FILE_TENSORS}")));
        }
        let mut entries = BTreeMap::new();
        let mut end = 0;
        for (name, tensor) in in_order(tensors) {
            let name_text = quoted(&name);
            let Some(dtype) = DTYPES.into_iter().find(|dtype| dtype.code == tensor.dtype) else {
                let code = excerpt(tensor.dtype);
                return Err(Error::format(
                    path,
                    format!("tensor {name_text} has dtype {code}, which this program cannot use"),
                ));
            };
            let (start, stop) = tensor.data_offsets;
            // Beside a 0 the other sizes are no smaller for it.
            let bytes = tensor
                .shape
                .iter()
                .try_fold(dtype.size, |product, size| product.checked_mul((*size).max(1) as u64))
                .filter(|bytes| i64::try_from(*bytes).is_ok())
                .ok_or_else(|| wrong(&format!("the size of tensor {name_text} overflows")))?;
            let bytes = if tensor.shape.contains(&0) { 0 } else { bytes };
            if start != end || stop.checked_sub(start) != Some(bytes) {
                return Err(wrong(&format!("invalid shape, dtype or offsets of tensor {name_text}")));
            }
            end = stop;
            entries.insert(name, Entry { dtype, shape: tensor.shape, offset: 8 + length + start });
        }
        if end.checked_add(8 + length) != Some(size) {
            return Err(wrong(&format!("its tensors take {end} bytes, the file has {}", size - 8 - length)));
        }
        Ok(Self { path: path.to_owned(), file, size, pages: OnceLock::new(), entries, metadata })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Text entries of the file.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Names and tensors, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// A tensor by its name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// The elements `start .. start + count` of a tensor, as f32.
    ///
    /// `Error::Format` when there is no such tensor, it is not a floating-point one, or the file has become shorter.
    pub fn read_f32(&self, name: &str, start: usize, count: usize) -> Result<Vec<f32>> {
        let bytes = self.read_bytes(name, start..start.saturating_add(count))?;
        let dtype = self.entries[name].dtype;
        let words = bytes.chunks_exact(dtype.size as usize);
        Ok(match dtype {
            F32 => words.map(|bytes| f32::from_le_bytes(sized(bytes))).collect(),
            F64 => words.map(|bytes| f64::from_le_bytes(sized(bytes)) as f32).collect(),
            F16 => words.map(|bytes| f32_of_f16(u16::from_le_bytes(sized(bytes)))).collect(),
            BF16 => words.map(|bytes| f32::from_bits(u32::from(u16::from_le_bytes(sized(bytes))) << 16)).collect(),
            dtype => {
                let problem = format!("tensor {name} has dtype {}; weights are floating-point numbers", dtype.name);
                return Err(Error::format(&self.path, problem));
            }
        })
    }
}

impl SafetensorsFile {
    /// The bytes of some elements of a tensor, little-endian. `Error::Format` when there is no such tensor, it has no such
    /// elements, or the file has become shorter.
    pub fn read_bytes(&self, name: &str, elements: Range<usize>) -> Result<Vec<u8>> {
        let missing = || Error::format(&self.path, format!("holds no such part of a tensor {}", quoted(name)));
        let entry = self.entries.get(name).filter(|entry| elements.end <= entry.count()).ok_or_else(missing)?;
        let size = entry.dtype.size;
        let mut bytes = vec![0; elements.len() * size as usize];
        let begin = entry.offset + elements.start as u64 * size;
        self.file.read_exact_at(&mut bytes, begin).map_err(|error| Error::unreadable(&self.path, error))?;
        Ok(bytes)
    }
}

impl SafetensorsFile {
    /// A tensor of f32, f16 or bf16 over the mapped pages of the file. `Error::Format` when there is no such tensor.
    pub fn stored(&self, name: &str) -> Result<StoredTensor> {
        let data = self.mapped(name)?;
        let Entry { dtype, shape, .. } = &self.entries[name];
        let Some(format) = [("F32", "f32"), ("F16", "f16"), ("BF16", "bf16")]
            .into_iter()
            .find(|(code, _)| dtype.code == *code)
            .and_then(|(_, format)| BlockFormat::named(format))
        else {
            let problem = format!("has dtype {}; weights are f32, f16 or bf16", dtype.name);
            return Err(Error::format(&self.path, format!("tensor {} {problem}", quoted(name))));
        };
        Ok(StoredTensor { name: name.to_owned(), format, shape: shape.clone(), data, made: None })
    }

    /// The bytes of a tensor of any dtype, over the mapped pages of the file. `Error::Format` when there is no such tensor, or
    /// the file has become shorter.
    pub fn mapped(&self, name: &str) -> Result<HostBytes> {
        let missing = || Error::format(&self.path, format!("lacks the tensor {}", quoted(name)));
        let entry = self.entries.get(name).ok_or_else(missing)?;
        let pages = match self.pages.get() {
            Some(pages) => pages,
            None => {
                let pages = HostBytes::map(&self.file).map_err(|error| Error::unreadable(&self.path, error))?;
                self.pages.get_or_init(|| pages)
            }
        };
        if pages.len() as u64 != self.size {
            return Err(Error::format(&self.path, "has changed since it was opened"));
        }
        let (first, bytes) = (entry.offset as usize, entry.bytes() as usize); // inside the file, which is mapped
        pages.slice(first..first + bytes).ok_or_else(missing)
    }
}

fn sized<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

/// The value of an IEEE binary16: all of them are numbers of binary32 too.
fn f32_of_f16(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (u32::from(bits >> 15) << 31, bits >> 10 & 31, u32::from(bits & 0x3ff));
    match exponent {
        0 => f32::from_bits(sign | (fraction as f32 * 2f32.powi(-24)).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (u32::from(exponent) + 112) << 23 | fraction << 13),
    }
}

fn in_order(mut tensors: Vec<(String, HeaderEntry)>) -> Vec<(String, HeaderEntry)> {
    tensors.sort_by_key(|(_, tensor)| tensor.data_offsets);
    tensors
}

#[derive(Deserialize)]
struct HeaderEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

struct Header {
    tensors: Vec<(String, HeaderEntry)>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(source: D) -> std::result::Result<Self, D::Error> {
        struct HeaderVisitor;

        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                text.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<Header, A::Error> {
                let mut header = Header { tensors: Vec::new(), metadata: BTreeMap::new() };
                let mut seen = BTreeSet::new();
                while let Some(name) = entries.next_key::<String>()? {
                    // With two tensors of one name it would be unclear which one is meant.
                    if !seen.insert(name.clone()) {
                        return Err(A::Error::custom(format!("the name {} stands there twice", quoted(&name))));
                    }
                    if name == "__metadata__" {
                        header.metadata = entries.next_value()?;
                    } else {
                        header.tensors.push((name, entries.next_value()?));
                    }
                }
                Ok(header)
            }
        }

        source.deserialize_map(HeaderVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(header: &[u8], data: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.safetensors");
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header, data].concat();
        std::fs::write(&path, bytes).unwrap();
        (root, path)
    }

    #[test]
    fn sixteen_bit_numbers_are_widened() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 2f32.powi(-24)),
            (0x7bff, 65504.0),
            (0x8000, -0.0),
            (0x3555, 0.333_251_95),
        ] {
            assert_eq!(f32_of_f16(bits).to_bits(), f32::to_bits(value), "{bits:#x}");
        }
        assert_eq!(f32_of_f16(0xfc00), f32::NEG_INFINITY);
        assert!(f32_of_f16(0x7e00).is_nan());
    }

    proptest! {
        #[test]
        fn any_header_gives_a_file_or_an_error(header in "\\PC{0,80}", data in 0usize..40) {
            let (_root, path) = file(header.as_bytes(), &vec![0; data]);
            let _ = SafetensorsFile::open(&path);
        }

        #[test]
        fn any_entry_gives_a_file_or_an_error(
            dtype in "F32|BF16|U8|F9",
            shape in proptest::collection::vec(any::<u64>(), 0..4),
            offsets in any::<(u64, u64)>(),
            data in 0usize..40,
        ) {
            let header = format!(
                r#"{{"a":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{},{}]}}}}"#, offsets.0, offsets.1,
            );
            let (_root, path) = file(header.as_bytes(), &vec![0; data]);
            let _ = SafetensorsFile::open(&path);
        }
    }
}
