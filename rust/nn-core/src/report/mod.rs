//! One HTML page of a training run: the page of `go/report/page`, which draws the run's own files that stand in it.
//! docs/formats.md describes it.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{Value, atomic, json_lines, present, read_regular};
use crate::train::list_checkpoints;

const PAGE: &str = include_str!("page.html");
const PARTS: [(&str, &str); 4] = [
    ("<!-- page.css -->", include_str!("page.css")),
    ("<!-- run.js -->", include_str!("run.js")),
    ("<!-- charts.js -->", include_str!("charts.js")),
    ("<!-- page.js -->", include_str!("page.js")),
];
const FILES: [&str; 4] = ["run.json", "results.json", "samples.jsonl", "metrics.jsonl"];

/// Writes the page of the run in `folder` to `path`, by default report.html in the folder, and gives where it is and
/// its size in bytes. `Error::Format` when the folder holds no metrics.
pub fn write_report(folder: &Path, path: Option<&Path>) -> Result<(PathBuf, usize)> {
    let path = path.map_or_else(|| folder.join("report.html"), Path::to_owned);
    let page = report_html(folder)?;
    atomic::write_file(&path, page.as_bytes())?;
    Ok((path, page.len()))
}

/// The page of the run in `folder`. `Error::Format` when it holds no metrics.
pub fn report_html(folder: &Path) -> Result<String> {
    let mut files = String::new();
    for (name, content) in run_files(folder)? {
        let text = String::from_utf8_lossy(&content).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        files += &format!("<pre hidden data-file=\"{name}\">\n{text}</pre>\n");
    }
    let page = PARTS.iter().fold(PAGE.to_owned(), |page, (mark, part)| page.replace(mark, part));
    Ok(page.replacen("<!-- files -->", &files, 1))
}

/// The files of a run that the page reads, by name; of a folder its name ("."), or the bytes of what it holds.
fn run_files(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let metrics = folder.join("metrics.jsonl");
    if !present(&metrics) {
        return Err(Error::missing(folder, "is no training run: it holds no metrics.jsonl"));
    }
    let mut any = false;
    for line in json_lines(&metrics)? {
        let record = line?.record;
        any |= matches!(record.as_ref().and_then(|record| record.get("step")), Some(Value::Integer(_)));
    }
    if !any {
        return Err(Error::format(metrics, "holds no record of a step yet; the first comes after `log_every` steps"));
    }
    let whole = folder.canonicalize().map_err(|error| Error::io(folder, error))?;
    let mut found = vec![(".".to_owned(), file_name(&whole).into_bytes())];
    found.extend(FILES.iter().filter_map(|name| Some(((*name).to_owned(), content(&folder.join(name))?))));
    for checkpoint in list_checkpoints(&folder.join("checkpoints"))? {
        // The run may remove it meanwhile.
        let Ok(size) = bytes_of(&checkpoint) else { continue };
        let name = format!("checkpoints/{}/", file_name(&checkpoint));
        found.push((name.clone(), size.to_string().into_bytes()));
        found.push((name + "training.json", content(&checkpoint.join("training.json")).unwrap_or_default()));
    }
    Ok(found)
}

/// The bytes of a file that is there; none when it cannot be read, of which the page then says so.
fn content(path: &Path) -> Option<Vec<u8>> {
    present(path).then(|| read_regular(path, u64::MAX - 1).unwrap_or_default())
}

fn bytes_of(folder: &Path) -> std::io::Result<u64> {
    std::fs::read_dir(folder)?.map(|entry| Ok(std::fs::metadata(entry?.path())?.len())).sum()
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stand_in_the_page_as_they_are() {
        let root = tempfile::tempdir().unwrap();
        assert!(report_html(root.path()).unwrap_err().to_string().contains("it holds no metrics.jsonl"));
        let metrics = root.path().join("metrics.jsonl");
        std::fs::write(&metrics, "{\"step\": 1.5}\n").unwrap();
        assert!(report_html(root.path()).unwrap_err().to_string().contains("holds no record of a step yet"));
        std::fs::write(&metrics, b"{\"step\": 1}\n</pre>&\xff").unwrap();
        std::fs::write(root.path().join("samples.jsonl"), "<!-- files -->").unwrap();
        std::fs::create_dir_all(root.path().join("checkpoints/step-00000007")).unwrap();
        std::fs::write(root.path().join("checkpoints/step-00000007/x"), "12345").unwrap();
        let page = report_html(root.path()).unwrap();
        for part in [
            "<pre hidden data-file=\"samples.jsonl\">\n&lt;!-- files --&gt;</pre>\n",
            "<pre hidden data-file=\"metrics.jsonl\">\n{\"step\": 1}\n&lt;/pre&gt;&amp;\u{fffd}</pre>\n",
            "<pre hidden data-file=\"checkpoints/step-00000007/\">\n5</pre>\n",
            "<pre hidden data-file=\"checkpoints/step-00000007/training.json\">\n</pre>\n",
        ] {
            assert_eq!(page.matches(part).count(), 1, "{part}");
        }
        assert!(!page.contains("<!--"));
    }
}
