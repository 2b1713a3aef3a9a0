//! What a run's folder tells, read so that a run that is going on, was cut off or was damaged still gives a report.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::thinning::{Point, Shares, chosen_rows, or_none, recent_mean, rounded, thin, thin_experts};
use crate::error::{Error, Result};
use crate::format::regular::Line;
use crate::format::{Table, Value, json_lines, present, read_json};
use crate::model::{MoEConfig, config_from_mixtral};
use crate::train::{TrainConfig, TrainingState, list_checkpoints, open_shards, read_training_state, unigram_entropy};

/// Numbers of the records that are shown as series.
const SERIES: [&str; 9] = [
    "loss",
    "held_out_loss",
    "aux_loss",
    "grad_norm",
    "learning_rate",
    "tokens_per_second",
    "loss_scale",
    "skipped_steps",
    "bytes_peak",
];
const COLUMNS: [&str; 5] = ["loss", "held_out_loss", "learning_rate", "grad_norm", "tokens_per_second"];
/// Texts that a run notes of itself in run.json, or in results.json.
const NOTED: [&str; 8] = ["program", "library", "abi", "device", "data", "data_sha256", "held_out", "held_out_sha256"];

/// Where a float, which figures count in, would skip whole numbers.
const MOST_STEPS: i64 = 1 << 53;
/// What f32 holds is far below, and sums have room above it.
const LARGEST_NUMBER: f64 = 1e100;
const MOST_EXPERTS: usize = 4096;
const MOST_SAMPLES: usize = 200;
const MOST_NOTES: usize = 12;
/// In characters.
const LONGEST_SAMPLE: usize = 10_000;
const LONGEST_NOTED: usize = 1000;
// Beyond these, counting the tokens of held-out data would take noticeable memory or time.
const LARGEST_VOCABULARY: u64 = 1 << 24;
const MOST_COUNTED_TOKENS: u64 = 100_000_000;

/// Reads a run that is going on, complete, cut off or damaged into the JSON object that docs/formats.md describes.
///
/// A folder may come from anywhere, so nothing in it is believed: a record or value that is not what is described there
/// is left out, and a note says so. `Error::Format` when it holds no metrics at all: then there is nothing to report.
pub fn read_run(folder: &Path) -> Result<Table> {
    let path = folder.join("metrics.jsonl");
    if !present(&path) {
        return Err(Error::missing(folder, "is no training run: it holds no metrics.jsonl"));
    }
    let mut notes = Notes::default();
    let records = read_lines(&path, &mut notes)?;
    let Some((last_step, _)) = records.last() else {
        return Err(Error::format(path, "holds no record of a step yet; the first comes after `log_every` steps"));
    };
    let points = |name: &str| points(&records, name);
    for (name, words) in [("loss", "training loss"), ("held_out_loss", "held-out loss")] {
        let missing: Vec<i64> = points(name).iter().filter(|one| one.1.is_nan()).map(|one| one.0).collect();
        if let Some(first) = missing.first() {
            notes.add("not finite", [words.into(), missing.len().into(), (*first).into()]);
        }
    }
    let experts = read_experts(&records, &mut notes);
    let (checkpoints, known) = read_checkpoints(&folder.join("checkpoints"), &mut notes)?;
    let noted = read_object(&folder.join("run.json"), &mut notes);
    let results = read_object(&folder.join("results.json"), &mut notes);
    let data_windows = known.as_ref().map(|(_, state)| state.data_windows);
    let options = match known {
        Some((model, state)) => Some((model, state.train)),
        None => noted_options(&noted, &mut notes),
    };
    let samples = read_samples(&folder.join("samples.jsonl"), &mut notes);
    let model = options.as_ref().map(|(model, _)| model);
    let train = options.as_ref().map(|(_, train)| train);
    let entropy = find_entropy(&results, &noted, model, &points("held_out_loss"));
    let mut shown = Table::new();
    shown.set("model", model.map(MoEConfig::to_table));
    shown.set("train", train.map(TrainConfig::to_table));
    let mut series = Table::new();
    for name in SERIES {
        if let Some(made) = thin(&points(name), None) {
            series.set(name, made);
        }
    }
    let count = |number: u128| Value::Integer(i128::try_from(number).unwrap_or(i128::MAX));
    let last =
        |name: &str| or_none(points(name).iter().rev().map(|one| one.1).find(|one| !one.is_nan()).unwrap_or(f64::NAN));
    Ok(Table::from([
        ("version", 1i32.into()),
        ("name", cut(&name_of(folder), LONGEST_NOTED).into()),
        ("last_step", (*last_step).into()),
        ("notes", notes.shown()),
        ("options", shown.into()),
        ("parameters", model.map(|model| count(model.num_parameters())).into()),
        ("active_parameters", model.map(|model| count(model.num_active_parameters())).into()),
        ("tokens", last("tokens")),
        ("data_windows", data_windows.into()),
        ("seconds", last("seconds")),
        ("bytes_peak", or_none(number(results.get("bytes_peak")))),
        ("unigram_entropy", or_none(entropy)),
        ("recent_loss", recent_mean(&points("loss"))),
        ("noted", noted_texts(&noted, &results).into()),
        ("clipped", count_clipped(&points("grad_norm"), train)),
        ("checkpoints", checkpoints.into()),
        ("samples", samples.into()),
        ("table", table(&records).into()),
        ("series", series.into()),
        ("experts", experts.into()),
    ]))
}

/// What was left out: lists of a kind and its values.
#[derive(Default)]
struct Notes(Vec<Value>);

impl Notes {
    fn add<const N: usize>(&mut self, kind: &str, values: [Value; N]) {
        self.0.push(Value::List([kind.into()].into_iter().chain(values).collect()));
    }

    /// The first of them, and how many more there are.
    fn shown(mut self) -> Value {
        let more = self.0.len().saturating_sub(MOST_NOTES);
        self.0.truncate(MOST_NOTES);
        if more > 0 {
            self.add("more", [more.into()]);
        }
        Value::List(self.0)
    }
}

/// The name of a folder, links followed.
fn name_of(folder: &Path) -> String {
    let resolved = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    file_name(&resolved)
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Text cut to so many characters.
fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A JSON value as a finite number; NaN for everything else, so that it leaves a gap in a curve.
fn number(value: Option<&Value>) -> f64 {
    value.and_then(Value::as_number).filter(|number| number.abs() <= LARGEST_NUMBER).unwrap_or(f64::NAN)
}

/// A record with its step.
type Record = (i64, Table);

/// The objects of a JSONL file that have a step, in the order of steps. A last line without its end is one that is
/// being written.
fn read_lines(path: &Path, notes: &mut Notes) -> Result<Vec<Record>> {
    let mut found = Vec::new();
    for (index, line) in json_lines(path)?.enumerate() {
        let Line { text, record } = line?;
        if text.iter().all(|byte| b" \t\r\n".contains(byte)) {
            continue;
        }
        if let Some(record) = record.and_then(with_step) {
            found.push(record);
        } else if !text.ends_with(b"\n") {
            notes.add("cut", [file_name(path).into()]);
        } else {
            notes.add("line", [file_name(path).into(), (index + 1).into()]);
        }
    }
    found.sort_by_key(|(step, _)| *step);
    Ok(found)
}

fn with_step(record: Table) -> Option<Record> {
    let step = record.get("step")?.as_integer().filter(|step| (0..MOST_STEPS).contains(step))?;
    Some((step, record))
}

fn points(records: &[Record], name: &str) -> Vec<Point> {
    let found = records.iter().filter_map(|(step, record)| record.get(name).map(|value| (*step, number(Some(value)))));
    found.collect()
}

/// What is shown of the experts' shares: those of records whose tables have the size of the first one's.
fn read_experts(records: &[Record], notes: &mut Notes) -> Option<Table> {
    let mut given = 0;
    let mut found: Vec<Shares> = Vec::new();
    for (step, record) in records {
        let Some(value) = record.get("expert_shares") else { continue };
        given += 1;
        let Some(shares) = matrix(value) else { continue };
        if found.first().is_none_or(|(_, first)| first.len() == shares.len() && first[0].len() == shares[0].len()) {
            found.push((*step, shares));
        }
    }
    if found.len() < given {
        notes.add("shares", [(given - found.len()).into()]);
    }
    thin_experts(&found)
}

/// Shares as `[layer][expert]`; `None` when they are none.
fn matrix(value: &Value) -> Option<Vec<Vec<f64>>> {
    let Value::List(rows) = value else { return None };
    let mut layers: Vec<Vec<f64>> = Vec::new();
    for row in rows {
        let Value::List(cells) = row else { return None };
        if cells.is_empty() || cells.len() > MOST_EXPERTS || layers.first().is_some_and(|row| row.len() != cells.len())
        {
            return None;
        }
        let layer: Vec<f64> = cells.iter().map(|cell| number(Some(cell))).collect();
        if !layer.iter().all(|share| (0.0..=1.0).contains(share)) {
            return None;
        }
        layers.push(layer);
    }
    (!layers.is_empty()).then_some(layers)
}

type Known = (MoEConfig, TrainingState);

/// Checkpoints that are whole, and the model and state of the last. The run may remove one meanwhile: no fault.
fn read_checkpoints(root: &Path, notes: &mut Notes) -> Result<(Vec<Value>, Option<Known>)> {
    let mut found = Vec::new();
    let mut known = None;
    for folder in if root.is_dir() { list_checkpoints(root)? } else { Vec::new() } {
        let name = file_name(&folder);
        match read_checkpoint(&folder) {
            Ok((model, state, size)) => {
                found.push(Value::Table(Table::from([
                    ("name", name.into()),
                    ("step", state.step.into()),
                    ("held_out_loss", or_none(number(Some(&state.held_out_loss.into())))),
                    ("seconds", or_none(number(Some(&state.seconds.into())))),
                    ("bytes", size.into()),
                ])));
                known = Some((model, state));
            }
            Err(file) if folder.exists() => notes.add("checkpoint", [name.into(), file.into()]),
            Err(_) => {}
        }
    }
    Ok((found, known))
}

/// Model, state and bytes of a checkpoint, or the name of the file in it that failed.
fn read_checkpoint(folder: &Path) -> std::result::Result<(MoEConfig, TrainingState, u64), &'static str> {
    let state = read_training_state(&folder.join("training.json")).map_err(|_| "training.json")?;
    let failed = "config.json";
    let values = read_json(&folder.join(failed)).map_err(|_| failed)?;
    let model = config_from_mixtral(&values).map_err(|_| failed)?;
    let mut size = 0;
    for entry in fs::read_dir(folder).map_err(|_| failed)? {
        size += entry.and_then(|entry| fs::metadata(entry.path())).map_err(|_| failed)?.len();
    }
    Ok((model, state, size))
}

/// The object in a file; an empty one when there is none.
fn read_object(path: &Path, notes: &mut Notes) -> Table {
    if !present(path) {
        return Table::new();
    }
    read_json(path).unwrap_or_else(|_| {
        notes.add("file", [file_name(path).into()]);
        Table::new()
    })
}

/// The options that the run noted when it began, for as long as it has no checkpoint.
fn noted_options(noted: &Table, notes: &mut Notes) -> Option<(MoEConfig, TrainConfig)> {
    let value = |name: &str| noted.get(name).filter(|value| **value != Value::None);
    let (model, train) = (value("model"), value("train"));
    if model.is_none() && train.is_none() {
        return None;
    }
    let table = |value: Option<&Value>| value.and_then(Value::as_table).cloned();
    let model = table(model).and_then(|model| MoEConfig::from_table(&model).ok());
    let train = table(train).and_then(|train| TrainConfig::from_table(&train).ok());
    let found = model.zip(train);
    if found.is_none() {
        notes.add("options", []);
    }
    found
}

fn noted_texts(noted: &Table, results: &Table) -> Table {
    let mut found = Table::new();
    for name in NOTED {
        let text = [noted, results].into_iter().find_map(|source| source.get(name).and_then(Value::as_text));
        if let Some(text) = text {
            found.set(name, cut(text, LONGEST_NOTED));
        }
    }
    found
}

/// In how many records the gradient was clipped; null when it is not known whether it is at all.
fn count_clipped(norms: &[Point], train: Option<&TrainConfig>) -> Value {
    let clip = train.and_then(|train| train.clip_norm);
    clip.map(|clip| norms.iter().filter(|(_, norm)| *norm > clip).count()).into()
}

fn read_samples(path: &Path, notes: &mut Notes) -> Vec<Value> {
    if !present(path) {
        return Vec::new();
    }
    let Ok(records) = read_lines(path, notes) else {
        notes.add("file", [file_name(path).into()]);
        return Vec::new();
    };
    let text =
        |record: &Table, name: &str| record.get(name).and_then(Value::as_text).map(|text| cut(text, LONGEST_SAMPLE));
    let found = records.iter().filter_map(|(step, record)| {
        let (prompt, text) = (text(record, "prompt")?, text(record, "text")?);
        Some(Value::Table(Table::from([("step", (*step).into()), ("prompt", prompt.into()), ("text", text.into())])))
    });
    let mut found: Vec<Value> = found.collect();
    if found.len() > MOST_SAMPLES {
        notes.add("samples", [found.len().into(), MOST_SAMPLES.into()]);
        found.drain(..found.len() - MOST_SAMPLES);
    }
    found
}

/// The curves in numbers: at the evaluations, or at evenly spaced steps when there were none.
fn table(records: &[Record]) -> Vec<Value> {
    let values: HashMap<&str, HashMap<i64, f64>> =
        COLUMNS.into_iter().map(|name| (name, points(records, name).into_iter().collect())).collect();
    let mut steps: Vec<i64> = points(records, "held_out_loss").iter().map(|one| one.0).collect();
    if steps.is_empty() {
        steps = points(records, "loss").iter().map(|one| one.0).collect();
    }
    steps.dedup();
    let row = |step: i64| {
        let cells = COLUMNS.into_iter().map(|name| or_none(values[name].get(&step).copied().unwrap_or(f64::NAN)));
        Value::List([step.into()].into_iter().chain(cells).collect())
    };
    chosen_rows(&steps).into_iter().map(row).collect()
}

/// The unigram entropy that the run noted, else that of its held-out data, when that still lies where it did.
fn find_entropy(results: &Table, noted: &Table, model: Option<&MoEConfig>, held_out: &[Point]) -> f64 {
    let entropy = number(results.get("unigram_entropy"));
    let path = noted.get("held_out").and_then(Value::as_text).map(Path::new);
    let (Some(path), Some(model), true) = (path, model, entropy.is_nan()) else { return entropy };
    if held_out.iter().all(|one| one.1.is_nan()) {
        return entropy;
    }
    let Ok(shards) = open_shards(path) else { return entropy };
    let vocabulary = model.vocab_size as u64;
    let fitting = shards.iter().all(|shard| shard.vocab_size() == vocabulary) && vocabulary <= LARGEST_VOCABULARY;
    let total = shards.iter().fold(0u64, |total, shard| total.saturating_add(shard.count()));
    if !fitting || total == 0 || total > MOST_COUNTED_TOKENS {
        return entropy;
    }
    unigram_entropy(&shards).map_or(f64::NAN, rounded)
}
