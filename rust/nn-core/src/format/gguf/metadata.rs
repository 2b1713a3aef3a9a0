//! Metadata of GGUF files: values by key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nn_ffi::HostBytes;

use super::super::value::Value;
use crate::error::{Error, Result};
use crate::tokenizer::gguf as tokenizer;

pub(super) const DEFAULT_ALIGNMENT: usize = 32;
const ALIGNMENT_KEY: &str = "general.alignment";
/// The name of a file's model, with which the keys of what is said of that model begin.
pub(crate) const ARCHITECTURE_KEY: &str = "general.architecture";

/// Elements of an array that a message could show.
const SHOWN_ELEMENTS: usize = 64;

/// The type of a value, in the order of the numbers by which files name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// u8.
    U8,
    /// i8.
    I8,
    /// u16.
    U16,
    /// i16.
    I16,
    /// u32.
    U32,
    /// i32.
    I32,
    /// f32.
    F32,
    /// A byte, 0 or 1.
    Bool,
    /// Text in UTF-8.
    String,
    /// Elements of one type.
    Array,
    /// u64.
    U64,
    /// i64.
    I64,
    /// f64.
    F64,
}

impl ValueType {
    pub(super) const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// As messages call it.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 13] =
            ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"];
        NAMES[self as usize]
    }

    /// Bytes of a value; 0 of those that have no fixed size.
    pub(super) fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::String | Self::Array => 0,
        }
    }

    /// The value of as many bytes as the type has.
    pub(super) fn read(self, bytes: &[u8]) -> Value {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => bits.into(),
            Self::I8 => i64::from(bits as i8).into(),
            Self::I16 => i64::from(bits as i16).into(),
            Self::I32 => i64::from(bits as i32).into(),
            Self::I64 => (bits as i64).into(),
            Self::F32 => f64::from(f32::from_bits(bits as u32)).into(),
            Self::F64 => f64::from_bits(bits).into(),
            Self::Bool => (bits != 0).into(),
            Self::String | Self::Array => Value::None,
        }
    }
}

/// A value of metadata.
#[derive(Clone, Debug)]
pub enum MetadataValue {
    /// A number, a bool or a text, and its type.
    One(ValueType, Value),
    /// An array of numbers or bools of one type, as the file has them.
    Numbers(ValueType, HostBytes),
    /// An array of texts.
    Strings(StringArray),
}

impl MetadataValue {
    /// The elements of an array of numbers or bools; `None` of other values.
    pub fn numbers(&self) -> Option<impl ExactSizeIterator<Item = Value>> {
        let Self::Numbers(kind, bytes) = self else { return None };
        Some(bytes.chunks_exact(kind.size()).map(|bytes| kind.read(bytes)))
    }

    /// The strings of an array of texts; `None` of other values.
    pub fn strings(&self) -> Option<&StringArray> {
        if let Self::Strings(strings) = self { Some(strings) } else { None }
    }
}

/// An array of strings of a file, each decoded when it is asked for.
#[derive(Clone, Debug)]
pub struct StringArray {
    path: PathBuf,
    key: String,
    data: HostBytes,
    /// Of each string, the first byte in the file; its length stands in the 8 bytes before.
    starts: Vec<usize>,
}

impl StringArray {
    pub(super) fn new(path: &Path, key: &str, data: HostBytes, starts: Vec<usize>) -> Self {
        Self { path: path.to_owned(), key: key.to_owned(), data, starts }
    }

    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// A string as the file has it; `None` when there is none of the index.
    pub fn bytes(&self, index: usize) -> Option<&[u8]> {
        let start = *self.starts.get(index)?;
        let length = u64::from_le_bytes(self.data[start - 8..start].try_into().ok()?);
        self.data.get(start..start + usize::try_from(length).ok()?)
    }

    /// A string; `None` when there is none of the index.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] when it is not UTF-8.
    pub fn get(&self, index: usize) -> Result<Option<&str>> {
        let text = |bytes| text(&self.path, bytes, &format!("string {index} of {}", self.key));
        self.bytes(index).map(text).transpose()
    }
}

pub(super) fn text<'a>(path: &Path, bytes: &'a [u8], what: &str) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Error::format(path, format!("{what} is not UTF-8 (invalid at its byte {at})"))
    })
}

/// The metadata of a file: values by key.
#[derive(Clone, Debug)]
pub struct Metadata(BTreeMap<String, MetadataValue>);

impl Metadata {
    pub(super) fn new(entries: BTreeMap<String, MetadataValue>) -> Self {
        Self(entries)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.0.get(key)
    }

    /// Keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &MetadataValue)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of a key where one value is meant: of an array of numbers that are all the same, as some files have one for
    /// each layer, that number. Of other arrays as many elements as a message shows.
    pub fn plain(&self, key: &str) -> Option<Value> {
        Some(match self.get(key)? {
            MetadataValue::One(_, value) => value.clone(),
            value @ MetadataValue::Numbers(kind, bytes) => {
                let mut elements = value.numbers()?;
                let first = bytes.get(..kind.size());
                match first.filter(|first| bytes.chunks_exact(kind.size()).all(|each| each == *first)) {
                    Some(first) => kind.read(first),
                    None => Value::List(elements.by_ref().take(SHOWN_ELEMENTS).collect()),
                }
            }
            MetadataValue::Strings(strings) => {
                let texts = (0..strings.len().min(SHOWN_ELEMENTS)).filter_map(|at| strings.bytes(at));
                Value::List(texts.map(|text| String::from_utf8_lossy(text).into_owned().into()).collect())
            }
        })
    }

    /// Of what the tensors' offsets are multiples.
    pub(super) fn alignment(&self, path: &Path) -> Result<usize> {
        let Some(value) = self.get(ALIGNMENT_KEY) else { return Ok(DEFAULT_ALIGNMENT) };
        let number = match value {
            MetadataValue::One(ValueType::U32, value) => value.as_integer::<usize>(),
            _ => None,
        };
        number.filter(|number| *number >= 8 && number.is_power_of_two()).ok_or_else(|| {
            let kind = match value {
                MetadataValue::One(kind, _) => kind.name().to_owned(),
                MetadataValue::Numbers(kind, _) => format!("{}[]", kind.name()),
                MetadataValue::Strings(_) => "string[]".to_owned(),
            };
            let shown = self.plain(ALIGNMENT_KEY).unwrap_or(Value::None).shown();
            let problem = format!("{ALIGNMENT_KEY} is {shown} ({kind}); it must be a power of two (u32), 8 or more");
            Error::format(path, problem)
        })
    }
}

impl tokenizer::Metadata for Metadata {
    fn value(&self, key: &str) -> Option<tokenizer::MetadataValue<'_>> {
        use tokenizer::MetadataValue as Told;
        Some(match self.get(key)? {
            MetadataValue::One(_, Value::Bool(value)) => Told::Bool(*value),
            MetadataValue::One(_, Value::Integer(value)) => Told::Whole(*value),
            MetadataValue::One(_, Value::Float(value)) => Told::Float(*value),
            MetadataValue::One(_, Value::Text(value)) => Told::Text(value),
            MetadataValue::One(..) | MetadataValue::Numbers(ValueType::Bool, _) => Told::Other,
            value @ MetadataValue::Numbers(ValueType::F32 | ValueType::F64, _) => {
                Told::Floats(value.numbers()?.filter_map(|value| Some(value.as_number()? as f32)).collect())
            }
            value @ MetadataValue::Numbers(..) => {
                Told::Wholes(value.numbers()?.filter_map(|value| value.as_integer()).collect())
            }
            MetadataValue::Strings(strings) => {
                let texts = (0..strings.len()).map(|at| std::str::from_utf8(strings.bytes(at)?).ok());
                // Whoever wants text has no use for what is none.
                texts.collect::<Option<_>>().map_or(Told::Other, Told::Texts)
            }
        })
    }
}
