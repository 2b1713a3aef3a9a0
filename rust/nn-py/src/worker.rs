//! The thread that a model lives in.
//!
//! A model borrows its context, and neither may be used by two threads at once; Python's objects borrow nothing and are
//! used by any thread. So each model has a thread of its own, which owns context and model and does what it is sent, one
//! job after the other. Whoever waits for an answer lets Python's other threads run.

use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use nn_core::Error;
use nn_core::model::MoETransformer;
use nn_core::train::Trainer;
use nn_ffi::{Context, Device, InstructionSet};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors::exception;

/// What lives in the thread.
pub(crate) enum Holding<'ctx> {
    Model(Box<MoETransformer<'ctx>>),
    Trainer(Box<Trainer<'ctx>>),
}

impl<'ctx> Holding<'ctx> {
    pub(crate) fn model(&self) -> &MoETransformer<'ctx> {
        match self {
            Self::Model(model) => model,
            Self::Trainer(trainer) => trainer.model(),
        }
    }

    pub(crate) fn trainer(&mut self) -> nn_core::Result<&mut Trainer<'ctx>> {
        match self {
            Self::Model(_) => Err(Error::value("this model has no trainer")),
            Self::Trainer(trainer) => Ok(trainer),
        }
    }
}

type Job = Box<dyn for<'ctx> FnOnce(&mut Holding<'ctx>) + Send>;

/// A thread with a model in it. It ends, and its memory is free, when this is dropped.
pub(crate) struct Worker {
    /// None once it is being dropped.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// The device to compute on, as `Context` of nncuda takes it.
pub(crate) struct Place {
    pub(crate) device: Device,
    pub(crate) threads: Option<usize>,
    pub(crate) isa: Option<InstructionSet>,
}

impl Place {
    pub(crate) fn new(device: &str, threads: Option<usize>, isa: Option<&str>) -> nn_core::Result<Self> {
        Ok(Self { device: device.parse()?, threads, isa: isa.map(str::parse).transpose()? })
    }
}

impl Worker {
    /// Starts a thread with a context and what `make` makes there.
    pub(crate) fn start<M>(py: Python<'_>, place: Place, make: M) -> PyResult<Self>
    where
        M: for<'ctx> FnOnce(&'ctx Context) -> nn_core::Result<Holding<'ctx>> + Send + 'static,
    {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (answer, answered) = mpsc::channel();
        let thread = thread::Builder::new().name("nncuda_rs".into()).spawn(move || {
            let Place { device, threads, isa } = place;
            let context = match Context::open(device, threads, isa) {
                Ok(context) => context,
                Err(error) => return drop(answer.send(Err(error.into()))),
            };
            let mut holding = match make(&context) {
                Ok(holding) => holding,
                Err(error) => return drop(answer.send(Err(error))),
            };
            // Whoever asked may be gone; then so is the other end of `queue`, and the thread ends.
            drop(answer.send(Ok(())));
            for job in queue {
                job(&mut holding);
            }
        })?;
        py.detach(move || answered.recv()).map_err(|_| broken())?.map_err(|error| exception(py, &error))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has the thread do something when all before it is done; does not wait for it.
    pub(crate) fn send<J>(&self, job: J) -> PyResult<()>
    where
        J: for<'ctx> FnOnce(&mut Holding<'ctx>) + Send + 'static,
    {
        let jobs = self.jobs.as_ref().ok_or_else(broken)?;
        jobs.send(Box::new(job)).map_err(|_| broken())
    }

    /// Has the thread do something and waits for what comes of it.
    pub(crate) fn call<T, J>(&self, py: Python<'_>, job: J) -> PyResult<T>
    where
        T: Send + 'static,
        J: for<'ctx> FnOnce(&mut Holding<'ctx>) -> nn_core::Result<T> + Send + 'static,
    {
        let (answer, answered) = mpsc::channel();
        self.send(move |holding| drop(answer.send(job(holding))))?;
        py.detach(move || answered.recv()).map_err(|_| broken())?.map_err(|error| exception(py, &error))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Without jobs to come the thread ends. It never waits for Python, so that it may be waited for.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported to whoever waited for the job.
            drop(thread.join());
        }
    }
}

/// The thread has panicked, which nothing that it is given should make it do.
pub(crate) fn broken() -> PyErr {
    PyRuntimeError::new_err("the thread of this model has broken down: this is a defect of nncuda_rs")
}
