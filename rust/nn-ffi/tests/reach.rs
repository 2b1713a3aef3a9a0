//! Each function of bindings.h is reachable: the kernels as typed functions and by name, everything else from safe code.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs;
use std::path::Path;

use nn_ffi::catalogue::{Argument, KERNELS, Kernel, Kind};
use nn_ffi::{Context, DType, Device, Error, Format, Result, Status, library};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names that the header declares.
fn declared() -> Vec<String> {
    let header = read("../../bindings.h");
    let heads = header.split("\nNNCUDA_API ").skip(1).map(|text| text.split('(').next().unwrap_or_default());
    heads.map(|head| head.rsplit([' ', '*']).next().unwrap_or_default().to_owned()).collect()
}

/// All Rust files of a folder of the crate.
fn sources(folder: &str) -> String {
    let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("the crate has sources");
    let paths = files.map(|file| file.expect("it can be read").path());
    let rust = paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    rust.map(|path| fs::read_to_string(path).expect("it can be read")).collect()
}

#[test]
fn every_function_of_the_header_is_reached() {
    let source = sources("src") + &read("../nn-cuda/src/load.rs");
    let here = read("tests/reach.rs");
    let kernels = sources("src/kernels");
    let names = declared();
    assert!(names.len() > 100, "the header declares {} functions", names.len());
    for name in names {
        match name.strip_prefix("cuda_") {
            Some(kernel) => {
                assert!(Kernel::find(kernel).is_some(), "{name} cannot be called by name");
                assert!(kernels.contains(&format!("pub fn {kernel}(")), "{name} has no typed function");
            }
            // The names of statuses and the sizes of dtypes are known to the crate: the tests below ask the library.
            None => {
                let called = source.contains(&format!(".{name})(")) || here.contains(&format!(".{name})("));
                assert!(called || name == "nncuda_abi_version" && source.contains("nncuda_abi_version"), "{name}");
            }
        }
    }
    assert_eq!(KERNELS.len(), declared().iter().filter(|name| name.starts_with("cuda_")).count());
}

#[test]
fn statuses_and_dtypes_are_those_of_the_library() -> Result<()> {
    let raw = nn_cuda::library()?;
    for code in -1..100 {
        // SAFETY: the function takes any number and returns a string that stays.
        let name = unsafe { CStr::from_ptr((raw.nncuda_status_name)(code)) }.to_str().expect("names are ASCII");
        let status = Status::from_code(code);
        assert_eq!(status.map_or("NNCUDA_SUCCESS", Status::name), name, "{code}");
        assert_eq!(status.map_or(0, Status::code), code);
        assert!(!library::status_text(status.unwrap_or(Status::Internal))?.is_empty());
    }
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I8] {
        let mut bytes = 0;
        // SAFETY: `bytes` may be written.
        let code = unsafe { (raw.nncuda_dtype_size)(dtype.code(), &raw mut bytes) };
        assert_eq!((code, bytes), (0, dtype.size() as i64), "{dtype}");
        assert_eq!(dtype.name().parse::<DType>()?, dtype);
    }
    assert!("f64".parse::<DType>().is_err());
    Ok(())
}

#[test]
fn the_library_describes_itself_and_the_machine() -> Result<()> {
    assert!(library::build_info()?.contains("nncuda"), "{}", library::build_info()?);
    assert_eq!(library::abi_version()?.0, nn_cuda::NNCUDA_ABI_MAJOR);
    assert!(!library::device_text(Device::Cpu)?.is_empty());
    let missing = library::device_text(Device::Cuda(4000)).expect_err("nobody has that many");
    assert_eq!(missing.status(), Some(Status::NoDevice));
    assert_eq!(library::gpus()? > 0, Context::new(Device::Cuda(0)).is_ok());
    Ok(())
}

#[test]
fn calls_by_name_name_what_does_not_belong() -> Result<()> {
    let context = Context::new(Device::Cpu)?;
    let fill = Kernel::find("fill").expect("there is one");
    let tensor = context.zeros(&[3], DType::F32)?;
    let (place, any) = (Argument::Tensor(Some(&tensor)), Argument::Integer(-1));
    // The size and the dtype are the tensor's, whatever stands in their places.
    fill.call(&[place, any, Argument::Float(2.5), any])?;
    assert_eq!(tensor.to_vec::<f32>()?, [2.5; 3]);
    let sentence = |arguments: &[Argument<'_>]| fill.call(arguments).expect_err("it is wrong").to_string();
    assert!(sentence(&[place, any]).starts_with("fill takes y, n, value, dtype, not "));
    assert_eq!(sentence(&[any, any, Argument::Float(1.0), any]), "Integer(-1) was given where a tensor belongs");
    assert_eq!(sentence(&[Argument::Tensor(None), any, any, any]), "Tensor(None) was given where a tensor belongs");
    assert_eq!(sentence(&[place, any, any, any]), "Integer(-1) was given where a number belongs");
    let epilogue = Kernel::find("gemm_epilogue").expect("there is one");
    let arguments: Vec<_> = epilogue
        .parameters
        .iter()
        .map(|parameter| match parameter.kind {
            Kind::Tensor { .. } => place,
            _ => Argument::Integer(9),
        })
        .collect();
    let wrong = epilogue.call(&arguments).expect_err("no activation has the number 9").to_string();
    assert_eq!(wrong, "Integer(9) was given where a value of the option belongs");
    Ok(())
}

#[test]
fn rows_of_formats_have_the_bytes_of_their_blocks() -> Result<()> {
    let sizes = [(Format::F32, 2048), (Format::Bf16, 1024), (Format::Q40, 288), (Format::Q80, 544), (Format::Q6K, 420)];
    for (format, bytes) in sizes {
        assert_eq!(library::row_bytes(format, 512)?, bytes, "{format:?}");
    }
    let refused = library::row_bytes(Format::Q80, 33);
    assert!(matches!(refused, Err(Error::Call { status: Status::InvalidSize, .. })), "{refused:?}");
    Ok(())
}
