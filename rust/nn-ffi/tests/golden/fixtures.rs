//! The fixtures as they lie in their files.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// A file of cases: those of one kernel.
pub(crate) struct File {
    pub(crate) kernel: String,
    path: PathBuf,
}

/// The content of a buffer.
pub(crate) struct Content {
    pub(crate) dtype: String,
    pub(crate) bytes: Vec<u8>,
}

/// One call: what goes in, what must come out, and how near.
pub(crate) struct Case {
    pub(crate) kernel: String,
    pub(crate) name: String,
    pub(crate) scalars: BTreeMap<String, Value>,
    pub(crate) tolerance: BTreeMap<String, f64>,
    pub(crate) zeros: Vec<String>,
    pub(crate) inputs: BTreeMap<String, Content>,
    pub(crate) outputs: BTreeMap<String, Content>,
}

/// The folder of fixtures.
pub(crate) fn folder() -> PathBuf {
    env::var_os("NNCUDA_GOLDEN")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden"), PathBuf::from)
}

/// The files of a folder, by name.
pub(crate) fn files(folder: &Path) -> Result<Vec<File>, Box<dyn Error>> {
    let mut files = Vec::new();
    for family in fs::read_dir(folder)? {
        let family = family?.path();
        if !family.is_dir() {
            continue;
        }
        for file in fs::read_dir(family)? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "safetensors") {
                let kernel = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                files.push(File { kernel, path });
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn dtype_name(dtype: Dtype) -> Result<String, String> {
    let name = match dtype {
        Dtype::F32 => "f32",
        Dtype::F16 => "f16",
        Dtype::BF16 => "bf16",
        Dtype::I32 => "i32",
        Dtype::I8 => "i8",
        Dtype::U8 => "u8",
        Dtype::I64 => "i64",
        other => return Err(format!("a fixture has no tensors of {other:?}")),
    };
    Ok(name.to_owned())
}

/// All cases of a file.
pub(crate) fn read(file: &File) -> Result<Vec<Case>, Box<dyn Error>> {
    let bytes = fs::read(&file.path)?;
    let (_, header) = SafeTensors::read_metadata(&bytes)?;
    let wrong = |what: &str| format!("{}: {what}", file.path.display());
    let entries =
        header.metadata().as_ref().and_then(|metadata| metadata.get("cases")).ok_or_else(|| wrong("no cases"))?;
    let entries: BTreeMap<String, Value> = serde_json::from_str(entries)?;
    let mut cases = BTreeMap::new();
    for (name, entry) in entries {
        let object = |key: &str| entry[key].as_object().ok_or_else(|| wrong(&format!("{name} has no {key}")));
        let number = |value: &Value| value.as_f64().ok_or_else(|| wrong(&format!("{name}: a tolerance is no number")));
        let tolerance = object("tolerance")?.iter().map(|(key, value)| Ok((key.clone(), number(value)?)));
        let zeros = entry["zeros"].as_array().ok_or_else(|| wrong(&format!("{name} has no zeros")))?;
        let case = Case {
            kernel: file.kernel.clone(),
            name: name.clone(),
            scalars: object("scalars")?.clone().into_iter().collect(),
            tolerance: tolerance.collect::<Result<_, String>>()?,
            zeros: zeros.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
        };
        cases.insert(name, case);
    }
    for (name, tensor) in SafeTensors::deserialize(&bytes)?.tensors() {
        let parts: Vec<&str> = name.split('/').collect();
        let [case, side @ ("in" | "out"), parameter] = parts[..] else { return Err(wrong(&name).into()) };
        let case = cases.get_mut(case).ok_or_else(|| wrong(&format!("{name} is of no known case")))?;
        let content = Content { dtype: dtype_name(tensor.dtype())?, bytes: tensor.data().to_vec() };
        let place = if side == "in" { &mut case.inputs } else { &mut case.outputs };
        place.insert(parameter.to_owned(), content);
    }
    Ok(cases.into_values().collect())
}
