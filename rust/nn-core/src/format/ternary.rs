//! Matrices of -1, 0 and 1 times one number, in every form in which files have them.
//!
//! W = codes * scale, whatever a file's own convention is. The number of `weight_scale` in a Hugging Face folder is that
//! factor or what to divide by, and the forms differ in where a code lies: `docs/formats.md` has all of them. (Ma et al. 2024,
//! "The Era of 1-bit LLMs")

use std::path::{Path, PathBuf};

use nn_ffi::HostBytes;

use super::block_formats::{StoredTensor, TernaryFormat};
use super::ternary_blocks;
use crate::error::{Error, Result};

/// Rows and columns of a unit of tern2.
const LANES: usize = 16;

/// A stored matrix `[n, k]` of ternary weights; what is wrong with its bytes is an [`Error::Format`] where it is found.
#[derive(Debug)]
pub struct TernaryMatrix {
    path: PathBuf,
    /// Of the tensor in its file.
    pub name: String,
    /// `[n, k]`.
    pub shape: [usize; 2],
    /// Its bytes, over the file's pages.
    pub data: HostBytes,
    /// How they are to be read.
    pub form: Form,
}

/// The forms of ternary matrices.
#[derive(Clone, Debug)]
pub enum Form {
    /// Master weights in f32, f16 or bf16, of which `kernels::ternary_quantize` makes codes and scale.
    Master(StoredTensor),
    /// Hugging Face's packed weights: byte `[r, c]` of u8 `[n/4, k]` has at bits 2i the code of row r + i * n/4, plus 1.
    Packed {
        /// W = codes * scale.
        scale: f32,
    },
    /// The codes as the numbers -1, 0 and 1.
    Numbers {
        /// The numbers.
        stored: StoredTensor,
        /// W = codes * scale.
        scale: f32,
    },
    /// Numbers that are all 0 or of one magnitude, which is the scale.
    Multiples {
        /// The numbers.
        stored: StoredTensor,
        /// What the scale is to be multiplied with.
        factor: f32,
    },
    /// The bytes that `kernels::ternary_pack` makes.
    Tern2 {
        /// W = codes * scale.
        scale: f32,
    },
    /// A type of GGUF files, which has its scale among its bytes.
    Blocks {
        /// Which.
        format: &'static TernaryFormat,
        /// What the scale is to be multiplied with.
        factor: f32,
    },
}

impl Form {
    /// As descriptions call it: "packed", "codes", "tern2", a type of GGUF files, or the format of master weights.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Master(stored) => stored.format.name,
            Self::Packed { .. } => "packed",
            Self::Numbers { .. } | Self::Multiples { .. } => "codes",
            Self::Tern2 { .. } => "tern2",
            Self::Blocks { format, .. } => format.name,
        }
    }
}

impl TernaryMatrix {
    /// A matrix of a file or folder; the bytes must be as many as form and shape make it.
    pub fn new(path: &Path, name: &str, shape: [usize; 2], data: HostBytes, form: Form) -> Self {
        Self { path: path.to_owned(), name: name.to_owned(), shape, data, form }
    }

    /// An error about this matrix.
    pub fn wrong(&self, problem: &str) -> Error {
        Error::format(&self.path, format!("tensor {} {problem}", self.name))
    }

    /// Codes -1, 0 and 1, `[n, k]`, and the scale. Of master weights a kernel makes them: they have none here.
    ///
    /// # Errors
    ///
    /// [`Error::Format`] when the bytes are not those of ternary weights.
    pub fn codes(&self) -> Result<Option<(Vec<i8>, f32)>> {
        Ok(Some(match &self.form {
            Form::Master(_) => return Ok(None),
            Form::Packed { scale } => {
                self.check_bits(&self.data)?;
                let parts =
                    [0, 2, 4, 6].into_iter().flat_map(|shift| self.data.iter().map(move |byte| code(*byte, shift)));
                (parts.collect(), *scale)
            }
            Form::Numbers { stored, scale } => (self.numbers(stored)?, *scale),
            Form::Multiples { stored, factor } => self.multiples(stored, *factor)?,
            Form::Tern2 { scale } => {
                let [rows, columns] = self.shape;
                let whole = tern2_whole(self.tern2()?, tern2_shape(self.shape));
                let wide = columns.next_multiple_of(LANES);
                (whole.chunks_exact(wide).take(rows).flat_map(|row| &row[..columns]).copied().collect(), *scale)
            }
            Form::Blocks { format, factor } => {
                let (codes, scale) = ternary_blocks::codes(self, format)?;
                (codes, self.checked_scale(scale * factor, "scale")?)
            }
        }))
    }

    /// The bytes of a matrix in the form `Tern2`, checked: u8 `[stored, row_bytes]`.
    ///
    /// # Errors
    ///
    /// As [`codes`](Self::codes).
    pub fn tern2(&self) -> Result<&[u8]> {
        self.check_bits(&self.data)?;
        let [rows, columns] = self.shape;
        if !(rows.is_multiple_of(LANES) && columns.is_multiple_of(LANES)) {
            let whole = tern2_whole(&self.data, tern2_shape(self.shape));
            let beyond = |(at, row): (usize, &[i8])| {
                let first = if at < rows { columns } else { 0 };
                row[first..].iter().any(|code| *code != 0)
            };
            if whole.chunks_exact(columns.next_multiple_of(LANES)).enumerate().any(beyond) {
                return Err(self.wrong("has weights other than 0 beyond its last row or column"));
            }
        }
        Ok(&self.data)
    }

    /// A scale, which must be finite and above 0.
    pub(super) fn checked_scale(&self, scale: f32, name: &str) -> Result<f32> {
        checked_scale(scale, name, |problem| self.wrong(problem))
    }

    /// Refuses a pair of bits that is neither 0, 1 nor 2.
    pub(super) fn check_bits(&self, packed: &[u8]) -> Result<()> {
        if packed.iter().any(|byte| byte & (byte >> 1) & 0x55 != 0) {
            return Err(self.wrong("has a two-bit code 3, which is not a ternary weight"));
        }
        Ok(())
    }

    fn numbers(&self, stored: &StoredTensor) -> Result<Vec<i8>> {
        let problem = "has values other than -1, 0 and 1 beside its weight_scale";
        let code = |number: f32| match number {
            1.0 => Ok(1),
            -1.0 => Ok(-1),
            0.0 => Ok(0),
            _ => Err(self.wrong(problem)),
        };
        stored.f32()?.into_iter().map(code).collect()
    }

    fn multiples(&self, stored: &StoredTensor, factor: f32) -> Result<(Vec<i8>, f32)> {
        let problem = "has values of more than one magnitude; the weights of a GGUF file must be ternary already";
        let values = stored.f32()?;
        let largest = values.iter().map(|value| value.abs()).fold(0.0, f32::max);
        let code = |value: f32| match value {
            0.0 => Ok(0),
            value if value == largest && largest.is_finite() => Ok(1),
            value if value == -largest && largest.is_finite() => Ok(-1),
            _ => Err(self.wrong(problem)),
        };
        let codes = values.into_iter().map(code).collect::<Result<_>>()?;
        let scale = if largest == 0.0 { 1.0 } else { largest };
        Ok((codes, self.checked_scale(scale * factor, "scale")?))
    }
}

/// A scale of a file, which must be finite and above 0.
pub(crate) fn checked_scale(scale: f32, name: &str, wrong: impl FnOnce(&str) -> Error) -> Result<f32> {
    if scale.is_finite() && scale > 0.0 {
        return Ok(scale);
    }
    let shown = if scale.is_nan() { "nan".to_owned() } else { format!("{scale:?}") };
    Err(wrong(&format!("has the {name} {shown}; it must be finite and above 0")))
}

/// The code in two bits of a byte, which have it plus 1.
pub(super) fn code(byte: u8, shift: u32) -> i8 {
    (byte >> shift & 3) as i8 - 1
}

/// Stored rows and bytes a row of a matrix `[n, k]` in tern2.
pub fn tern2_shape([rows, columns]: [usize; 2]) -> [usize; 2] {
    [rows.div_ceil(LANES) * LANES, columns.div_ceil(LANES) * 4]
}

/// The codes of tern2 with those that fill up the last sixteen rows and columns: byte j of the word of row r and sixteen
/// columns has at bits 2i the weight of column j + 4i; words lie as `[row / 16][column / 16][row mod 16]`.
fn tern2_whole(packed: &[u8], [stored, row_bytes]: [usize; 2]) -> Vec<i8> {
    let (units, wide) = (row_bytes / 4, row_bytes * 4);
    let mut codes = vec![0; stored * wide];
    for (at, word) in packed.chunks_exact(4).enumerate() {
        let (group, unit, lane) = (at / (units * LANES), at / LANES % units, at % LANES);
        let first = (group * LANES + lane) * wide + unit * LANES;
        for (column, place) in codes[first..first + LANES].iter_mut().enumerate() {
            *place = code(word[column % 4], 2 * (column / 4) as u32);
        }
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block_formats::BlockFormat;

    fn matrix(shape: [usize; 2], bytes: &[u8], form: Form) -> TernaryMatrix {
        TernaryMatrix::new(Path::new("x"), "w", shape, HostBytes::joined([bytes]).unwrap(), form)
    }

    fn f32s(values: &[f32]) -> StoredTensor {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let (format, data) = (BlockFormat::named("f32").unwrap(), HostBytes::joined([&bytes[..]]).unwrap());
        StoredTensor { name: "w".into(), format, shape: vec![1, values.len()], data, made: None }
    }

    #[test]
    fn four_outputs_lie_in_a_byte() {
        let packed = matrix([4, 2], &[0b10_01_00_10, 0b00_01_10_01], Form::Packed { scale: 0.5 });
        assert_eq!(packed.codes().unwrap().unwrap(), (vec![1, 0, -1, 1, 0, 0, 1, -1], 0.5));
        let wrong = matrix([4, 1], &[0b11], Form::Packed { scale: 0.5 });
        assert!(wrong.codes().unwrap_err().to_string().contains("two-bit code 3"));
    }

    #[test]
    fn tern2_comes_back_and_ends_with_zeros() {
        let context = nn_ffi::Context::new(nn_ffi::Device::Cpu).unwrap();
        for shape in [[16, 16], [3, 5], [33, 40]] {
            let codes: Vec<i8> = (0..shape[0] * shape[1]).map(|at| (at * 7 % 3) as i8 - 1).collect();
            let given = context.tensor(&codes, &shape).unwrap();
            let packed = context.empty(&tern2_shape(shape), nn_ffi::DType::U8).unwrap();
            nn_ffi::kernels::ternary_pack(&given, &packed).unwrap();
            let mut bytes: Vec<u8> = packed.to_vec().unwrap();
            let form = Form::Tern2 { scale: 2.0 };
            assert_eq!(matrix(shape, &bytes, form.clone()).codes().unwrap().unwrap(), (codes, 2.0));
            let last = bytes.len() - 1;
            bytes[last] ^= 0b11_00_00_00; // the last column of the last row: 0 becomes 2, which is 1
            bytes[last] &= 0b10_11_11_11;
            assert_eq!(matrix(shape, &bytes, form).tern2().is_ok(), shape == [16, 16]);
        }
    }

    #[test]
    fn numbers_are_codes_or_multiples_of_one() {
        let form = Form::Numbers { stored: f32s(&[1.0, -0.0, -1.0]), scale: 3.0 };
        assert_eq!(matrix([1, 3], &[], form).codes().unwrap().unwrap(), (vec![1, 0, -1], 3.0));
        let form = Form::Multiples { stored: f32s(&[0.0, 0.25, -0.25]), factor: 2.0 };
        assert_eq!(matrix([1, 3], &[], form).codes().unwrap().unwrap(), (vec![0, 1, -1], 0.5));
        for values in [[1.0, 2.0], [f32::NAN, 1.0], [f32::INFINITY, 0.0]] {
            let form = Form::Multiples { stored: f32s(&values), factor: 1.0 };
            assert!(matrix([1, 2], &[], form).codes().is_err(), "{values:?}");
            let form = Form::Numbers { stored: f32s(&values), scale: 1.0 };
            assert!(matrix([1, 2], &[], form).codes().is_err(), "{values:?}");
        }
    }
}
