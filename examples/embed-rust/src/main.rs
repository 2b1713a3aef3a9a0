//! A service without a network: requests are lines of JSON on the standard input, and what a model writes for them are lines
//! on the standard output; see README.md. `embed-rust MODEL [DEVICE]`

use std::env;
use std::io::{self, BufRead};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use nn_core::infer::{EngineOptions, LanguageModel};
use nn_ffi::{Context, Device};

use service::Service;

mod service;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (path, device) = match &arguments[..] {
        [path] => (path, Device::Cpu),
        [path, device] => (path, device.parse()?),
        _ => return Err("usage: embed-rust MODEL [DEVICE]".into()),
    };
    let model = LanguageModel::load(path.as_ref(), &Context::new(device)?, &EngineOptions::default())?;
    let service = Arc::new(Service::new(model, io::stdout()));
    thread::scope(|scope| {
        for line in io::stdin().lock().lines() {
            if let Some(begun) = service.take(&line?) {
                let service = Arc::clone(&service);
                scope.spawn(move || service.answer(begun));
            }
        }
        Ok(())
    })
}
