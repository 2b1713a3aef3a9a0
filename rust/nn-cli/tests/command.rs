//! The command: what it writes, how it ends, and that neither an interrupt nor a kill costs more than the time since
//! the last checkpoint.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nn_core::format::shards::write_shard;
use nn_core::train::{list_checkpoints, read_metrics};

const OPTIONS: &str = r#"
[model]
hidden_size = 24
num_layers = 2
num_heads = 4
num_kv_heads = 2
head_dim = 8
num_experts = 4
experts_per_token = 2
ffn_size = 20
context = 32
extended_context = 64
[train]
batch_size = 4
sequence_length = 13
warmup_steps = 3
seed = 7
save_every = 5
keep_checkpoints = 100
[data]
data = "data.tokens"
"#;

struct Workshop {
    root: tempfile::TempDir,
}

impl Workshop {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let ids: Vec<u32> = (0..4000u32).map(|at| at.wrapping_mul(2_654_435_761) >> 20).map(|id| id % 48).collect();
        write_shard(&root.path().join("data.tokens"), &ids, 48, &[0; 32]).unwrap();
        fs::write(root.path().join("options.toml"), OPTIONS).unwrap();
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn train(&self, run: &str, flags: &[&str]) -> Command {
        let mut command = command(&["train"]);
        command.arg(self.path(run)).arg("--config").arg(self.path("options.toml")).args(flags);
        command
    }

    /// The bytes of the last checkpoint's weights and moments.
    fn tensors(&self, run: &str) -> [Vec<u8>; 2] {
        let last = list_checkpoints(&self.path(run).join("checkpoints")).unwrap().pop().unwrap();
        ["model.safetensors", "optimizer.safetensors"].map(|name| fs::read(last.join(name)).unwrap())
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nncuda-rs"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn finish(mut command: Command, code: i32) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Starts a run whose lines go to a file, and waits until there are that many.
fn start_until(workshop: &Workshop, run: &str, steps: &str, lines: usize) -> Child {
    let path = workshop.path(&format!("{run}.jsonl"));
    let log = fs::File::create(&path).unwrap();
    let mut child = workshop.train(run, &["--steps", steps]).stdout(log).spawn().unwrap();
    while fs::read_to_string(&path).unwrap().lines().count() < lines {
        assert!(child.try_wait().unwrap().is_none(), "the run ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn a_killed_run_comes_to_the_same_bits() {
    let workshop = Workshop::new();
    finish(workshop.train("unbroken", &["--steps", "300"]), 0);
    let mut child = start_until(&workshop, "killed", "300", 12);
    signal(&child, "-KILL");
    child.wait().unwrap();
    let found = list_checkpoints(&workshop.path("killed/checkpoints")).unwrap();
    assert!(found.len() < 60, "it came to its end before it was killed");
    finish(command(&["train", workshop.path("killed").to_str().unwrap(), "--resume"]), 0);
    assert!(workshop.tensors("killed") == workshop.tensors("unbroken"), "other tensors");
    let losses = |run: &str| -> Vec<_> {
        let records = read_metrics(&workshop.path(run).join("metrics.jsonl")).unwrap();
        records.iter().map(|record| record.get("loss").cloned()).collect()
    };
    assert_eq!(losses("killed"), losses("unbroken"));
}

#[test]
fn a_signal_saves_and_stops() {
    for name in ["-INT", "-TERM"] {
        let workshop = Workshop::new();
        let child = start_until(&workshop, "run", "1000000", 7);
        signal(&child, name);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0));
        let last = list_checkpoints(&workshop.path("run/checkpoints")).unwrap().pop().unwrap();
        let last = last.to_string_lossy().rsplit('-').next().unwrap().trim_start_matches('0').to_owned();
        let told = format!("stopped after step {last} of 1000000; --resume continues from there\n");
        assert_eq!(text(&ended.stderr), told);
        let written = fs::read_to_string(workshop.path("run.jsonl")).unwrap();
        let line = written.lines().last().unwrap();
        assert!(line.starts_with(&format!("{{\"step\":{last},")), "saved {last} behind {line}");
        assert_eq!(written, fs::read_to_string(workshop.path("run/metrics.jsonl")).unwrap());
    }
}

#[test]
fn a_second_signal_ends_the_command_at_once() {
    let workshop = Workshop::new();
    // One step of minutes: the signals come while it is being made.
    let flags = ["--batch-size", "1000000", "--micro-batch-size", "100", "--steps", "1", "--warmup-steps", "0"];
    let mut child = workshop.train("run", &flags).spawn().unwrap();
    while !workshop.path("run/checkpoints").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the run ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    signal(&child, "-INT");
    signal(&child, "-TERM");
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), text(&ended.stderr)), (Some(128 + 15), ""));
    assert!(list_checkpoints(&workshop.path("run/checkpoints")).unwrap().is_empty());
}

#[test]
fn a_shard_that_is_cut_short_ends_the_run_and_the_folder_goes_on() {
    let workshop = Workshop::new();
    finish(workshop.train("unbroken", &["--steps", "300"]), 0);
    let data = workshop.path("data.tokens");
    let whole = fs::read(&data).unwrap();
    let child = start_until(&workshop, "run", "300", 12);
    fs::OpenOptions::new().write(true).open(&data).unwrap().set_len(65).unwrap();
    let ended = child.wait_with_output().unwrap();
    let sentence = format!("data.tokens: was cut to 65 bytes while it was in use; it had {}\n", whole.len());
    let said = text(&ended.stderr);
    assert!(ended.status.code() == Some(3) && said.starts_with("Error: ") && said.ends_with(&sentence), "{said}");
    let run = workshop.path("run");
    let resume = |code| finish(command(&["train", run.to_str().unwrap(), "--resume"]), code);
    assert!(text(&resume(3).stderr).contains("data.tokens: is 65 bytes long, but its 4000 tokens take 8064"));
    let mut changed = whole.clone();
    changed[100] ^= 1;
    fs::write(&data, changed).unwrap();
    assert!(text(&resume(3).stderr).contains("data.tokens: holds different tokens from those this run was started on"));
    fs::write(&data, whole).unwrap();
    resume(0);
    assert!(workshop.tensors("run") == workshop.tensors("unbroken"), "other tensors");
}

#[test]
fn what_is_trained_is_described_and_generates() {
    let workshop = Workshop::new();
    let done = finish(workshop.train("run", &["--steps", "4", "--log-every", "2", "--clip-norm", "none"]), 0);
    assert_eq!(text(&done.stdout).lines().count(), 2);
    assert_eq!(text(&done.stdout), fs::read_to_string(workshop.path("run/metrics.jsonl")).unwrap());
    let run = workshop.path("run");
    let run = run.to_str().unwrap();
    let described = finish(command(&["inspect", run, "--json"]), 0);
    let described: serde_json::Value = serde_json::from_slice(&described.stdout).unwrap();
    assert_eq!(described["kind"], "checkpoint");
    assert_eq!(described["model"]["hidden_size"], 24);
    assert_eq!(described["train"]["clip_norm"], serde_json::Value::Null);
    assert_eq!(described["training state"]["step"], 4);
    let shown = finish(command(&["inspect", run]), 0);
    assert!(text(&shown.stdout).contains("model.embed_tokens.weight") && text(&shown.stdout).contains("48 × 24"));
    let ids = finish(command(&["generate", run, "1, 2 3", "--ids", "--max-tokens", "5", "--seed", "-4"]), 0);
    let ids: Vec<u32> = text(&ids.stdout).split_whitespace().map(|id| id.parse().unwrap()).collect();
    assert!(ids.len() == 5 && ids.iter().all(|id| *id < 48));
    let error = finish(command(&["generate", run, "text"]), 3);
    assert!(text(&error.stderr).contains("holds no tokenizer.model, so it cannot read text"));
}

#[test]
fn wrong_use_ends_with_2_and_wrong_files_with_3() {
    let workshop = Workshop::new();
    let shard = workshop.path("data.tokens");
    let shard = shard.to_str().unwrap();
    let new = workshop.path("new");
    let new = new.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 10] = [
        (&["paint"], 2, "paint"),
        (&["train"], 2, "<RUN>"),
        (&["train", new], 2, "say what to train on: --data"),
        (&["train", new, "--resume", "--norm-topk-prob"], 2, "leave out --norm-topk-prob"),
        (&["train", new, "--data", shard, "--clip-norm", "much"], 2, "neither a number nor 'none'"),
        (&["train", new, "--resume"], 3, "run.json: cannot be read: No such file or directory"),
        (&["train", new, "--data", shard, "--steps", "0"], 3, "steps is 0; it must be a whole number, from 1 to "),
        (&["train", new, "--data", shard, "--preset", "demo", "--vocab-size", "9"], 3, "has a vocabulary of 48"),
        (&["inspect", shard, "--xml"], 2, "--xml"),
        (&["generate", new, "1", "--ids"], 2, "does not exist"),
    ];
    for (arguments, code, sentence) in cases {
        let output = finish(command(arguments), code);
        let said = text(&output.stderr);
        assert!(said.starts_with("Error: ") && said.contains(sentence), "{arguments:?}: {said}");
    }
    assert!(!Path::new(new).exists());
    let without = finish(command(&["--version"]), 0);
    assert!(text(&without.stdout).starts_with("nncuda-rs "));
}

#[test]
fn a_missing_library_ends_with_4() {
    let workshop = Workshop::new();
    let mut command = workshop.train("run", &[]);
    command.env("NNCUDA_LIBRARY", "/nowhere/libnncuda.so");
    let output = finish(command, 4);
    assert!(text(&output.stderr).starts_with("Error: ") && text(&output.stderr).contains("/nowhere/libnncuda.so"));
}

#[test]
fn the_benchmark_says_what_it_measured() {
    let workshop = Workshop::new();
    let mut command = command(&["bench", "--steps", "2", "--decode", "3", "--threads", "1", "--json"]);
    command.arg("--config").arg(workshop.path("options.toml")).arg("--data").arg(workshop.path("data.tokens"));
    let output = finish(command, 0);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((line["language"].as_str(), line["threads"].as_i64()), (Some("rust"), Some(1)));
    for measure in ["train_tokens_per_second", "decode_tokens_per_second", "call_nanoseconds"] {
        assert!(line[measure].as_f64().unwrap() > 0.0, "{line}");
    }
}
