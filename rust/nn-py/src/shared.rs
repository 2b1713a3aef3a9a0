//! A model, or a trainer with its model, which any number of Python's objects and threads may share.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use nn_core::Error;
use nn_core::model::MoETransformer;
use nn_core::train::Trainer;
use nn_ffi::{Context, Device, InstructionSet};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors::exception;

/// What is shared.
pub(crate) enum Holding {
    Model(Box<MoETransformer>),
    Trainer(Box<Trainer>),
}

impl Holding {
    pub(crate) fn model(&self) -> &MoETransformer {
        match self {
            Self::Model(model) => model,
            Self::Trainer(trainer) => trainer.model(),
        }
    }

    pub(crate) fn trainer(&mut self) -> nn_core::Result<&mut Trainer> {
        match self {
            Self::Model(_) => Err(Error::value("this model has no trainer")),
            Self::Trainer(trainer) => Ok(trainer),
        }
    }
}

/// The device to compute on, as `Context` of nncuda takes it.
pub(crate) struct Place {
    device: Device,
    threads: Option<usize>,
    isa: Option<InstructionSet>,
}

impl Place {
    pub(crate) fn new(device: &str, threads: Option<usize>, isa: Option<&str>) -> nn_core::Result<Self> {
        Ok(Self { device: device.parse()?, threads, isa: isa.map(str::parse).transpose()? })
    }
}

/// Calls on it come one at a time. Python's other threads run while one of them waits or computes.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Holding>>);

impl Shared {
    /// What `make` makes on a context of its own.
    pub(crate) fn new(
        py: Python<'_>,
        place: Place,
        make: impl FnOnce(&Context) -> nn_core::Result<Holding> + Send,
    ) -> PyResult<Self> {
        let made = py.detach(|| make(&Context::open(place.device, place.threads, place.isa)?));
        made.map(|holding| Self(Arc::new(Mutex::new(holding)))).map_err(|error| exception(py, &error))
    }

    /// Does something with it and gives what comes of it.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        job: impl FnOnce(&mut Holding) -> nn_core::Result<T> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| self.0.lock().map(|mut holding| job(&mut holding)).map_err(|_| broken()));
        done?.map_err(|error| exception(py, &error))
    }

    /// Runs `job` on a thread that has it to itself, from now until the job is done, and gives what it sends.
    pub(crate) fn stream<T: Send + 'static>(
        &self,
        py: Python<'_>,
        job: impl FnOnce(&mut Holding, &mpsc::Sender<T>) + Send + 'static,
    ) -> PyResult<Items<T>> {
        let ((sender, items), (has, begun)) = (mpsc::channel(), mpsc::channel());
        let shared = Arc::clone(&self.0);
        let thread = thread::Builder::new().name("nncuda_rs".into()).spawn(move || {
            if let Ok(mut holding) = shared.lock() {
                let _ = has.send(()); // whoever asked waits for it
                job(&mut holding, &sender);
            }
        })?;
        py.detach(move || begun.recv()).map_err(|_| broken())?;
        Ok(Items { items: Mutex::new(Some(items)), thread: Some(thread) })
    }
}

/// What a thread sends. It ends when it has sent everything, or when this is dropped.
pub(crate) struct Items<T> {
    /// `None` once it is being dropped.
    items: Mutex<Option<Receiver<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send> Items<T> {
    /// The next item, for which Python's other threads do not wait.
    pub(crate) fn next(&self, py: Python<'_>) -> PyResult<Option<T>> {
        // The lock is poisoned when a thread has panicked while it waited.
        py.detach(|| {
            let items = self.items.lock().map_err(|_| broken())?;
            Ok(items.as_ref().and_then(|items| items.recv().ok()))
        })
    }
}

impl<T> Drop for Items<T> {
    fn drop(&mut self) {
        // Without anyone to send to, the thread ends. It never waits for Python, so that it may be waited for.
        if let Ok(items) = self.items.get_mut() {
            *items = None;
        }
        if let Some(thread) = self.thread.take() {
            // A panic in it has poisoned what it shares, which the next call reports.
            let _ = thread.join();
        }
    }
}

/// A call has panicked, which nothing that it is given should make it do.
fn broken() -> PyErr {
    PyRuntimeError::new_err("an earlier call of this model broke down: this is a defect of nncuda_rs")
}
