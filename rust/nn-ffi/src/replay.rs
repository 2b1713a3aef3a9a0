//! Calls that are made again and again, and become a graph on the way.

use crate::{Context, CudaGraph, Error, Result};

/// The same calls, time after time: of a training step, or of a token.
///
/// A first run makes them one by one: whatever is made once (tables, say) is made there. The second is captured as a
/// graph, and replayed from then on with the same bits: between its calls the host has nothing to do.
#[derive(Debug)]
pub struct Replay<'ctx> {
    context: &'ctx Context,
    capture: bool,
    runs: usize,
    graph: Option<CudaGraph<'ctx>>,
}

/// How the calls of a run were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// By the caller's function, which has run.
    Calls,
    /// By a graph: what the function changes on the host, such as counters, is the caller's to change.
    Graph,
}

impl<'ctx> Replay<'ctx> {
    /// Nothing has run yet. Without `capture` every run makes its calls one by one.
    #[must_use]
    pub fn new(context: &'ctx Context, capture: bool) -> Self {
        Self { context, capture, runs: 0, graph: None }
    }

    /// Whether the next run replays a graph.
    #[must_use]
    pub fn is_captured(&self) -> bool {
        self.graph.is_some()
    }

    /// Makes the calls once more. When it is the `last` time nothing is captured any more.
    ///
    /// `calls` must make the same calls each time, on memory that stays.
    ///
    /// # Errors
    ///
    /// That of `calls`, or [`Error::Call`] when they cannot be captured or fail in a launch.
    pub fn run<E: From<Error>>(&mut self, last: bool, calls: impl FnOnce() -> Result<(), E>) -> Result<Run, E> {
        self.runs += 1;
        if let Some(graph) = &self.graph {
            graph.launch()?;
            return Ok(Run::Graph);
        }
        if self.runs == 1 || last || !self.capture {
            calls()?;
        } else {
            // Kept only once it has run: a launch that fails leaves the next run to try again.
            let graph = self.context.capture(calls)?;
            graph.launch()?;
            self.graph = Some(graph);
        }
        Ok(Run::Calls)
    }
}
