//! One self-contained HTML page of a training run.
//!
//! The page is one file for all languages, with its own style and script, which draws the run that stands in it as
//! JSON; this module reads the run's folder into that JSON. The same folder gives the same bytes in every language.

mod run;
mod thinning;

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::format::{Table, Value, atomic};
pub use run::read_run;

/// The page without a run, written by `make generate`: {{rows}} is where rows of the table go, {{run}} where the JSON
/// goes.
const PAGE: &str = include_str!("page.html");

/// Writes the page of the run in `folder` to `path`, by default report.html in the folder, and gives where it is and
/// its size in bytes. `Error::Format` when the folder holds no metrics.
pub fn write_report(folder: &Path, path: Option<&Path>) -> Result<(PathBuf, usize)> {
    let path = path.map_or_else(|| folder.join("report.html"), Path::to_owned);
    let page = report_html(&read_run(folder)?);
    atomic::write_file(&path, page.as_bytes())?;
    Ok((path, page.len()))
}

/// The page of a run, as [`read_run`] gives it.
pub fn report_html(run: &Table) -> String {
    let Some(Value::List(table)) = run.get("table") else { return String::from(PAGE) };
    let cell = |value: &Value| if *value == Value::None { "–".into() } else { value.to_json() };
    let row = |row: &Value| {
        let Value::List(values) = row else { return String::new() };
        format!("<tr>{}</tr>", values.iter().map(|value| format!("<td>{}</td>", cell(value))).collect::<String>())
    };
    let rows = table.iter().map(row).collect::<Vec<_>>().join("\n");
    // JSON has these characters in texts only, and there they have another spelling. Spelled so, no text can end the
    // element that it stands in.
    let mut text = Value::Table(run.clone()).to_json();
    for (character, spelled) in [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026")] {
        text = text.replace(character, spelled);
    }
    // The rows hold nothing but numbers, so the place that is found for the run is the page's own.
    PAGE.replacen("{{rows}}", &rows, 1).replacen("{{run}}", &text, 1)
}
