//! One buffer of a layout: the parameters themselves, their gradients, or a moment of the optimiser.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use nn_ffi::{Context, DType, Tensor, kernels};

use super::config::MoEConfig;
use super::held::Held;
use super::parameters::{ParameterLayout, ParameterSpec};
use crate::error::{Error, Result};
use crate::format::safetensors::{F32, ReadBytes, Source};
use crate::format::value::quoted;

/// Random numbers that are made together, as in bindings.h.
const BLOCK: usize = 4;

/// Initial values that are made at once where a part of a parameter is held.
const INITIAL: usize = 1 << 20;

/// One buffer of a layout: f32, or of the 16-bit precision that a model computes in.
#[derive(Debug)]
pub struct ParameterArena {
    layout: Arc<ParameterLayout>,
    data: Tensor,
    /// What of it this rank has, where that is a part.
    held: Option<Held>,
    /// Whether there is memory for that alone.
    in_parts: bool,
}

impl ParameterArena {
    /// An arena of zeros.
    pub fn zeros(ctx: &Context, layout: &Arc<ParameterLayout>, dtype: DType) -> Result<Self> {
        Ok(Self::over(layout, ctx.zeros(&[layout.size()], dtype)?))
    }

    /// An arena of zeros of which there is memory only for what is held.
    pub(crate) fn in_parts(ctx: &Context, layout: &Arc<ParameterLayout>, dtype: DType, held: Held) -> Result<Self> {
        let data = ctx.zeros_parts(&[layout.size()], dtype, held.ranges())?;
        Ok(Self { held: Some(held), in_parts: true, ..Self::over(layout, data) })
    }

    /// An arena over a tensor `[layout.size()]`.
    pub fn over(layout: &Arc<ParameterLayout>, data: Tensor) -> Self {
        Self { layout: Arc::clone(layout), data, held: None, in_parts: false }
    }

    /// All elements, `[layout.size()]`. Where experts are shared out over ranks, those that this rank has no part in are no
    /// memory, and must not be touched.
    pub fn data(&self) -> &Tensor {
        &self.data
    }

    /// Where each parameter lies.
    pub fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let held = self.held.as_ref().filter(|_| self.in_parts);
        held.map_or(self.layout.size(), Held::len) * self.data.dtype().size()
    }

    /// Whether this rank has all of it.
    pub(crate) fn is_whole(&self) -> bool {
        self.held.is_none()
    }

    /// Says that from now on this rank has a part of it alone, if it had all.
    pub(crate) fn keep(&mut self, held: impl FnOnce() -> Held) {
        self.held.get_or_insert_with(held);
    }

    /// An arena with room for all of it, which has what is held of this one: in the same memory where that has the room.
    pub(crate) fn widened(&self) -> Result<Self> {
        if !self.in_parts {
            return Ok(Self::over(&self.layout, self.data.clone()));
        }
        let whole = Self::zeros(self.data.context(), &self.layout, self.data.dtype())?;
        for range in self.held.iter().flat_map(Held::ranges) {
            let part = |arena: &Self| arena.data.narrow(0, range.start, range.len());
            part(&whole)?.copy_from(&part(self)?)?;
        }
        Ok(whole)
    }

    /// Refuses elements that this rank does not hold.
    fn require(&self, first: usize, count: usize) -> Result<()> {
        self.held.as_ref().map_or(Ok(()), |held| held.require(first, count))
    }

    /// Which elements of a parameter are held, counted from its first.
    fn parts(&self, spec: &ParameterSpec) -> Vec<Range<usize>> {
        let Some(held) = &self.held else { return iter::once(0..spec.size()).collect() };
        let parts = held.ranges().iter().map(|range| overlap(range, spec.offset, spec.size()));
        parts.filter(|part| !part.is_empty()).collect()
    }

    fn spec(&self, name: &str) -> Result<&ParameterSpec> {
        self.layout.get(name).ok_or_else(|| Error::value(format!("there is no parameter {}", quoted(name))))
    }

    /// A view of one parameter. `Error::Value` when there is none of this name, or another rank has it.
    pub fn get(&self, name: &str) -> Result<Tensor> {
        let spec = self.spec(name)?;
        self.fused(name, &spec.shape)
    }

    /// A view of neighbouring parameters as one tensor of `shape`, from parameter `first` on.
    pub fn fused(&self, first: &str, shape: &[usize]) -> Result<Tensor> {
        let (spec, count) = (self.spec(first)?, shape.iter().product());
        self.require(spec.offset, count)?;
        Ok(self.data.narrow(0, spec.offset, count)?.view(shape)?)
    }

    /// The parameter in which an address of the device's memory lies, and the index in it.
    pub(crate) fn find(&self, address: usize) -> Option<(&ParameterSpec, Vec<usize>)> {
        let element = address.checked_sub(self.data.pointer() as usize)? / self.data.dtype().size();
        let spec =
            self.layout.specs().iter().find(|spec| (spec.offset..spec.offset + spec.size()).contains(&element))?;
        let mut rest = element - spec.offset;
        let mut index: Vec<usize> = spec.shape.iter().rev().map(|size| (rest % size, rest /= size).0).collect();
        index.reverse();
        Some((spec, index))
    }

    /// Takes the values of one parameter from the host. Those of an arena of 16 bits are rounded by the library, so that
    /// every language rounds alike.
    pub fn set(&self, name: &str, values: &[f32]) -> Result<()> {
        let spec = self.spec(name)?;
        let (given, needed) = (values.len(), spec.size());
        if given != needed {
            return Err(Error::value(format!("tensor {name} has {given} values; this model needs {needed}")));
        }
        self.require(spec.offset, needed)?;
        self.set_part(spec.offset, values)
    }

    /// Takes what is held of one parameter, f32, as `read` gives it for a range of its elements.
    pub(crate) fn load(&self, spec: &ParameterSpec, read: impl Fn(Range<usize>) -> Result<Vec<f32>>) -> Result<()> {
        self.parts(spec).into_iter().try_for_each(|part| self.set_part(spec.offset + part.start, &read(part)?))
    }

    fn set_part(&self, first: usize, values: &[f32]) -> Result<()> {
        let target = self.data.narrow(0, first, values.len())?;
        if self.data.dtype() == DType::F32 {
            return Ok(target.copy_from_slice(values)?);
        }
        Ok(kernels::cast(&self.data.context().tensor(values, &[values.len()])?, &target)?)
    }

    /// The values of all elements, which f32 holds exactly whatever their dtype.
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        self.require(0, self.layout.size())?;
        host_values(&self.data)
    }

    /// Rounds the values of another arena of the same layout into this one.
    pub(crate) fn round(&self, exact: &ParameterArena) -> Result<()> {
        exact.require(0, exact.layout.size())?;
        Ok(kernels::cast(&exact.data, &self.data)?)
    }

    /// The tensors of an arena of f32 as they are written to a file, of whose elements those in `own` are written here.
    pub fn sources(&self, own: &[Range<usize>]) -> Vec<Source<'_>> {
        let bytes = |first: usize, count: usize| {
            let values: Vec<f32> = self.data.narrow(0, first, count)?.to_vec()?;
            Ok(values.into_iter().flat_map(f32::to_le_bytes).collect())
        };
        let source = |spec: &ParameterSpec| {
            let parts = own.iter().map(|range| overlap(range, spec.offset, spec.size()));
            let read = |part: Range<usize>| {
                let (first, count) = (spec.offset + part.start, part.len());
                let read: ReadBytes<'_> = Box::new(move || bytes(first, count));
                (part, read)
            };
            Source {
                name: spec.name.clone(),
                shape: spec.shape.clone(),
                dtype: F32,
                parts: parts.filter(|part| !part.is_empty()).map(read).collect(),
            }
        };
        self.layout.specs().iter().map(source).collect()
    }

    /// Initial values: matrices from Normal(0, init_std), tensor i of the layout from stream i of `seed`; gains 1,
    /// biases 0.
    pub fn initialize(&self, config: &MoEConfig, seed: i64) -> Result<()> {
        for (stream, spec) in self.layout.specs().iter().enumerate() {
            for part in self.parts(spec) {
                let view = self.data.narrow(0, spec.offset + part.start, part.len())?;
                if spec.shape.len() == 1 {
                    kernels::fill(&view, if spec.name.ends_with(".bias") { 0.0 } else { 1.0 })?;
                } else if self.held.is_none() {
                    kernels::normal(&view, 0.0, config.init_std as f32, seed, stream as i64, 0)?;
                } else {
                    self.normal_part(&view, &part, config.init_std as f32, seed, stream as i64)?;
                }
            }
        }
        Ok(())
    }

    /// The part of a matrix that is held, as a rank that holds all of it would find it in f32 and round it.
    fn normal_part(&self, view: &Tensor, part: &Range<usize>, std: f32, seed: i64, stream: i64) -> Result<()> {
        for first in part.clone().step_by(INITIAL) {
            let (count, before) = (INITIAL.min(part.end - first), first % BLOCK);
            let wide = view.context().empty(&[before + count], DType::F32)?;
            kernels::normal(&wide, 0.0, std, seed, stream, (first / BLOCK) as i64)?;
            let (values, target) = (wide.narrow(0, before, count)?, view.narrow(0, first - part.start, count)?);
            if view.dtype() == DType::F32 {
                target.copy_from(&values)?;
            } else {
                kernels::cast(&values, &target)?;
            }
        }
        Ok(())
    }
}

/// Which of `count` elements from `first` on lie in a range, counted from `first`.
pub(crate) fn overlap(range: &Range<usize>, first: usize, count: usize) -> Range<usize> {
    let within = |place: usize| place.clamp(first, first + count) - first;
    within(range.start)..within(range.end)
}

/// The values of a tensor of f32, bf16 or f16, which f32 holds exactly, on the host.
pub(crate) fn host_values(tensor: &Tensor) -> Result<Vec<f32>> {
    if tensor.dtype() == DType::F32 {
        return Ok(tensor.to_vec()?);
    }
    let wide = tensor.context().empty(tensor.shape(), DType::F32)?;
    kernels::cast(tensor, &wide)?;
    Ok(wide.to_vec()?)
}
