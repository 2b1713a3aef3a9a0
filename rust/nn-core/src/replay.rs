//! Calls that are made again and again, and become a graph on the way.

use nn_ffi::{Context, Graph};

use crate::error::Result;

/// The same calls, time after time: of a training step, or of a token.
///
/// A first run makes them one by one: whatever is made once (tables, say) is made there. The second is captured as a
/// graph, and replayed from then on with the same bits: between its calls the host has nothing to do.
#[derive(Debug)]
pub struct Replay {
    context: Context,
    capture: bool,
    runs: usize,
    graph: Option<Graph>,
    refused: Option<String>,
}

/// How the calls of a run were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// By the caller's function, which has run.
    Calls,
    /// By a graph: what the function changes on the host, such as counters, is the caller's to change.
    Graph,
}

impl Replay {
    /// Nothing has run yet. Without `capture` every run makes its calls one by one.
    pub fn new(context: &Context, capture: bool) -> Self {
        Self { context: context.clone(), capture, runs: 0, graph: None, refused: None }
    }

    /// Whether the next run replays a graph.
    pub fn is_captured(&self) -> bool {
        self.graph.is_some()
    }

    /// Why the calls could not be captured, where [`run_or_call`](Self::run_or_call) found that.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Makes the calls once more. When it is the `last` time nothing is captured any more.
    ///
    /// `calls` must make the same calls each time, on memory that stays.
    ///
    /// # Errors
    ///
    /// That of `calls`, or a device error when they cannot be captured or fail in a launch.
    pub fn run(&mut self, last: bool, calls: impl FnOnce() -> Result<()>) -> Result<Run> {
        self.runs += 1;
        if let Some(graph) = &self.graph {
            graph.launch()?;
            return Ok(Run::Graph);
        }
        if self.runs == 1 || last || !self.capture {
            calls()?;
        } else {
            self.launch_first(self.context.capture(calls)?)?;
        }
        Ok(Run::Calls)
    }

    /// As [`run`](Self::run), but calls that cannot be captured are made one by one, now and from here on:
    /// [`refused`](Self::refused) tells why.
    ///
    /// # Errors
    ///
    /// That of `calls` when they are not being captured, or a device error when they fail in a launch.
    pub fn run_or_call(&mut self, mut calls: impl FnMut() -> Result<()>) -> Result<Run> {
        if self.graph.is_some() || self.runs == 0 || !self.capture {
            return self.run(false, calls);
        }
        self.runs += 1;
        match self.context.capture(&mut calls) {
            Ok(graph) => self.launch_first(graph)?,
            Err(error) => {
                // What fails by itself, too, says nothing of capturing.
                calls()?;
                (self.capture, self.refused) = (false, Some(format!("{error:#}")));
            }
        }
        Ok(Run::Calls)
    }

    fn launch_first(&mut self, graph: Graph) -> Result<()> {
        // Kept only once it has run: a launch that fails leaves the next run to try again.
        graph.launch()?;
        self.graph = Some(graph);
        Ok(())
    }
}
