//! What came out against what was expected.

use nn_ffi::{Bf16, DType, F16};

use crate::fixtures::Content;

/// The largest error over the finite elements, and what is wrong in words, if anything is: NaN and infinities must be where
/// they are expected, and with `zeros` so must zeros. Whole numbers must be equal.
pub(crate) fn compare(got: &[u8], dtype: DType, expected: &Content, tolerance: f64, zeros: bool) -> (f64, String) {
    if dtype == DType::I64 && expected.dtype == "i64" {
        // Sums modulo 2^64, which f64 would round.
        let differ =
            got.as_chunks::<8>().0.iter().zip(expected.bytes.as_chunks::<8>().0).filter(|(a, b)| a != b).count();
        return match differ {
            _ if got.len() != expected.bytes.len() => {
                (f64::INFINITY, format!("{} bytes, not {}", got.len(), expected.bytes.len()))
            }
            0 => (0.0, String::new()),
            _ => (f64::INFINITY, format!("{differ} sums of {} are others", got.len() / 8)),
        };
    }
    let got = widened(got, dtype);
    let wanted = match expected.dtype.as_str() {
        "f32" => widened(&expected.bytes, DType::F32),
        "i32" => widened(&expected.bytes, DType::I32),
        "i8" => widened(&expected.bytes, DType::I8),
        "u8" => widened(&expected.bytes, DType::U8),
        other => return (f64::INFINITY, format!("the fixture expects {other}")),
    };
    if got.len() != wanted.len() {
        return (f64::INFINITY, format!("{} elements, not {}", got.len(), wanted.len()));
    }
    let errors = got.iter().zip(&wanted).map(|(got, wanted)| error(*got, *wanted, zeros));
    let (mut largest, mut at, mut beyond) = (0.0, 0, 0);
    for (index, error) in errors.enumerate() {
        if error > largest {
            (largest, at) = (error, index);
        }
        beyond += usize::from(error > tolerance);
    }
    if beyond == 0 {
        return (largest, String::new());
    }
    let count = got.len();
    let (value, wanted) = (got[at], wanted[at]);
    let problem = format!(
        "element {at} is {value:e}, expected {wanted:e}: off by {largest:e}, tolerance {tolerance:e} ({beyond} of {count} \
         are beyond it)"
    );
    (largest, problem)
}

fn error(got: f64, wanted: f64, zeros: bool) -> f64 {
    let same = got == wanted || (got.is_nan() && wanted.is_nan());
    if zeros && wanted == 0.0 && got != 0.0 {
        return f64::INFINITY;
    }
    match (wanted.is_finite(), got.is_finite()) {
        (true, true) => (got - wanted).abs(),
        _ if same => 0.0,
        _ => f64::INFINITY,
    }
}

/// Elements as numbers; f64 holds each exactly.
fn widened(bytes: &[u8], dtype: DType) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|chunk| number(*chunk)).collect()
    }
    match dtype {
        DType::F32 => each(bytes, |raw| f64::from(f32::from_le_bytes(raw))),
        DType::F16 => each(bytes, |raw| f64::from(f32::from(F16(u16::from_le_bytes(raw))))),
        DType::BF16 => each(bytes, |raw| f64::from(f32::from(Bf16(u16::from_le_bytes(raw))))),
        DType::I32 => each(bytes, |raw| f64::from(i32::from_le_bytes(raw))),
        DType::I8 => each(bytes, |raw| f64::from(i8::from_le_bytes(raw))),
        DType::U8 => each(bytes, |raw| f64::from(u8::from_le_bytes(raw))),
        other => panic!("no kernel writes {other}"),
    }
}
