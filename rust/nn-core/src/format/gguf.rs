//! GGUF files, little-endian: reading, version 2 and 3, and writing, version 3.
//!
//! A file is a header, entries of metadata, descriptions of the tensors, then their bytes from the next multiple of
//! `general.alignment` on (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>). All of it but the values is checked
//! on opening: every count, length, offset and size against the bytes that are there, before anything is made from it. So
//! what opening takes is bounded by the size of the file, whatever the file says. Tensors and arrays of metadata are views
//! of the mapped file.

mod metadata;
mod reader;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use nn_ffi::HostBytes;

use super::block_formats::{BlockFormat, FORMATS, StoredTensor};
use super::regular::map_file;
use super::value::quoted;
use crate::error::{Error, Result};
pub(crate) use metadata::ARCHITECTURE_KEY;
pub use metadata::{Metadata, MetadataValue, StringArray, ValueType};
use reader::Reader;
pub use write::write_gguf;

const HEADER_BYTES: u64 = 24;

/// A file's description of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Its type: of `FORMATS`, of `TERNARY_FORMATS`, or one that this program only names.
    pub type_name: String,
    /// Row-major: the file's dimensions reversed.
    pub shape: Vec<usize>,
    /// Its first byte in the file.
    pub offset: usize,
    /// Its bytes; `None` where the type is unknown.
    pub bytes: Option<usize>,
}

/// A GGUF file, opened: its metadata and the descriptions of its tensors are checked.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    data: HostBytes,
    version: u32,
    metadata: Metadata,
    entries: Vec<(String, TensorEntry)>,
    places: HashMap<String, usize>,
}

impl GgufFile {
    /// Opens one file. The file must stay as it is while anything of it lives.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] says what is wrong with it.
    pub fn open(path: &Path) -> Result<Self> {
        let data = map_file(path, "GGUF file", HEADER_BYTES)?;
        let mut reader = Reader::new(path, &data);
        let version = reader.header()?;
        let tensors = reader.count("tensors", reader::LEAST_TENSOR)?;
        let count = reader.count("entries of metadata", reader::LEAST_ENTRY)?;
        let mut metadata = BTreeMap::new();
        for _ in 0..count {
            let (key, value) = reader.entry()?;
            if metadata.contains_key(&key) {
                return Err(reader.wrong(format!("the key {} of metadata is there twice", quoted(&key))));
            }
            metadata.insert(key, value);
        }
        let metadata = Metadata::new(metadata);
        let entries = reader.tensors(tensors, metadata.alignment(path)?)?;
        let places = entries.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
        Ok(Self { path: path.to_owned(), data, version, metadata, entries, places })
    }

    fn entry(&self, name: &str) -> Option<&TensorEntry> {
        self.places.get(name).map(|at| &self.entries[*at].1)
    }

    fn mapped(&self, name: &str) -> Option<HostBytes> {
        let entry = self.entry(name)?;
        self.data.slice(entry.offset..entry.offset + entry.bytes.unwrap_or(0))
    }
}

/// A GGUF model: a file, or the parts of a split one. Metadata are those of the first part.
#[derive(Debug)]
pub struct Gguf {
    parts: Vec<GgufFile>,
    /// The part of each tensor.
    home: HashMap<String, usize>,
}

impl Gguf {
    /// Opens a GGUF file; of the first part of a split model (`NAME-00001-of-0000N.gguf`), all its parts.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] says what is wrong with which file.
    pub fn open(path: &Path) -> Result<Self> {
        let first = GgufFile::open(path)?;
        let count = match first.metadata.plain("split.count") {
            None => 1,
            Some(value) => {
                let wrong = || format!("split.count is {}; it must be a whole number, at most 99999", value.shown());
                let count = value.as_integer::<usize>().filter(|count| *count <= 99999);
                count.ok_or_else(|| Error::format(path, wrong()))?
            }
        };
        if count <= 1 {
            return Self::of(vec![first]);
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(stem) = name.strip_suffix(&format!("-00001-of-{count:05}.gguf")) else {
            let problem =
                format!("is a part of a split model; open the part whose name ends with -00001-of-{count:05}.gguf");
            return Err(Error::format(path, problem));
        };
        let mut parts = vec![first];
        for number in 2..=count {
            parts.push(GgufFile::open(&path.with_file_name(format!("{stem}-{number:05}-of-{count:05}.gguf")))?);
        }
        for (number, part) in parts.iter().enumerate() {
            for (key, right) in [("split.no", number), ("split.count", count)] {
                let found = part.metadata.plain(key);
                if found.as_ref().and_then(|value| value.as_integer()) != Some(right) {
                    let found = found.map_or_else(|| "none".to_owned(), |value| value.shown());
                    let problem = format!("{key} is {found}; the name of this part makes it {right}");
                    return Err(Error::format(&part.path, problem));
                }
            }
        }
        let model = Self::of(parts)?;
        let (total, found) = (model.metadata().plain("split.tensors.count"), model.len());
        if let Some(total) = total.filter(|total| total.as_integer() != Some(found)) {
            let problem = format!("split.tensors.count is {}, but the parts have {found} tensors", total.shown());
            return Err(Error::format(path, problem));
        }
        Ok(model)
    }

    fn of(parts: Vec<GgufFile>) -> Result<Self> {
        let mut home: HashMap<String, usize> = HashMap::new();
        for (number, part) in parts.iter().enumerate() {
            for (name, _) in &part.entries {
                if let Some(other) = home.insert(name.clone(), number) {
                    let other = parts[other].path.file_name().unwrap_or_default().to_string_lossy();
                    let problem = format!("tensor {} is in {other} as well", quoted(name));
                    return Err(Error::format(&part.path, problem));
                }
            }
        }
        Ok(Self { parts, home })
    }

    /// The file, of a split model its first part.
    pub fn path(&self) -> &Path {
        &self.parts[0].path
    }

    /// Version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.parts[0].version
    }

    /// What it says of the model.
    pub fn metadata(&self) -> &Metadata {
        &self.parts[0].metadata
    }

    /// Tensors.
    pub fn len(&self) -> usize {
        self.home.len()
    }

    /// Whether it has no tensor.
    pub fn is_empty(&self) -> bool {
        self.home.is_empty()
    }

    /// Names and descriptions of the tensors, in the order of the files.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TensorEntry)> {
        self.parts.iter().flat_map(|part| part.entries.iter()).map(|(name, entry)| (name.as_str(), entry))
    }

    /// The description of a tensor.
    pub fn entry(&self, name: &str) -> Option<&TensorEntry> {
        self.part(name)?.entry(name)
    }

    /// A tensor in a format that this program computes with.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] when there is none of the name, or it is in another.
    pub fn tensor(&self, name: &str) -> Result<StoredTensor> {
        let missing = || Error::format(self.path(), format!("lacks the tensor {}", quoted(name)));
        let part = self.part(name).ok_or_else(missing)?;
        let entry = part.entry(name).ok_or_else(missing)?;
        let Some(format) = BlockFormat::named(&entry.type_name) else {
            let mut known: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
            known.sort_unstable();
            let (name, kind) = (quoted(name), &entry.type_name);
            let problem = format!("tensor {name} is of type {kind}; this program reads {}", known.join(", "));
            return Err(Error::format(&part.path, problem));
        };
        let data = part.mapped(name).ok_or_else(missing)?;
        Ok(StoredTensor { name: name.to_owned(), format, shape: entry.shape.clone(), data, made: None })
    }

    /// The bytes of a tensor of a known type, over the mapped pages of the file.
    pub fn mapped(&self, name: &str) -> Option<HostBytes> {
        self.part(name)?.mapped(name)
    }

    fn part(&self, name: &str) -> Option<&GgufFile> {
        Some(&self.parts[*self.home.get(name)?])
    }
}
