//! Runs a case through the kernel's typed function, which solves sizes, strides and dtypes from tensors, so that no argument
//! can be in another's place. Outputs start as NaN. What a call may not touch, Python's runner of the same fixtures checks.

use std::collections::BTreeMap;

use nn_ffi::catalogue::{Argument, Kernel, Kind, Parameter};
use nn_ffi::{Context, DType, Error, Result, Tensor};
use serde_json::Value;

use crate::compare::compare;
use crate::fixtures::{Case, Content};

/// What one output of one call came to; `problem` is empty when nothing was wrong.
#[derive(Clone)]
pub(crate) struct Outcome {
    pub(crate) what: String,
    pub(crate) share: f64,
    pub(crate) problem: String,
}

/// A tensor of a case, and the memory that it may be a part of.
struct Placed {
    whole: Tensor,
    tensor: Tensor,
    bytes: usize,
}

/// Every output of the call.
pub(crate) fn run(context: &Context, case: &Case) -> Result<Vec<Outcome>> {
    let kernel =
        Kernel::find(&case.kernel).ok_or_else(|| Error::Value(format!("no kernel is named {}", case.kernel)))?;
    let mut placed = BTreeMap::new();
    for parameter in kernel.parameters {
        let Kind::Tensor { shape, stride, .. } = parameter.kind else { continue };
        let dtype = dtype(parameter, case)?;
        let content = match (case.inputs.get(parameter.name), case.outputs.get(parameter.name)) {
            (Some(input), _) => input.bytes.clone(),
            (None, Some(output)) => blank(output, dtype),
            (None, None) => continue,
        };
        let shape = dimensions(shape, case)?;
        let stride = if stride.is_empty() { None } else { Some(size(stride, case)?) };
        placed.insert(parameter.name, place(context, &shape, stride, dtype, content)?);
    }
    let mut arguments = Vec::new();
    for parameter in kernel.parameters {
        arguments.push(match parameter.kind {
            Kind::Tensor { .. } => Argument::Tensor(placed.get(parameter.name).map(|placed| &placed.tensor)),
            _ => scalar(parameter, case)?,
        });
    }
    let failure = kernel.call(&arguments).and_then(|()| context.synchronize()).err();
    let mut outcomes = Vec::new();
    for parameter in kernel.parameters {
        let Some(expected) = case.outputs.get(parameter.name) else { continue };
        let Placed { whole, bytes, .. } = &placed[parameter.name];
        let mut now = vec![0; whole.len() * whole.dtype().size()];
        whole.copy_to_bytes(&mut now)?;
        let tolerance = case.tolerance.get(parameter.name).copied().unwrap_or(0.0);
        let zeros = case.zeros.iter().any(|name| name == parameter.name);
        let (error, problem) = compare(&now[..*bytes], whole.dtype(), expected, tolerance, zeros);
        let problem = failure.as_ref().map_or(problem, ToString::to_string);
        let what = format!("{}/{}: {}", case.kernel, case.name, parameter.name);
        outcomes.push(Outcome { what, share: if tolerance == 0.0 { 0.0 } else { error / tolerance }, problem });
    }
    Ok(outcomes)
}

fn dtype(parameter: &Parameter, case: &Case) -> Result<DType> {
    let Kind::Tensor { dtype, .. } = parameter.kind else { return Err(Error::Value(parameter.name.to_owned())) };
    case.scalars.get(dtype).and_then(Value::as_str).unwrap_or(dtype).parse()
}

fn blank(content: &Content, dtype: DType) -> Vec<u8> {
    // Expected values are f32, i32, i8 or u8, which have as many elements as the output.
    let elements = content.bytes.len() / if matches!(content.dtype.as_str(), "i8" | "u8") { 1 } else { 4 };
    let byte = if matches!(dtype, DType::I32 | DType::I8 | DType::U8) { 0x5A } else { 0xFF };
    vec![byte; elements * dtype.size()]
}

/// A number of a case, as it goes into the call.
fn scalar(parameter: &Parameter, case: &Case) -> Result<Argument<'static>> {
    let value = case.scalars.get(parameter.name);
    let argument = match parameter.kind {
        Kind::DType => {
            let name = value.and_then(Value::as_str).unwrap_or_default();
            Some(Argument::Integer(i64::from(name.parse::<DType>()?.code())))
        }
        Kind::Float => match value.and_then(Value::as_str) {
            Some("inf") => Some(Argument::Float(f64::INFINITY)),
            Some("-inf") => Some(Argument::Float(f64::NEG_INFINITY)),
            Some(_) => None,
            None => value.and_then(Value::as_f64).map(Argument::Float),
        },
        _ => value.and_then(Value::as_i64).map(Argument::Integer),
    };
    argument.ok_or_else(|| Error::Value(format!("{}/{}: {} is {value:?}", case.kernel, case.name, parameter.name)))
}

/// A tensor of a shape, its rows as far apart as the case has them, filled with the content.
fn place(
    context: &Context,
    shape: &[usize],
    stride: Option<usize>,
    dtype: DType,
    mut content: Vec<u8>,
) -> Result<Placed> {
    let bytes = content.len();
    let inner: usize = shape[1..].iter().product();
    let (whole, tensor) = match stride.filter(|stride| *stride > inner && shape[0] > 1) {
        None => {
            let whole = context.empty(shape, dtype)?;
            (whole.clone(), whole)
        }
        Some(stride) => {
            let whole = context.empty(&[shape[0], stride], dtype)?;
            (whole.clone(), whole.narrow(1, 0, inner)?.view(shape)?)
        }
    };
    // The gap after the last row is not part of the fixture, and that of a single row not part of the tensor.
    content.resize(whole.len() * dtype.size(), 0xFF);
    whole.copy_from_bytes(&content)?;
    Ok(Placed { bytes: bytes.min(content.len()), whole, tensor })
}

fn size(name: &str, case: &Case) -> Result<usize> {
    let value = case.scalars.get(name).and_then(Value::as_u64);
    let value = value.and_then(|value| usize::try_from(value).ok());
    value.ok_or_else(|| Error::Value(format!("{}/{} has no {name}", case.kernel, case.name)))
}

/// The value of a shape such as `[batch*q_len:ld_q, heads, head_dim/2]^flag`.
fn dimensions(shape: &str, case: &Case) -> Result<Vec<usize>> {
    let (dims, flag) = shape.split_once(']').unwrap_or((shape, ""));
    let mut values = Vec::new();
    for dim in dims.trim_start_matches('[').split(", ") {
        let dim = dim.split(':').next().unwrap_or(dim);
        let (dim, offset) = dim.split_once('+').unwrap_or((dim, "0"));
        let (product, divisor) = dim.split_once('/').unwrap_or((dim, "1"));
        let number = |text: &str| text.parse::<usize>().or_else(|_| size(text, case));
        let product = product.split('*').map(number).product::<Result<usize>>()?;
        values.push(product / number(divisor)? + number(offset)?);
    }
    let swapped =
        flag.strip_prefix('^').is_some_and(|flag| case.scalars.get(flag).and_then(|flag| flag.as_u64()) == Some(1));
    if swapped {
        let last = values.len() - 1;
        values.swap(last - 1, last);
    }
    Ok(values)
}
