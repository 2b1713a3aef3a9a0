//! Runs a case: outputs start as NaN, every buffer lies between guard bytes, and nothing but the outputs may change.

use std::collections::BTreeMap;
use std::ffi::c_void;

use nn_ffi::catalogue::{Kernel, Kind, Parameter, Slot};
use nn_ffi::{Context, DType, Error, Result, Tensor};
use serde_json::Value;

use crate::compare::compare;
use crate::fixtures::{Case, Content};

const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xC3;

/// What one output of one call came to; `problem` is empty when nothing was wrong.
#[derive(Clone)]
pub(crate) struct Outcome {
    pub(crate) what: String,
    pub(crate) share: f64,
    pub(crate) problem: String,
}

/// Device memory of one parameter between guards, and the bytes that it was filled with.
struct Buffer {
    memory: Tensor,
    start: usize,
    image: Vec<u8>,
}

impl Buffer {
    fn new(context: &Context, content: &[u8], itemsize: usize, aligned: bool) -> Result<Self> {
        // Memory is aligned to 256 bytes: one element further on, the data is aligned to its element alone.
        let start = GUARD + if aligned { 0 } else { itemsize };
        let mut image = vec![GUARD_BYTE; start + content.len() + GUARD];
        image[start..start + content.len()].copy_from_slice(content);
        Ok(Self { memory: context.tensor(&image, &[image.len()])?, start, image })
    }

    fn address(&self) -> *mut c_void {
        self.memory.pointer().cast::<u8>().wrapping_add(self.start).cast()
    }

    fn data<'image>(&self, image: &'image [u8]) -> &'image [u8] {
        &image[self.start..image.len() - GUARD]
    }

    fn guards_hold(&self, now: &[u8]) -> bool {
        let guards = now[..self.start].iter().chain(&now[now.len() - GUARD..]);
        guards.into_iter().all(|byte| *byte == GUARD_BYTE)
    }
}

/// Every output of the plain call, and of each call in which an output may be an input and is, on buffers that are aligned
/// to their element alone and again on aligned ones.
pub(crate) fn run(context: &Context, case: &Case) -> Result<Vec<Outcome>> {
    let kernel =
        Kernel::find(&case.kernel).ok_or_else(|| Error::Value(format!("no kernel is named {}", case.kernel)))?;
    let mut outcomes = Vec::new();
    for alias in aliases(kernel, case) {
        for aligned in [false, true] {
            outcomes.extend(judged(context, kernel, case, alias, aligned)?);
        }
    }
    Ok(outcomes)
}

/// The calls to make: the plain one, and each output in the place of each input that it may be.
fn aliases<'case>(kernel: &Kernel, case: &'case Case) -> Vec<Option<(&'case str, &'case str)>> {
    let stride = |name: &str| {
        kernel.parameters.iter().find_map(|parameter| match parameter.kind {
            Kind::Tensor { stride, .. } if parameter.name == name => Some(case.scalars.get(stride)),
            _ => None,
        })
    };
    let mut calls = vec![None];
    for parameter in kernel.parameters {
        let Kind::Tensor { alias, .. } = parameter.kind else { continue };
        let Some((output, _)) = case.outputs.get_key_value(parameter.name) else { continue };
        for other in alias {
            // The same memory has one stride.
            if let Some((input, _)) = case.inputs.get_key_value(*other)
                && stride(other) == stride(parameter.name)
            {
                calls.push(Some((output.as_str(), input.as_str())));
            }
        }
    }
    calls
}

pub(crate) fn dtype(parameter: &Parameter, case: &Case) -> Result<DType> {
    let Kind::Tensor { dtype, .. } = parameter.kind else { return Err(Error::Value(parameter.name.to_owned())) };
    case.scalars.get(dtype).and_then(Value::as_str).unwrap_or(dtype).parse()
}

pub(crate) fn blank(content: &Content, dtype: DType) -> Vec<u8> {
    // Expected values are f32, i32, i8 or u8, which have as many elements as the output.
    let elements = content.bytes.len() / if matches!(content.dtype.as_str(), "i8" | "u8") { 1 } else { 4 };
    let byte = if matches!(dtype, DType::I32 | DType::I8 | DType::U8) { 0x5A } else { 0xFF };
    vec![byte; elements * dtype.size()]
}

/// A number of a case, as it goes into the call.
pub(crate) fn scalar(parameter: &Parameter, case: &Case) -> Result<Slot> {
    let value = case.scalars.get(parameter.name);
    let slot = match parameter.kind {
        Kind::DType => {
            let name = value.and_then(Value::as_str).unwrap_or_default();
            Some(Slot::Integer(i64::from(name.parse::<DType>()?.code())))
        }
        Kind::Float => match value.and_then(Value::as_str) {
            Some("inf") => Some(Slot::Float(f64::INFINITY)),
            Some("-inf") => Some(Slot::Float(f64::NEG_INFINITY)),
            Some(_) => None,
            None => value.and_then(Value::as_f64).map(Slot::Float),
        },
        _ => value.and_then(Value::as_i64).map(Slot::Integer),
    };
    slot.ok_or_else(|| Error::Value(format!("{}/{}: {} is {value:?}", case.kernel, case.name, parameter.name)))
}

fn judged(
    context: &Context,
    kernel: &Kernel,
    case: &Case,
    alias: Option<(&str, &str)>,
    aligned: bool,
) -> Result<Vec<Outcome>> {
    let mut buffers = BTreeMap::new();
    for parameter in kernel.parameters {
        let name = parameter.name;
        if !matches!(parameter.kind, Kind::Tensor { .. }) || alias.is_some_and(|(output, _)| output == name) {
            continue;
        }
        let dtype = dtype(parameter, case)?;
        let content = match (case.inputs.get(name), case.outputs.get(name)) {
            (Some(input), _) if input.dtype == dtype.name() => input.bytes.clone(),
            (Some(input), _) => return Err(Error::Value(format!("{name} of {} is {}", case.name, input.dtype))),
            (None, Some(output)) => blank(output, dtype),
            (None, None) => continue,
        };
        buffers.insert(name, Buffer::new(context, &content, dtype.size(), aligned)?);
    }
    let place = |name: &'static str| {
        alias.map_or(name, |(output, input)| if output == name { kernel_name(kernel, input) } else { name })
    };
    let mut slots = Vec::new();
    for parameter in kernel.parameters {
        slots.push(match parameter.kind {
            Kind::Tensor { .. } => {
                Slot::Pointer(buffers.get(place(parameter.name)).map_or(std::ptr::null_mut(), Buffer::address))
            }
            _ => scalar(parameter, case)?,
        });
    }
    // SAFETY: each buffer holds what the fixture says that the kernel reads and writes, for the sizes of the fixture.
    let failure = unsafe { kernel.call(context, &slots) }.and_then(|()| context.synchronize()).err();
    let now: BTreeMap<_, _> =
        buffers.iter().map(|(name, buffer)| Ok((*name, buffer.memory.to_vec::<u8>()?))).collect::<Result<_>>()?;
    let broken: Vec<_> =
        buffers.iter().filter(|(name, buffer)| !buffer.guards_hold(&now[*name])).map(|(name, _)| *name).collect();
    let touched: Vec<_> = kernel
        .parameters
        .iter()
        .filter(|parameter| matches!(parameter.kind, Kind::Tensor { direction, .. } if !direction.writes()))
        .filter(|parameter| alias.is_none_or(|(_, input)| input != parameter.name))
        .filter(|parameter| buffers.get(parameter.name).is_some_and(|buffer| buffer.image != now[parameter.name]))
        .map(|parameter| parameter.name)
        .collect();
    let mut outcomes = Vec::new();
    for parameter in kernel.parameters {
        let Some(expected) = case.outputs.get(parameter.name) else { continue };
        let buffer = &buffers[place(parameter.name)];
        let tolerance = case.tolerance.get(parameter.name).copied().unwrap_or(0.0);
        let zeros = case.zeros.iter().any(|name| name == parameter.name);
        let data = buffer.data(&now[place(parameter.name)]);
        let (error, mut problem) = compare(data, dtype(parameter, case)?, expected, tolerance, zeros);
        if let Some(failure) = &failure {
            problem = failure.to_string();
        } else if !broken.is_empty() {
            problem = format!("bytes outside {} were written", broken.join(", "));
        } else if !touched.is_empty() {
            problem = format!("the input {} was written", touched.join(", "));
        }
        let over = alias.filter(|(output, _)| *output == parameter.name).map(|(_, input)| format!(" over {input}"));
        let what = format!("{}/{}: {}{}", case.kernel, case.name, parameter.name, over.unwrap_or_default());
        let share = if tolerance == 0.0 { 0.0 } else { error / tolerance };
        outcomes.push(Outcome { what, share, problem });
    }
    Ok(outcomes)
}

/// The kernel's own copy of a parameter's name.
fn kernel_name(kernel: &Kernel, name: &str) -> &'static str {
    kernel.parameters.iter().find(|parameter| parameter.name == name).map_or("", |parameter| parameter.name)
}
