//! The formats of stored weights: their names, their codes in the ABI and in GGUF files, and the sizes of their blocks.
//!
//! A stored matrix is rows of blocks, the last dimension inside the blocks, bytes as they are in a file
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, "ggml_type"; `bindings.h` describes the blocks).

use std::sync::Arc;
use std::{fmt, io};

use nn_ffi::{Bf16, DType, F16, Format, HostBytes};

use crate::error::{Error, Result};

/// A format that kernels multiply with.
#[derive(Debug, PartialEq, Eq)]
pub struct BlockFormat {
    /// As files and messages call it: "q4_0".
    pub name: &'static str,
    /// Its code in the ABI.
    pub code: Format,
    /// Number of the type in a GGUF file.
    pub gguf_type: u32,
    /// Elements of a block.
    pub elements: usize,
    /// Bytes of a block.
    pub bytes: usize,
}

/// A type of GGUF files for matrices of -1, 0 and 1; see [`ternary_blocks`](super::ternary_blocks).
#[derive(Debug, PartialEq, Eq)]
pub struct TernaryFormat {
    /// As files and messages call it: "tq1_0".
    pub name: &'static str,
    /// Number of the type in a GGUF file.
    pub gguf_type: u32,
    /// Elements of a block.
    pub elements: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Bytes after the last row.
    pub tail: usize,
}

const fn block(name: &'static str, code: Format, gguf_type: u32, elements: usize, bytes: usize) -> BlockFormat {
    BlockFormat { name, code, gguf_type, elements, bytes }
}

/// All formats that kernels multiply with, those without blocks first.
pub static FORMATS: [BlockFormat; 16] = [
    block("f32", Format::F32, 0, 1, 4),
    block("f16", Format::F16, 1, 1, 2),
    block("bf16", Format::Bf16, 30, 1, 2),
    block("q4_0", Format::Q40, 2, 32, 18),
    block("q4_1", Format::Q41, 3, 32, 20),
    block("q5_0", Format::Q50, 6, 32, 22),
    block("q5_1", Format::Q51, 7, 32, 24),
    block("q8_0", Format::Q80, 8, 32, 34),
    block("q4_k", Format::Q4K, 12, 256, 144),
    block("q5_k", Format::Q5K, 13, 256, 176),
    block("q6_k", Format::Q6K, 14, 256, 210),
    block("iq4_nl", Format::Iq4Nl, 20, 32, 18),
    block("mxfp4", Format::Mxfp4, 39, 32, 17),
    block("iq4_xs", Format::Iq4Xs, 23, 256, 136),
    block("q2_k", Format::Q2K, 10, 256, 84),
    block("q3_k", Format::Q3K, 11, 256, 110),
];

/// OCP 8-bit floating point, in which caches may be kept; no file has tensors of it.
pub static E4M3: BlockFormat = block("e4m3", Format::E4m3, u32::MAX, 1, 1);

/// llama.cpp's two, and the one of bitnet.cpp.
pub static TERNARY_FORMATS: [TernaryFormat; 3] = [
    TernaryFormat { name: "tq1_0", gguf_type: 34, elements: 256, bytes: 54, tail: 0 },
    TernaryFormat { name: "tq2_0", gguf_type: 35, elements: 256, bytes: 66, tail: 0 },
    TernaryFormat { name: "i2_s", gguf_type: 36, elements: 128, bytes: 32, tail: 32 },
];

/// Types of GGUF files that this program only names: their numbers, names, and elements and bytes of a block.
pub(super) const OTHER_GGUF_TYPES: [(u32, &str, usize, usize); 15] = [
    (9, "q8_1", 32, 40),
    (15, "q8_k", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
    (29, "iq1_m", 256, 56),
    (40, "nvfp4", 64, 36),
];

/// Rows that the form of a format has side by side; see [`BlockFormat::interleaved`].
pub const INTERLEAVED_ROWS: usize = 16;

impl BlockFormat {
    /// The format of a name; `None` when there is none.
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// The dtype of a format without blocks, `None` of the others.
    pub fn dtype(&self) -> Option<DType> {
        match self.code {
            Format::F32 => Some(DType::F32),
            Format::F16 => Some(DType::F16),
            Format::Bf16 => Some(DType::BF16),
            _ => None,
        }
    }

    /// The elements of a format without blocks as f32; `None` for others.
    pub(crate) fn widened(&self, data: &[u8]) -> Option<Vec<f32>> {
        let halves = |number: fn(u16) -> f32| {
            data.chunks_exact(2).map(|bytes| number(u16::from_le_bytes([bytes[0], bytes[1]]))).collect()
        };
        match self.code {
            Format::F32 => Some(data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()),
            Format::F16 => Some(halves(|bits| F16(bits).into())),
            Format::Bf16 => Some(halves(|bits| Bf16(bits).into())),
            _ => None,
        }
    }

    /// The form with sixteen rows side by side (`kernels::interleave_rows`), where there is one.
    pub fn interleaved(&self) -> Option<Format> {
        match self.code {
            Format::Q40 => Some(Format::Q40R16),
            Format::Q41 => Some(Format::Q41R16),
            Format::Q50 => Some(Format::Q50R16),
            Format::Q51 => Some(Format::Q51R16),
            Format::Q80 => Some(Format::Q80R16),
            Format::Q4K => Some(Format::Q4KR16),
            Format::Q5K => Some(Format::Q5KR16),
            Format::Q6K => Some(Format::Q6KR16),
            Format::Iq4Nl => Some(Format::Iq4NlR16),
            Format::Mxfp4 => Some(Format::Mxfp4R16),
            Format::Iq4Xs => Some(Format::Iq4XsR16),
            _ => None,
        }
    }

    /// Bytes of a row; `Error::Value` when it does not end with a whole block.
    pub fn row_bytes(&self, elements: usize) -> Result<usize> {
        let (name, block) = (self.name, self.elements);
        if !elements.is_multiple_of(block) {
            let problem = format!("a row of {elements} elements is not whole blocks of {name} ({block} each)");
            return Err(Error::value(problem));
        }
        Ok(elements / block * self.bytes)
    }
}

impl TernaryFormat {
    /// The format of a name; `None` when there is none.
    pub fn named(name: &str) -> Option<&'static Self> {
        TERNARY_FORMATS.iter().find(|format| format.name == name)
    }
}

/// A tensor as a file has it: its bytes over the file's pages, and a shape with the blocks along its last dimension.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    /// In its file.
    pub name: String,
    /// Of its bytes.
    pub format: &'static BlockFormat,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Its bytes, or what of the file they are made of.
    pub data: HostBytes,
    /// What makes its bytes where the file has the elements in another order: nothing is read, nor kept, before somebody asks.
    pub made: Option<Made>,
}

/// What makes the bytes of a [`StoredTensor`].
#[derive(Clone)]
pub struct Made(Arc<dyn Fn() -> io::Result<HostBytes> + Send + Sync>);

impl Made {
    /// Of a function, whose errors are those of memory.
    pub fn new(make: impl Fn() -> io::Result<HostBytes> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Made")
    }
}

impl StoredTensor {
    /// Elements of a row: the last dimension, 1 of a scalar.
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Rows, all dimensions but the last together.
    pub fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    /// Elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.columns() / self.format.elements * self.format.bytes
    }

    /// Its bytes; no copy unless they are made, then a new one with each call. `Error::OutOfMemory` when there is no memory for it.
    pub fn bytes(&self) -> Result<HostBytes> {
        let Some(made) = &self.made else { return Ok(self.data.clone()) };
        (made.0)()
            .map_err(|error| Error::OutOfMemory(format!("the elements of {} cannot be ordered: {error}", self.name)))
    }

    /// How many those are.
    pub fn byte_count(&self) -> usize {
        self.rows() * self.row_bytes()
    }

    /// A copy whose groups of as many rows as `order` has, such as the heads of queries, have their rows in that order.
    pub(crate) fn rows_in_order(&self, order: &[usize]) -> Result<Self> {
        let (size, bytes) = (self.row_bytes(), self.bytes()?);
        let rows = (0..self.rows()).step_by(order.len()).flat_map(|first| order.iter().map(move |row| first + row));
        let data = HostBytes::joined(rows.map(|row| &bytes[row * size..(row + 1) * size]));
        let data = data.map_err(|error| {
            Error::OutOfMemory(format!("the rows of {} cannot be put into another order: {error}", self.name))
        })?;
        Ok(Self { data, made: None, ..self.clone() })
    }

    /// The elements of a format without blocks as f32: for norms, biases, routers. `Error::Value` for others.
    pub fn f32(&self) -> Result<Vec<f32>> {
        let in_blocks = || Error::value(format!("tensor {} is in {}, a block format", self.name, self.format.name));
        self.format.widened(&self.bytes()?).ok_or_else(in_blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_sizes_of_the_library() {
        for format in &FORMATS {
            for blocks in [0, 1, 3] {
                let elements = blocks * format.elements;
                let library = nn_ffi::library::row_bytes(format.code, elements as i64).unwrap();
                assert_eq!(format.row_bytes(elements).unwrap() as i64, library, "{}", format.name);
            }
            assert!(format.elements == 1 || format.row_bytes(format.elements + 1).is_err());
        }
    }

    #[test]
    fn plain_elements_are_numbers() {
        let tensor = |name: &str, bytes: &[u8]| StoredTensor {
            name: "x".into(),
            format: BlockFormat::named(name).unwrap(),
            shape: vec![1, 2],
            data: HostBytes::joined([bytes]).unwrap(),
            made: None,
        };
        assert_eq!(tensor("f16", &[0, 0x3c, 0, 0xc0]).f32().unwrap(), [1.0, -2.0]);
        assert_eq!(tensor("bf16", &[0xc0, 0x3f, 0, 0]).f32().unwrap(), [1.5, 0.0]);
        assert_eq!(tensor("f32", &[0, 0, 0x20, 0x41, 0, 0, 0, 0]).f32().unwrap(), [10.0, 0.0]);
        assert!(tensor("q8_0", &[]).f32().is_err());
    }
}
