//! Traces: a line a kernel call, the first value that is not finite, and every call a second time on another context.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::context::Turn;
use crate::profile::Running;
use crate::{Context, Error, Result, Status};

/// An element of a tensor, and the kernel call that read or wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Number of the call, from 0.
    pub call: u64,
    /// What the call belongs to; see [`Context::label`].
    pub label: Option<String>,
    /// The kernel.
    pub kernel: String,
    /// The tensor, by its name in bindings.h.
    pub argument: String,
    /// Its dtype.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// The element's index in it.
    pub index: Vec<usize>,
}

/// Whether a call read a tensor or wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// It read it, and no call before it had written it.
    In,
    /// It wrote it.
    Out,
}

/// A value that is not finite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NonFinite {
    /// Where it was found.
    #[serde(flatten)]
    pub place: Place,
    /// Whether it was read or written there.
    #[serde(rename = "use")]
    pub used: Use,
    /// Where the element lies in the device's memory; compare it with [`Tensor::pointer`](crate::Tensor::pointer).
    pub address: usize,
    /// "nan", "inf" or "-inf".
    pub value: String,
}

/// An element that differs between a context and the reference of its shadow run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Where it was found.
    #[serde(flatten)]
    pub place: Place,
    /// What the context computed.
    pub value: String,
    /// What the reference computed.
    pub reference: String,
    /// By how much they may differ.
    pub bound: f64,
    /// The difference over the bound; `None` where no bound would do.
    pub share: Option<f64>,
}

/// The calls of one kernel in a shadow run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShadowedKernel {
    /// Its name.
    pub kernel: String,
    /// Its calls.
    pub calls: u64,
    /// Those whose outputs were compared.
    pub compared: u64,
    /// Those that went beyond their bound.
    pub over: u64,
    /// Why one was not compared.
    pub why: Option<String>,
    /// What took the largest share of its bound; `None` where all outputs were equal.
    pub largest: Option<Difference>,
}

/// What a shadow run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shadow {
    /// Calls of the run.
    pub calls: u64,
    /// Those whose outputs were compared.
    pub compared: u64,
    /// Copies and fills of bytes, which do not run twice.
    pub moves: u64,
    /// Calls that went beyond their bound.
    pub over: u64,
    /// The first of these.
    pub first: Option<Difference>,
    /// What took the largest share of its bound.
    pub largest: Option<Difference>,
    /// By kernel.
    pub kernels: Vec<ShadowedKernel>,
}

#[derive(Deserialize)]
struct Search {
    found: Option<NonFinite>,
}

impl Context {
    /// Runs `work` and keeps a line of each of its kernel calls: names, dtypes and shapes of the arguments, and that many
    /// leading values of each output, 0 to 64.
    ///
    /// # Errors
    ///
    /// That of `work`, or [`Error::Call`] when a trace runs already.
    pub fn trace<R, E: From<Error>>(&self, values: i64, work: impl FnOnce() -> Result<R, E>) -> Result<(R, String), E> {
        self.traced(
            |turn| {
                // SAFETY: the context lives.
                let code = unsafe { (turn.functions().nncuda_trace_begin)(turn.handle(), values) };
                turn.check("nncuda_trace_begin", code)
            },
            work,
        )
    }

    /// Runs `work` and looks for the first value that is not finite: in what its calls read and none of them wrote, such as
    /// weights, and in what they write.
    ///
    /// # Errors
    ///
    /// That of `work`, or [`Error::Call`] when a trace runs already.
    pub fn trace_nonfinite<R, E: From<Error>>(
        &self,
        work: impl FnOnce() -> Result<R, E>,
    ) -> Result<(R, Option<NonFinite>), E> {
        let (result, text) = self.traced(
            |turn| {
                // SAFETY: the context lives.
                let code = unsafe { (turn.functions().nncuda_trace_begin_nonfinite)(turn.handle()) };
                turn.check("nncuda_trace_begin_nonfinite", code)
            },
            work,
        )?;
        Ok((result, report::<Search>(&text)?.found))
    }

    /// Runs `work`, each of its kernel calls a second time on `reference`, a context not otherwise used meanwhile,
    /// of another instruction set, thread count or device. What both wrote is compared, call by call.
    ///
    /// # Errors
    ///
    /// That of `work`, or [`Error::Call`] when a trace runs already, or `reference` is this context, one that measures
    /// or in use by another thread.
    pub fn shadow<R, E: From<Error>>(
        &self,
        reference: &Self,
        work: impl FnOnce() -> Result<R, E>,
    ) -> Result<(R, Shadow), E> {
        let (result, text) = self.traced(
            |turn| {
                const FUNCTION: &str = "nncuda_trace_begin_shadow";
                let Some(other) = reference.try_turn() else {
                    let message = format!("{FUNCTION}: another thread uses reference, or captures a graph on it");
                    return Err(Error::Call { status: Status::Busy, function: FUNCTION, message });
                };
                // SAFETY: both contexts live until the trace has ended, which `traced` sees to.
                let code = unsafe { (turn.functions().nncuda_trace_begin_shadow)(turn.handle(), other.handle()) };
                turn.check(FUNCTION, code)
            },
            work,
        )?;
        Ok((result, report(&text)?))
    }

    /// Says what the kernel calls from here on belong to, such as `model.layers.3.self_attn`. Traces report it; without
    /// one nothing happens, and `name` is not called.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the context cannot be used.
    pub fn label(&self, name: impl FnOnce() -> String) -> Result<()> {
        if !self.is_tracing() {
            return Ok(());
        }
        let (turn, name) = (self.turn(), name());
        // SAFETY: the context lives; `name` has that many bytes, which are copied.
        let code =
            unsafe { (turn.functions().nncuda_trace_label)(turn.handle(), name.as_ptr().cast(), name.len() as i64) };
        turn.check("nncuda_trace_label", code)
    }

    fn traced<R, E: From<Error>>(
        &self,
        begin: impl FnOnce(&Turn<'_>) -> Result<()>,
        work: impl FnOnce() -> Result<R, E>,
    ) -> Result<(R, String), E> {
        let running = Running::begin(self, begin, |turn| {
            turn.context().set_tracing(false);
            // SAFETY: the context lives.
            let code = unsafe { (turn.functions().nncuda_trace_end)(turn.handle()) };
            turn.check("nncuda_trace_end", code)
        })?;
        self.set_tracing(true);
        let result = work();
        running.stop()?;
        let text = self.sized_text("nncuda_trace_read", &|turn, text, capacity, needed| {
            // SAFETY: the context lives; `text` has the given room, or there is none and it is null.
            unsafe { (turn.functions().nncuda_trace_read)(turn.handle(), text, capacity, needed) }
        })?;
        Ok((result?, text))
    }
}

fn report<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::Value(format!("the library's report of a trace: {error}")))
}
