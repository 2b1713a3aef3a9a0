//! Options of a model's files by name, each checked for its type.

use crate::error::{Error, Result};
use crate::format::gguf::Metadata;
use crate::format::limits::COUNT;
use crate::format::{Table, Value};
use crate::options::{refuse, whole_rule};

/// Options of a file by name, each checked for its type; those without a default must be there.
pub(super) struct Given<'v> {
    source: Source<'v>,
    pub(super) prefix: String,
}

enum Source<'v> {
    Json(&'v Table),
    Gguf(&'v Metadata),
}

impl<'v> Given<'v> {
    pub(super) fn of_table(table: &'v Table) -> Self {
        Self { source: Source::Json(table), prefix: String::new() }
    }

    pub(super) fn of_metadata(metadata: &'v Metadata, prefix: String) -> Self {
        Self { source: Source::Gguf(metadata), prefix }
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        let name = format!("{}{name}", self.prefix);
        let value = match &self.source {
            Source::Json(table) => table.get(&name).cloned(),
            Source::Gguf(metadata) => metadata.plain(&name),
        };
        value.filter(|value| *value != Value::None)
    }

    pub(super) fn whole(&self, name: &str, default: Option<usize>) -> Result<usize> {
        let least = usize::from(default != Some(0));
        let value = match (self.get(name), default) {
            (Some(value), _) => value,
            (None, Some(default)) => default.into(),
            (None, None) => return Err(self.missing(name)),
        };
        let count = value.as_integer().filter(|count| (least..=COUNT).contains(count));
        count.ok_or_else(|| refuse(&format!("{}{name}", self.prefix), &value, whole_rule(least)))
    }

    pub(super) fn number(&self, name: &str, default: Option<f64>) -> Result<f64> {
        let value = match (self.get(name), default) {
            (Some(value), _) => value,
            (None, Some(default)) => default.into(),
            (None, None) => return Err(self.missing(name)),
        };
        let number = value.as_number().filter(|number| number.is_finite());
        number.ok_or_else(|| refuse(&format!("{}{name}", self.prefix), &value, "a finite number"))
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(value),
            Some(value) => Err(refuse(&format!("{}{name}", self.prefix), &value, "true or false")),
        }
    }

    /// A list of finite numbers that must be there, rounded to f32; at most so many.
    pub(super) fn numbers(&self, name: &str, most: usize) -> Result<Vec<f32>> {
        let Some(value) = self.get(name) else { return Err(self.missing(name)) };
        let Value::List(list) = &value else { return Err(self.no_list(name, &value, most)) };
        let numbers = list.iter().map(|one| one.as_number().filter(|one| one.is_finite()).map(|one| one as f32));
        let numbers: Option<Vec<f32>> = numbers.collect();
        numbers.filter(|numbers| (1..=most).contains(&numbers.len())).ok_or_else(|| self.no_list(name, &value, most))
    }

    fn no_list(&self, name: &str, value: &Value, most: usize) -> Error {
        refuse(&format!("{}{name}", self.prefix), value, &format!("a list of at most {most} numbers"))
    }

    fn missing(&self, name: &str) -> Error {
        Error::value(format!("{}{name} is missing", self.prefix))
    }
}
