//! The moments of AdamW: what they are kept in, their update, and their form in a checkpoint. There those of f32 and bf16 go
//! by the parameters' names; codes and scales are four tensors over the whole arena, since a block may begin in one
//! parameter and end in the next.

use std::ops::Range;

use nn_ffi::{Bf16, Context, DType, Tensor, kernels};

use super::optimizer::UpdateOptions;
use super::trainer::Trainer;
use crate::error::{Error, Result};
use crate::format::Value;
use crate::format::safetensors::{Dtype, ReadBytes, SafetensorsFile, Source};
use crate::model::{ParameterLayout, check_names, overlap};
use crate::options::{Kind, OptionType};

/// Parameters that share a scale, as in bindings.h.
const BLOCK: usize = 256;

/// What the moments of AdamW are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MomentsKind {
    /// f32.
    #[default]
    F32,
    /// bf16, rounded by chance.
    BF16,
    /// 8-bit codes with a scale for every 256 parameters.
    F8,
}

impl MomentsKind {
    /// The dtype of the moments, or of their codes.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::BF16 => DType::BF16,
            Self::F8 => DType::U8,
        }
    }

    /// Scales that so many parameters have.
    pub fn scales(self, count: usize) -> usize {
        if self == Self::F8 { count.div_ceil(BLOCK) } else { 0 }
    }
}

/// Both moments of all parameters, or, of several ranks, of those that this one updates; zero at first.
#[derive(Debug)]
pub struct Moments {
    kind: MomentsKind,
    /// Ascending; each begins with a block.
    own: Vec<Range<usize>>,
    data: [Tensor; 2],
    scales: Option<[Tensor; 2]>,
}

impl Moments {
    pub(super) fn new(context: &Context, own: &[Range<usize>], kind: MomentsKind) -> Result<Self> {
        let (own, count) = (own.to_vec(), own.iter().map(Range::len).sum());
        let (shape, scales) = ([count], [kind.scales(count)]);
        let data = || context.zeros(&shape, kind.dtype());
        let scale = || context.zeros(&scales, DType::F32);
        Ok(match kind {
            MomentsKind::F8 => {
                let (first, first_scales) = (data()?, scale()?);
                Self { kind, own, data: [first, data()?], scales: Some([first_scales, scale()?]) }
            }
            _ => Self { kind, own, data: [data()?, data()?], scales: None },
        })
    }

    /// What they are kept in.
    pub fn kind(&self) -> MomentsKind {
        self.kind
    }

    /// Of which parameters they are, in ascending order: of all of them, or of a rank's shards.
    pub fn own(&self) -> &[Range<usize>] {
        &self.own
    }

    /// First and second moments, or their codes, of these parameters, one after the other. Resuming writes them.
    pub fn data(&self) -> &[Tensor; 2] {
        &self.data
    }

    /// Scales of the codes of the first and of the second moments, f32; `None` where there are no codes.
    pub fn scales(&self) -> Option<&[Tensor; 2]> {
        self.scales.as_ref()
    }

    /// The form of AdamW for these moments, of tensors of all parameters.
    pub(super) fn step(
        &self,
        [gradients, rate, step, clip, parameters]: [&Tensor; 5],
        skip: Option<&Tensor>,
        rounded: Option<&Tensor>,
        options: &UpdateOptions,
    ) -> nn_ffi::Result<()> {
        let UpdateOptions { decayed, beta1, beta2, eps, weight_decay: decay, .. } = *options;
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (clip, mut place) = (Some(clip), 0);
        for range in &self.own {
            let there = |tensor: &Tensor| tensor.narrow(0, range.start, range.len());
            let (gradients, parameters) = (&there(gradients)?, &there(parameters)?);
            let rounded = rounded.map(there).transpose()?;
            let rounded = rounded.as_ref();
            let here = |tensor: &Tensor| tensor.narrow(0, place, range.len());
            let (m, v) = (&here(&self.data[0])?, &here(&self.data[1])?);
            let first = whole(range.start);
            let decayed = (decayed - first).clamp(0, whole(range.len()));
            match &self.scales {
                Some(scales) => {
                    let here = |scales: &Tensor| scales.narrow(0, place / BLOCK, self.kind.scales(range.len()));
                    let (m_scale, r_scale) = (&here(&scales[0])?, &here(&scales[1])?);
                    kernels::adamw_step_f8(
                        gradients, rate, step, clip, skip, parameters, m, m_scale, v, r_scale, rounded, decayed, first,
                        beta1, beta2, eps, decay,
                    )?;
                }
                None if self.kind == MomentsKind::BF16 => kernels::adamw_step_bf16(
                    gradients, rate, step, clip, skip, parameters, m, v, rounded, decayed, first, beta1, beta2, eps,
                    decay,
                )?,
                None => kernels::adamw_step(
                    gradients, rate, step, clip, skip, parameters, m, v, rounded, decayed, beta1, beta2, eps, decay,
                )?,
            }
            place += range.len();
        }
        Ok(())
    }
}

/// Names of the kinds, from the widest.
pub(crate) const NAMES: [&str; 3] = ["f32", "bf16", "f8"];
const KINDS: [MomentsKind; 3] = [MomentsKind::F32, MomentsKind::BF16, MomentsKind::F8];
const NAMED: [&str; 2] = ["first_moment.", "second_moment."];
const CODED: [&str; 2] = ["first.", "second."];

impl OptionType for MomentsKind {
    const KIND: Kind = Kind::Choice(&NAMES);
    fn read(value: &Value) -> Option<Self> {
        let name = value.as_text()?;
        NAMES.iter().position(|known| *known == name).map(|at| KINDS[at])
    }
    fn write(&self) -> Value {
        NAMES[*self as usize].into()
    }
}

/// A tensor of a checkpoint's moments: where it lies among those of its moment.
struct Part {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    moment: usize,
    /// First element in the arena; `None` for the scales.
    offset: Option<usize>,
}

impl Part {
    /// Those of its elements that a rank has, counted from its first, and the place of each run of them among what lies
    /// there.
    fn within(&self, own: &[Range<usize>]) -> Vec<(Range<usize>, usize)> {
        let (first, count) = (self.offset.unwrap_or(0), self.shape.iter().product());
        let (mut found, mut before) = (Vec::new(), 0);
        for range in own {
            let there = match self.offset {
                Some(_) => range.clone(),
                None => range.start / BLOCK..range.end.div_ceil(BLOCK),
            };
            let elements = overlap(&there, first, count);
            if !elements.is_empty() {
                let place = before + first + elements.start - there.start;
                found.push((elements, place));
            }
            before += there.len();
        }
        found
    }
}

fn parts(layout: &ParameterLayout, kind: MomentsKind) -> Vec<Part> {
    let mut found = Vec::new();
    for moment in 0..2 {
        if kind == MomentsKind::F8 {
            let name = |part: &str| format!("{}{part}", CODED[moment]);
            let (codes, scales) = (vec![layout.size()], vec![kind.scales(layout.size())]);
            found.push(Part { name: name("codes"), dtype: DType::U8, shape: codes, moment, offset: Some(0) });
            found.push(Part { name: name("scales"), dtype: DType::F32, shape: scales, moment, offset: None });
            continue;
        }
        found.extend(layout.specs().iter().map(|spec| Part {
            name: format!("{}{}", NAMED[moment], spec.name),
            dtype: kind.dtype(),
            shape: spec.shape.clone(),
            moment,
            offset: Some(spec.offset),
        }));
    }
    found
}

/// What this rank has of a part: each run of its elements, and which they are.
fn tensors(moments: &Moments, part: &Part) -> Result<Vec<(Range<usize>, Tensor)>> {
    let all = match (part.offset, moments.scales()) {
        (Some(_), _) => &moments.data()[part.moment],
        (None, Some(scales)) => &scales[part.moment],
        (None, None) => return Err(Error::value(format!("{} belongs to moments in codes", part.name))),
    };
    let found = part.within(&moments.own).into_iter();
    found.map(|(elements, place)| Ok((elements.clone(), all.narrow(0, place, elements.len())?))).collect()
}

/// What keeps a file from being the moments of a layout: names, dtypes, shapes, and scales, each of which is the largest
/// magnitude of its block.
pub(super) fn check(file: &SafetensorsFile, layout: &ParameterLayout, kind: MomentsKind) -> Result<()> {
    let parts = parts(layout, kind);
    let expected: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    check_names(file.iter().map(|(name, _)| name), &expected)?;
    for Part { name, dtype, shape, offset, .. } in &parts {
        if !file.get(name).is_some_and(|entry| entry.shape == *shape && entry.dtype == Dtype::of(*dtype)) {
            return Err(Error::value(format!("tensor {name} is not {dtype} of shape {shape:?}")));
        }
        if offset.is_none() {
            let scales = file.read_f32(name, 0, shape[0])?;
            if let Some(at) = scales.iter().position(|scale| !(scale.is_finite() && *scale >= 0.0)) {
                let problem =
                    format!("element {at} of tensor {name} is {:?}; a scale is finite and at least 0", scales[at]);
                return Err(Error::value(problem));
            }
        }
    }
    Ok(())
}

/// Takes what a checkpoint kept, which was checked.
pub(super) fn load(trainer: &Trainer, file: &SafetensorsFile, layout: &ParameterLayout) -> Result<()> {
    for part in parts(layout, trainer.config().moments) {
        for (elements, target) in tensors(trainer.device_moments(), &part)? {
            let bytes = file.read_bytes(&part.name, elements)?;
            let (words, halves) = (bytes.as_chunks::<4>().0, bytes.as_chunks::<2>().0);
            match part.dtype {
                DType::F32 => {
                    target.copy_from_slice(&words.iter().map(|word| f32::from_le_bytes(*word)).collect::<Vec<_>>())?;
                }
                DType::BF16 => {
                    target.copy_from_slice(
                        &halves.iter().map(|half| Bf16(u16::from_le_bytes(*half))).collect::<Vec<_>>(),
                    )?;
                }
                _ => target.copy_from_slice(&bytes)?,
            }
        }
    }
    Ok(())
}

/// Names of the tensors of a checkpoint's moments.
pub(super) fn names(layout: &ParameterLayout, kind: MomentsKind) -> Vec<String> {
    parts(layout, kind).into_iter().map(|part| part.name).collect()
}

/// Calls `visit` with the name of each of them, the first of its elements that this rank has, and those from there on, run
/// after run.
pub(super) fn each(trainer: &Trainer, mut visit: impl FnMut(&str, usize, &Tensor) -> Result<()>) -> Result<()> {
    for part in parts(trainer.model().layout(), trainer.config().moments) {
        for (elements, tensor) in tensors(trainer.device_moments(), &part)? {
            visit(&part.name, elements.start, &tensor)?;
        }
    }
    Ok(())
}

/// The tensors as they are written, this rank's part of them.
pub(super) fn sources(trainer: &Trainer) -> Result<Vec<Source<'_>>> {
    let bytes = |tensor: &Tensor| -> Result<Vec<u8>> {
        Ok(match tensor.dtype() {
            DType::F32 => tensor.to_vec::<f32>()?.into_iter().flat_map(f32::to_le_bytes).collect(),
            DType::BF16 => tensor.to_vec::<Bf16>()?.into_iter().flat_map(|half| half.0.to_le_bytes()).collect(),
            _ => tensor.to_vec::<u8>()?,
        })
    };
    let source = |part: Part| {
        let read = |(elements, tensor)| {
            let read: ReadBytes<'_> = Box::new(move || bytes(&tensor));
            (elements, read)
        };
        let parts = tensors(trainer.device_moments(), &part)?.into_iter().map(read).collect();
        Ok(Source { name: part.name, shape: part.shape, dtype: Dtype::of(part.dtype), parts })
    };
    parts(trainer.model().layout(), trainer.config().moments).into_iter().map(source).collect()
}
