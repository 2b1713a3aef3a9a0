//! The bindings are those of bindings.h.

use std::fs;
use std::path::Path;

use nn_cuda::Functions;
use sha2::{Digest, Sha256};

fn header() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings.h");
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_bindings_were_made_from_this_header() {
    let digest: String = Sha256::digest(header()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, nn_cuda::HEADER_SHA256, "bindings.h has changed: run `make generate`");
}

#[test]
fn every_function_of_the_header_is_in_the_table() {
    let text = String::from_utf8(header()).expect("the header is UTF-8");
    let declared: Vec<&str> = text
        .split("\nNNCUDA_API ")
        .skip(1)
        .map(|declaration| {
            let head = declaration.split('(').next().unwrap_or_default();
            head.rsplit([' ', '*']).next().unwrap_or_default()
        })
        .collect();
    assert!(declared.len() > 100, "the header declares {} functions", declared.len());
    let known: Vec<&str> = Functions::NAMES.iter().map(|name| name.to_str().expect("names are ASCII")).collect();
    assert_eq!(known, declared);
}
