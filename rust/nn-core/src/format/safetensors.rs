//! safetensors files and folders of them.
//!
//! A file is eight bytes of header length (little-endian), that many bytes of JSON, then the tensors' bytes, row-major
//! and little-endian, without holes (<https://github.com/huggingface/safetensors>, section "Format"). A folder holds
//! either `model.safetensors` or shards with `model.safetensors.index.json`, as transformers writes them.
//!
//! Files are written by the `safetensors` crate, as Python's package does it, so that the same tensors give the same
//! bytes from every language. They are read by position: a header is checked in full, a tensor when it is asked for.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::value::{Table, Value, quoted};
use super::{atomic, read_json};
use crate::error::{Error, Result};

/// Weights are cut into several files from this size on.
pub const DEFAULT_SHARD_BYTES: u64 = 5_000_000_000;

/// A larger header than this is none that a program wrote.
const MOST_HEADER_BYTES: u64 = 100_000_000;

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
}

/// IEEE binary32.
pub const F32: Dtype = Dtype::new("F32", "float32", 4, true);
const F64: Dtype = Dtype::new("F64", "float64", 8, true);
const F16: Dtype = Dtype::new("F16", "float16", 2, true);
const BF16: Dtype = Dtype::new("BF16", "bfloat16", 2, true);
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
    Dtype::new("U8", "uint8", 1, false),
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
    entries: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
}

impl SafetensorsFile {
    /// Opens a file. `Error::Format` when it is truncated, or no safetensors file.
    pub fn open(path: &Path) -> Result<Self> {
        let unreadable = |error: std::io::Error| Error::unreadable(path, &error);
        let wrong = |why: &str| Error::format(path, format!("is truncated, or not a safetensors file (header: {why})"));
        let file = File::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        let mut length = [0; 8];
        if size < 8 {
            return Err(wrong("too small"));
        }
        file.read_exact_at(&mut length, 0).map_err(unreadable)?;
        let length = u64::from_le_bytes(length);
        if length > MOST_HEADER_BYTES || length > size - 8 {
            return Err(wrong(&format!("its length is {length}, the file's {size}")));
        }
        let mut header = vec![0; length as usize];
        file.read_exact_at(&mut header, 8).map_err(unreadable)?;
        let header = std::str::from_utf8(&header).map_err(|error| wrong(&error.to_string()))?;
        let Header { tensors, metadata } = serde_json::from_str(header).map_err(|error| wrong(&error.to_string()))?;
        let mut entries = BTreeMap::new();
        let mut end = 0;
        for (name, tensor) in in_order(tensors) {
            let name_text = quoted(&name);
            let Some(dtype) = DTYPES.into_iter().find(|dtype| dtype.code == tensor.dtype) else {
                let code = tensor.dtype;
                return Err(Error::format(
                    path,
                    format!("tensor {name_text} has dtype {code}, which this program cannot use"),
                ));
            };
            let (start, stop) = tensor.data_offsets;
            let bytes = tensor
                .shape
                .iter()
                .try_fold(1usize, |product, size| product.checked_mul(*size))
                .and_then(|count| (count as u64).checked_mul(dtype.size))
                .ok_or_else(|| wrong(&format!("the size of tensor {name_text} overflows")))?;
            if start != end || stop.checked_sub(start) != Some(bytes) {
                return Err(wrong(&format!("invalid shape, dtype or offsets of tensor {name_text}")));
            }
            end = stop;
            entries.insert(name, Entry { dtype, shape: tensor.shape, offset: 8 + length + start });
        }
        if end.checked_add(8 + length) != Some(size) {
            return Err(wrong(&format!("its tensors take {end} bytes, the file has {}", size - 8 - length)));
        }
        Ok(Self { path: path.to_owned(), file, entries, metadata })
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
    /// `Error::Format` when there is no such tensor, it is no floating-point one, or the file has become shorter.
    pub fn read_f32(&self, name: &str, start: usize, count: usize) -> Result<Vec<f32>> {
        let missing = || Error::format(&self.path, format!("holds no such part of a tensor {}", quoted(name)));
        let entry = self.entries.get(name).ok_or_else(missing)?;
        let end = start.checked_add(count).ok_or_else(missing)?;
        if end > entry.count() {
            return Err(missing());
        }
        let size = entry.dtype.size as usize;
        let mut bytes = vec![0; count * size];
        self.file
            .read_exact_at(&mut bytes, entry.offset + start as u64 * entry.dtype.size)
            .map_err(|error| Error::unreadable(&self.path, &error))?;
        let words = bytes.chunks_exact(size);
        Ok(match entry.dtype {
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
                    // Of two tensors of one name nobody could say which one is meant.
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

/// Reads the values of a tensor that is to be written.
pub type ReadValues<'a> = Box<dyn Fn() -> Result<Vec<f32>> + 'a>;

/// A tensor to write: its values are asked for when its turn comes, so that they never all lie on the host.
pub struct Source<'a> {
    /// Name in the file.
    pub name: String,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Gives its values, row-major.
    pub read: ReadValues<'a>,
}

impl Source<'_> {
    fn bytes(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64 * F32.size
    }
}

struct Written<'a> {
    source: &'a Source<'a>,
    failure: &'a RefCell<Option<Error>>,
}

impl safetensors::View for Written<'_> {
    fn dtype(&self) -> safetensors::Dtype {
        safetensors::Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.source.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let values = (self.source.read)().unwrap_or_else(|error| {
            self.failure.replace(Some(error));
            Vec::new()
        });
        let mut bytes = Vec::with_capacity(values.len() * 4);
        for value in values {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.source.bytes() as usize
    }
}

/// Writes f32 tensors: the same tensors give the same bytes. The caller sees to atomicity.
///
/// `format` is the one entry of metadata that may be given.
pub fn write_safetensors(path: &Path, tensors: &[Source<'_>], format: Option<&str>) -> Result<()> {
    let failure = RefCell::new(None);
    let views = tensors.iter().map(|source| (source.name.as_str(), Written { source, failure: &failure }));
    let metadata = format.map(|format| HashMap::from([("format".to_owned(), format.to_owned())]));
    let written = safetensors::serialize_to_file(views, metadata, path);
    if let Some(error) = failure.take() {
        return Err(error);
    }
    written.map_err(|error| match error {
        safetensors::SafeTensorError::IoError(error) => Error::io(path, error),
        other => Error::format(path, format!("cannot be written: {other}")),
    })
}

/// Writes `model.safetensors`, or shards of at most `most_bytes` with their index when one would be larger.
///
/// A tensor that is larger than a shard gets a shard of its own.
pub fn write_safetensors_folder(folder: &Path, tensors: &[Source<'_>], most_bytes: u64) -> Result<()> {
    let mut shards: Vec<&[Source<'_>]> = Vec::new();
    let (mut first, mut filled) = (0, 0);
    for (at, tensor) in tensors.iter().enumerate() {
        if at > first && filled + tensor.bytes() > most_bytes {
            shards.push(&tensors[first..at]);
            (first, filled) = (at, 0);
        }
        filled += tensor.bytes();
    }
    shards.push(&tensors[first..]);
    if let [all] = shards[..] {
        return write_safetensors(&folder.join("model.safetensors"), all, Some("pt"));
    }
    let mut weight_map = Vec::new();
    for (number, shard) in shards.iter().enumerate() {
        let file_name = format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len());
        write_safetensors(&folder.join(&file_name), shard, Some("pt"))?;
        weight_map.extend(shard.iter().map(|tensor| (tensor.name.clone(), Value::from(file_name.as_str()))));
    }
    let total: u64 = tensors.iter().map(Source::bytes).sum();
    let index = Value::Table(Table::from([
        ("metadata", Value::Table(Table::from([("total_size", total.into())]))),
        ("weight_map", Value::Table(weight_map.into_iter().collect())),
    ]));
    let path = folder.join("model.safetensors.index.json");
    atomic::write_file(&path, (index.to_json_lines() + "\n").as_bytes())
}

/// The tensors of several safetensors files together.
#[derive(Debug)]
pub struct SafetensorsFolder {
    files: Vec<SafetensorsFile>,
    names: Vec<String>,
    home: HashMap<String, usize>,
}

impl SafetensorsFolder {
    /// Opens `model.safetensors`, or all shards that `model.safetensors.index.json` names.
    pub fn open(folder: &Path) -> Result<Self> {
        let (single, index_path) = (folder.join("model.safetensors"), folder.join("model.safetensors.index.json"));
        if single.exists() {
            return Self::of(vec![SafetensorsFile::open(&single)?]);
        }
        if !index_path.exists() {
            return Err(Error::format(folder, "holds neither model.safetensors nor model.safetensors.index.json"));
        }
        let index = read_json(&index_path)?;
        let weight_map: Option<Vec<(&str, &str)>> = index
            .get("weight_map")
            .and_then(Value::as_table)
            .and_then(|table| table.iter().map(|(name, file)| Some((name, file.as_text()?))).collect());
        let Some(weight_map) = weight_map else {
            return Err(Error::format(&index_path, "has no weight_map from tensor names to file names"));
        };
        if let Some((_, outside)) = weight_map.iter().find(|(_, file)| file.is_empty() || file.contains(['/', '\0'])) {
            let problem = format!("names the file {}, which is outside its folder", quoted(outside));
            return Err(Error::format(&index_path, problem));
        }
        let file_names: BTreeSet<&str> = weight_map.iter().map(|(_, file)| *file).collect();
        let files = file_names.iter().map(|file| SafetensorsFile::open(&folder.join(file)));
        let tensors = Self::of(files.collect::<Result<_>>()?)?;
        for (name, file) in weight_map {
            if tensors.home(name).and_then(|file| file.path.file_name()) != Some(file.as_ref()) {
                let problem = format!("says that tensor {} is in {file}, which lacks it", quoted(name));
                return Err(Error::format(&index_path, problem));
            }
        }
        Ok(tensors)
    }

    fn of(files: Vec<SafetensorsFile>) -> Result<Self> {
        let mut names = Vec::new();
        let mut home: HashMap<String, usize> = HashMap::new();
        for (number, file) in files.iter().enumerate() {
            for name in file.entries.keys() {
                if let Some(other) = home.insert(name.clone(), number) {
                    let other = files[other].path.file_name().unwrap_or_default().to_string_lossy();
                    let problem = format!("tensor {} is in {other} as well", quoted(name));
                    return Err(Error::format(&file.path, problem));
                }
                names.push(name.clone());
            }
        }
        Ok(Self { files, names, home })
    }

    /// Names and tensors, file by file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.names.iter().filter_map(|name| Some((name.as_str(), self.get(name)?)))
    }

    /// A tensor by its name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.home(name)?.get(name)
    }

    /// The file that holds a tensor.
    pub fn home(&self, name: &str) -> Option<&SafetensorsFile> {
        Some(&self.files[*self.home.get(name)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source<'a>(name: &str, shape: &[usize], value: f32) -> Source<'a> {
        let count = shape.iter().product();
        Source { name: name.into(), shape: shape.into(), read: Box::new(move || Ok(vec![value; count])) }
    }

    fn file(header: &[u8], data: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.safetensors");
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header, data].concat();
        std::fs::write(&path, bytes).unwrap();
        (root, path)
    }

    #[test]
    fn tensors_come_back() {
        let root = tempfile::tempdir().unwrap();
        let tensors = [source("b", &[2, 3], 1.5), source("a", &[], -0.0), source("none", &[0, 4], 0.0)];
        write_safetensors_folder(root.path(), &tensors, DEFAULT_SHARD_BYTES).unwrap();
        let folder = SafetensorsFolder::open(root.path()).unwrap();
        let found: Vec<_> = folder.iter().map(|(name, entry)| (name, entry.shape.clone(), entry.dtype)).collect();
        assert_eq!(found, [("a", vec![], F32), ("b", vec![2, 3], F32), ("none", vec![0, 4], F32)]);
        assert_eq!(folder.home("b").unwrap().read_f32("b", 4, 2).unwrap(), [1.5, 1.5]);
        assert!(folder.home("b").unwrap().read_f32("b", 4, 3).is_err());
        assert_eq!(folder.home("a").unwrap().metadata()["format"], "pt");
    }

    #[test]
    fn large_weights_are_cut_into_shards() {
        let root = tempfile::tempdir().unwrap();
        let tensors = [source("a", &[4], 1.0), source("b", &[100], 2.0), source("c", &[4], 3.0)];
        write_safetensors_folder(root.path(), &tensors, 20).unwrap();
        let folder = SafetensorsFolder::open(root.path()).unwrap();
        assert_eq!(folder.iter().count(), 3);
        assert!(folder.home("b").unwrap().path().ends_with("model-00002-of-00003.safetensors"));
    }

    #[test]
    fn a_failing_read_ends_the_writing() {
        let root = tempfile::tempdir().unwrap();
        let bad = Source { name: "a".into(), shape: vec![2], read: Box::new(|| Err(Error::value("lost"))) };
        let error = write_safetensors(&root.path().join("a"), &[bad], None).unwrap_err();
        assert_eq!(error.to_string(), "lost");
    }

    #[test]
    fn each_fault_is_an_error() {
        let cases: [(&[u8], usize, &str); 14] = [
            (br#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#, 15, "its tensors take 16 bytes"),
            (br#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#, 17, "its tensors take 16 bytes"),
            (br#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}}"#, 16, "invalid shape"),
            (br#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}}"#, 16, "invalid shape"),
            (br#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}}"#, 16, "invalid shape"),
            (br#"{"a":{"dtype":"X32","shape":[4],"data_offsets":[0,16]}}"#, 16, "has dtype X32, which this program"),
            (br#"{"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}"#, 16, "invalid value"),
            (br#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}}"#, 16, "overflows"),
            (br#"{"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,16]}}"#, 16, "invalid type"),
            (
                br#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}}"#,
                16,
                "the name 'a' stands there twice",
            ),
            (
                br#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#,
                8,
                "invalid shape",
            ),
            (b"\xff{}", 0, "invalid utf-8"),
            (b"{", 0, "EOF"),
            (b"[]", 0, "an object of tensors"),
        ];
        for (header, data, sentence) in cases {
            let (_root, path) = file(header, &vec![0; data]);
            let error = SafetensorsFile::open(&path).unwrap_err();
            assert!(error.to_string().contains(sentence), "{error}");
            assert_eq!(error.exit_code(), 3);
        }
        for bytes in [&b""[..], b"abc", &[0xff; 8], &[0xff; 100]] {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join("a");
            std::fs::write(&path, bytes).unwrap();
            assert!(SafetensorsFile::open(&path).is_err());
        }
    }

    #[test]
    fn an_index_is_checked() {
        let cases = [
            (r"{}", "has no weight_map"),
            (r#"{"weight_map": {"a": 1}}"#, "has no weight_map"),
            (r#"{"weight_map": {"a": "../x"}}"#, "names the file '../x', which is outside its folder"),
            (r#"{"weight_map": {"a": "gone"}}"#, "cannot be read"),
            (r#"{"weight_map": {"other": "one"}}"#, "says that tensor 'other' is in one, which lacks it"),
            (r#"{"weight_map": {"a": "one", "b": "two"}}"#, "tensor 'a' is in one as well"),
        ];
        for (index, sentence) in cases {
            let root = tempfile::tempdir().unwrap();
            write_safetensors(&root.path().join("one"), &[source("a", &[1], 1.0)], None).unwrap();
            write_safetensors(&root.path().join("two"), &[source("a", &[1], 1.0)], None).unwrap();
            std::fs::write(root.path().join("model.safetensors.index.json"), index).unwrap();
            let error = SafetensorsFolder::open(root.path()).unwrap_err();
            assert!(error.to_string().contains(sentence), "{error}");
        }
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
