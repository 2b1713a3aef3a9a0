//! Writing stored models as other ones.

use std::path::Path;

use nn_ffi::{Context, DType, kernels};

use crate::error::{Error, Result};
use crate::format::limits::JSON_BYTES;
use crate::format::safetensors::{Entry, Source, write_safetensors};
use crate::format::{SafetensorsFolder, StoredTensor, atomic, read_regular};
use crate::model::{Adapter, LowRank, StoredModel};
use crate::tokenizer::tokenizer_files;

/// Writes a model, a folder in f32, f16 or bf16, with an adapter added to it, W + scale \* B \* A, as a Hugging Face folder that
/// must not exist, in one step. Each sum is made in f32 and rounded once to the dtype of its matrix; everything else is what the
/// model has, each tensor under its name there. `each` is called before each tensor, and what it refuses ends all, without a trace.
///
/// # Errors
///
/// [`Error::Format`] when the model is no such folder, has ternary weights, or has the matrices that are adapted in a form of its
/// own, or when a sum is too large for its dtype; [`Error::Exists`], [`Error::Io`], those of the device, and of `each`.
pub fn merge_adapter(
    model: &StoredModel,
    adapter: &Adapter,
    path: &Path,
    ctx: &Context,
    each: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let wrong = |problem: &str| Err(Error::format(model.path(), problem));
    if model.config().ternary {
        return wrong(
            "has ternary weights, and with an adapter added they are not ternary; run the model with the adapter beside it, as \
             its --adapter",
        );
    }
    if model.file().is_some() {
        return wrong("is a GGUF file; an adapter is merged into a Hugging Face folder");
    }
    let files = SafetensorsFolder::open(model.path())?;
    let shapes = model.config().shapes();
    let inside = |name: &String| adapter.factors().contains_key(name) && files.get(name).is_none();
    if let Some(name) = shapes.iter().map(|(name, _)| name).find(|name| inside(name)) {
        return wrong(&format!("has {name} in one tensor with others; adapters of it are not merged"));
    }
    let merging = Merging { path: model.path(), adapter, ctx };
    let source = |(name, entry): (&str, &Entry)| {
        let (matrix, merging) = (files.stored(name)?, &merging);
        let (shape, elements) = (entry.shape.clone(), 0..entry.count());
        let read = move || {
            each()?;
            let bytes = merging.bytes(&matrix)?;
            matrix.data.release();
            Ok(bytes)
        };
        Ok::<_, Error>(Source {
            name: name.to_owned(),
            shape,
            dtype: entry.dtype,
            parts: vec![(elements, Box::new(read))],
        })
    };
    let tensors = files.iter().map(source).collect::<Result<Vec<Source<'_>>>>()?;
    atomic::write_folder(path, |folder| {
        let config = ("config.json", read_regular(&model.path().join("config.json"), JSON_BYTES)?);
        for (name, content) in tokenizer_files(model.path())?.into_iter().chain([config]) {
            let path = folder.join(name);
            std::fs::write(&path, content).map_err(|error| Error::io(path, error))?;
        }
        write_safetensors(&folder.join("model.safetensors"), &tensors, Some("pt"))
    })
}

/// An adapter that is added to the matrices of a folder.
struct Merging<'m> {
    path: &'m Path,
    adapter: &'m Adapter,
    ctx: &'m Context,
}

impl Merging<'_> {
    /// The bytes of a tensor of the folder, with what the adapter adds to it.
    fn bytes(&self, matrix: &StoredTensor) -> Result<Vec<u8>> {
        let Some(pair) = self.adapter.factors().get(&matrix.name) else { return Ok(matrix.data.to_vec()) };
        let sum = self.sum(matrix, pair)?;
        if matrix.format.widened(&sum).is_some_and(|numbers| numbers.iter().any(|number| !number.is_finite())) {
            let (name, format) = (&matrix.name, matrix.format.name);
            let problem = format!("tensor {name} and what the adapter adds give values that {format} cannot hold");
            return Err(Error::format(self.path, problem));
        }
        Ok(sum)
    }

    /// W + scale \* B \* A in the format of W.
    fn sum(&self, matrix: &StoredTensor, pair: &LowRank) -> Result<Vec<u8>> {
        let wide = |part: &StoredTensor| Ok::<_, Error>(self.ctx.tensor(&part.f32()?, &part.shape)?);
        let mut sum = wide(matrix)?;
        let scale = self.adapter.scale() as f32;
        kernels::gemm_beta(&wide(&pair.b)?, &wide(&pair.a)?, &sum, scale, 1.0, false, false)?;
        if let Some(dtype) = matrix.format.dtype().filter(|dtype| *dtype != DType::F32) {
            let rounded = self.ctx.empty(&matrix.shape, dtype)?;
            kernels::cast(&sum, &rounded)?;
            sum = rounded;
        }
        let mut bytes = vec![0; sum.layout().bytes()];
        sum.copy_to_bytes(&mut bytes)?;
        Ok(bytes)
    }
}
