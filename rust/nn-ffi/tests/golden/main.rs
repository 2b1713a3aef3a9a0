//! All golden fixtures, by the format in tests/golden/README.md, on every engine and instruction set of the machine.
//!
//! The list of cases is what the folder holds and the kernels are called by name, so that a new fixture or kernel is tested
//! with no new code. `NNCUDA_GOLDEN` names another folder.

mod compare;
mod fixtures;
mod runner;

use std::collections::BTreeSet;
use std::error::Error;

use nn_ffi::catalogue::KERNELS;
use nn_ffi::{Context, Device, InstructionSet, Status};

use crate::runner::Outcome;

/// The engines of this machine, each with its name: the CPU's with every instruction set that the processor has, and a
/// GPU where there is one.
fn engines() -> Vec<(String, Context)> {
    let mut engines = Vec::new();
    for isa in InstructionSet::ALL {
        match Context::open(Device::Cpu, None, Some(isa)) {
            Ok(context) => engines.push((isa.name().to_owned(), context)),
            Err(error) if error.status() == Some(Status::InvalidValue) => {} // this processor does not have it
            Err(error) => panic!("{}: {error}", isa.name()),
        }
    }
    match Context::new(Device::Cuda(0)) {
        Ok(context) => engines.push(("cuda".to_owned(), context)),
        Err(error) => assert_eq!(error.status(), Some(Status::NoDevice), "cuda: {error}"),
    }
    engines
}

#[test]
fn every_fixture_passes_on_every_engine() -> Result<(), Box<dyn Error>> {
    let folder = fixtures::folder();
    let files = fixtures::files(&folder)?;
    let mut problems = Vec::new();
    for (name, context) in engines() {
        let (mut cases, mut calls, mut largest) = (0, 0, (0.0, String::new()));
        for file in &files {
            for case in fixtures::read(file)? {
                cases += 1;
                for Outcome { what, share, problem } in runner::run(&context, &case)? {
                    calls += 1;
                    if !problem.is_empty() {
                        problems.push(format!("{name}: {what}: {problem}"));
                    } else if share > largest.0 {
                        largest = (share, what);
                    }
                }
            }
        }
        let (share, what) = largest;
        println!(
            "{name}: {cases} cases, {calls} outputs; the largest share of its tolerance, {:.0} %: {what}",
            share * 100.0
        );
        assert!(cases > 0, "no fixtures in {}", folder.display());
    }
    let shown = problems.len().min(20);
    assert!(problems.is_empty(), "{} outputs are wrong; the first:\n{}", problems.len(), problems[..shown].join("\n"));
    Ok(())
}

#[test]
fn every_kernel_has_fixtures() -> Result<(), Box<dyn Error>> {
    let found: BTreeSet<String> =
        fixtures::files(&fixtures::folder())?.iter().map(|file| file.kernel.clone()).collect();
    let known: BTreeSet<String> = KERNELS.iter().map(|kernel| kernel.name.to_owned()).collect();
    assert_eq!(found, known);
    Ok(())
}

#[test]
fn what_is_wrong_is_found() -> Result<(), Box<dyn Error>> {
    let context = Context::new(Device::Cpu)?;
    let files = fixtures::files(&fixtures::folder())?;
    let file = files.iter().find(|file| file.kernel == "add").ok_or("no fixtures of add")?;
    let first = fixtures::read(file)?.into_iter().find(|case| case.name.starts_with("f32"));
    let mut wrong = first.ok_or("no f32 case")?;
    let output = wrong.outputs.get_mut("y").ok_or("add has no y")?;
    output.bytes[..4].copy_from_slice(&1e30_f32.to_le_bytes());
    assert!(runner::run(&context, &wrong)?.iter().all(|outcome| outcome.problem.contains("element 0")));
    Ok(())
}
