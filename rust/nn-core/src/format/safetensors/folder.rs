//! Folders of safetensors files.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use nn_ffi::HostBytes;

use super::{Entry, SafetensorsFile};
use crate::error::{Error, Result};
use crate::format::limits::{INDEX_BYTES, NAME_BYTES};
use crate::format::value::{excerpt, quoted};
use crate::format::{StoredTensor, Value, present, read_long_json};

/// The tensors of several safetensors files together.
#[derive(Debug)]
pub struct SafetensorsFolder {
    files: Vec<SafetensorsFile>,
    names: Vec<String>,
    home: HashMap<String, usize>,
}

impl SafetensorsFolder {
    /// Opens `model.safetensors`, or all shards that `model.safetensors.index.json` names.
    pub fn open(folder: &Path) -> Result<Self> {
        let (single, index_path) = (folder.join("model.safetensors"), folder.join("model.safetensors.index.json"));
        if present(&single) {
            return Self::of(vec![SafetensorsFile::open(&single)?]);
        }
        if !present(&index_path) {
            return Err(Error::missing(folder, "holds neither model.safetensors nor model.safetensors.index.json"));
        }
        let index = read_long_json(&index_path, INDEX_BYTES)?;
        let weight_map: Option<Vec<(&str, &str)>> = index
            .get("weight_map")
            .and_then(Value::as_table)
            .and_then(|table| table.iter().map(|(name, file)| Some((name, file.as_text()?))).collect());
        let Some(weight_map) = weight_map else {
            return Err(Error::format(&index_path, "has no weight_map from tensor names to file names"));
        };
        if let Some((_, outside)) = weight_map.iter().find(|(_, file)| file.is_empty() || file.contains(['/', '\0'])) {
            let problem = format!("names the file {}, which is outside its folder", quoted(outside));
            return Err(Error::format(&index_path, problem));
        }
        if let Some((_, long)) = weight_map.iter().find(|(_, file)| file.len() > NAME_BYTES) {
            let problem = format!("names the file {}, longer than a name can be", quoted(long));
            return Err(Error::format(&index_path, problem));
        }
        let file_names: BTreeSet<&str> = weight_map.iter().map(|(_, file)| *file).collect();
        let files = file_names.iter().map(|file| SafetensorsFile::open(&folder.join(file)));
        let tensors = Self::of(files.collect::<Result<_>>()?)?;
        for (name, file) in weight_map {
            if tensors.home(name).and_then(|file| file.path.file_name()) != Some(file.as_ref()) {
                let problem =
                    format!("says that tensor {} is in {}, which lacks it", quoted(name), excerpt(file.into()));
                return Err(Error::format(&index_path, problem));
            }
        }
        Ok(tensors)
    }

    fn of(files: Vec<SafetensorsFile>) -> Result<Self> {
        let mut names = Vec::new();
        let mut home: HashMap<String, usize> = HashMap::new();
        for (number, file) in files.iter().enumerate() {
            for name in file.entries.keys() {
                if let Some(other) = home.insert(name.clone(), number) {
                    let other = files[other].path.file_name().unwrap_or_default().to_string_lossy();
                    let problem = format!("tensor {} is in {other} as well", quoted(name));
                    return Err(Error::format(&file.path, problem));
                }
                names.push(name.clone());
            }
        }
        Ok(Self { files, names, home })
    }

    /// Names and tensors, file by file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.names.iter().filter_map(|name| Some((name.as_str(), self.get(name)?)))
    }

    /// A tensor by its name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.home(name)?.get(name)
    }

    /// A tensor of f32, f16 or bf16 over the mapped pages of its file. `Error::Format` when there is no such tensor.
    pub fn stored(&self, name: &str) -> Result<StoredTensor> {
        self.home_of(name)?.stored(name)
    }

    /// The bytes of a tensor of any dtype, over the mapped pages of its file. `Error::Format` when there is no such tensor.
    pub fn mapped(&self, name: &str) -> Result<HostBytes> {
        self.home_of(name)?.mapped(name)
    }

    fn home_of(&self, name: &str) -> Result<&SafetensorsFile> {
        self.home(name).ok_or_else(|| Error::value(format!("no file has the tensor {}", quoted(name))))
    }

    /// The file that holds a tensor.
    pub fn home(&self, name: &str) -> Option<&SafetensorsFile> {
        Some(&self.files[*self.home.get(name)?])
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        DEFAULT_SHARD_BYTES, F32, Source, fill_safetensors_folder, lay_out_safetensors_folder, write_safetensors,
    };
    use super::*;

    fn write(folder: &Path, tensors: &[Source<'_>], most_bytes: u64) {
        lay_out_safetensors_folder(folder, tensors, most_bytes).unwrap();
        fill_safetensors_folder(folder, tensors, most_bytes).unwrap();
    }

    fn source<'a>(name: &str, shape: &[usize], value: f32) -> Source<'a> {
        let count = shape.iter().product();
        let bytes = move || Ok(vec![value; count].into_iter().flat_map(f32::to_le_bytes).collect());
        Source { name: name.into(), shape: shape.into(), dtype: F32, parts: vec![(0..count, Box::new(bytes))] }
    }

    #[test]
    fn tensors_come_back() {
        let root = tempfile::tempdir().unwrap();
        let tensors = [source("b", &[2, 3], 1.5), source("a", &[], -0.0), source("none", &[0, 4], 0.0)];
        write(root.path(), &tensors, DEFAULT_SHARD_BYTES);
        let folder = SafetensorsFolder::open(root.path()).unwrap();
        let found: Vec<_> = folder.iter().map(|(name, entry)| (name, entry.shape.clone(), entry.dtype)).collect();
        assert_eq!(found, [("a", vec![], F32), ("b", vec![2, 3], F32), ("none", vec![0, 4], F32)]);
        assert_eq!(folder.home("b").unwrap().read_f32("b", 4, 2).unwrap(), [1.5, 1.5]);
        assert!(folder.home("b").unwrap().read_f32("b", 4, 3).is_err());
        assert_eq!(folder.home("a").unwrap().metadata()["format"], "pt");
    }

    #[test]
    fn large_weights_are_cut_into_shards() {
        let root = tempfile::tempdir().unwrap();
        let tensors = [source("a", &[4], 1.0), source("b", &[100], 2.0), source("c", &[4], 3.0)];
        write(root.path(), &tensors, 20);
        let folder = SafetensorsFolder::open(root.path()).unwrap();
        assert_eq!(folder.iter().count(), 3);
        assert!(folder.home("b").unwrap().path().ends_with("model-00002-of-00003.safetensors"));
    }

    #[test]
    fn a_failing_read_ends_the_writing() {
        let root = tempfile::tempdir().unwrap();
        let lost = Box::new(|| Err(Error::value("lost")));
        let bad = Source { name: "a".into(), shape: vec![2], dtype: F32, parts: vec![(0..2, lost)] };
        let error = write_safetensors(&root.path().join("a"), &[bad], None).unwrap_err();
        assert_eq!(error.to_string(), "lost");
    }
}
