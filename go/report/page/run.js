
"use strict";

// What the files of a run tell, read so that a run that is going on, was cut off or was damaged still gives a page.
// They may come from anywhere: a record or value that is not what it should be is left out, and a note says so.

// Numbers of the records that are shown as series, and those that the table has.
const SERIES = ["loss", "held_out_loss", "aux_loss", "grad_norm", "learning_rate", "tokens_per_second", "loss_scale",
  "skipped_steps", "bytes_peak"];
const COLUMNS = ["loss", "held_out_loss", "learning_rate", "grad_norm", "tokens_per_second"];
// Texts that a run notes of itself.
const NOTED = ["program", "library", "abi", "device", "data", "data_sha256", "held_out", "held_out_sha256"];
// Options that the page counts with; the others are shown as they are.
const SIZES = ["vocab_size", "hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "num_experts",
  "experts_per_token", "ffn_size"];
const SCHEDULE = ["steps", "learning_rate", "min_rate_share", "warmup_steps"]; // what an extension of a run changes

const MOST_POINTS = 300; // of a curve; neighbouring records share one when there are more
const RECENT_STEPS = 50; // whose mean is called the loss of the run
const MOST_COLUMNS = 120, MOST_CELLS = 100_000; // of the maps of experts' load
const MOST_LAYERS = 32; // whose maps are shown
const MOST_ROWS = 12; // of the table of numbers
const MOST_NOTES = 12, MOST_SAMPLES = 200, LONGEST_SAMPLE = 10_000, LONGEST_NOTED = 1000;
const LARGEST_NUMBER = 1e100; // what f32 holds is far below, and sums have room above it

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
const isFiniteNumber = (value) => typeof value === "number" && Math.abs(value) <= LARGEST_NUMBER;
const numberOr = (value) => (isFiniteNumber(value) ? value : null);
const cut = (text, longest) => (text.length <= longest ? text : text.slice(0, longest) + "…");

// The value of a JSON text, undefined for what is none. NaN and Infinity, which some programs write, become null.
function parsed(text) {
  const plain = () => text.replace(/"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b/g,
    (found) => (found[0] === '"' ? found : "null"));
  for (const form of [() => text, plain]) {
    try {
      return JSON.parse(form());
    } catch {
      // the next form, or none
    }
  }
  return undefined;
}

// The run as the page shows it, from the texts of its files by name.
function readRun(files) {
  const notes = [];
  const records = readLines(files, "metrics.jsonl", notes);
  const points = Object.fromEntries(SERIES.map((name) => [name, pointsOf(records, name)]));
  for (const [name, words] of [["loss", "training loss"], ["held_out_loss", "held-out loss"]]) {
    const missing = points[name].filter(([, value]) => value === null);
    if (missing.length) notes.push(["not finite", words, missing.length, missing[0][0]]);
  }
  const experts = readExperts(records, notes);
  const states = readCheckpoints(files, notes);
  const state = states[states.length - 1];
  const noted = readObject(files, "run.json", notes), results = readObject(files, "results.json", notes);
  const options = readOptions(noted, state, notes);
  const samples = readSamples(files, notes);
  const last = (name) => pointsOf(records, name).reduce((found, [, value]) => value ?? found, null);
  const { model, train } = options;
  return {
    name: files.get(".") ?? "",
    last_step: records.length ? records[records.length - 1].step : 0,
    notes: notes.length > MOST_NOTES ? [...notes.slice(0, MOST_NOTES), ["more", notes.length - MOST_NOTES]] : notes,
    options,
    parameters: model && countParameters(model, model.num_experts),
    active_parameters: model && countParameters(model, model.experts_per_token),
    tokens: last("tokens"),
    data_windows: isCount(state?.data_windows) ? state.data_windows : null,
    seconds: last("seconds"),
    bytes_peak: numberOr(results.bytes_peak),
    unigram_entropy: numberOr(results.unigram_entropy) ?? numberOr(noted.unigram_entropy),
    recent_loss: recentMean(points.loss),
    noted: readNoted(noted, results),
    clipped: points.grad_norm.filter(([, norm]) => isFiniteNumber(train?.clip_norm) && norm > train.clip_norm).length,
    checkpoints: states.map((one) => ({
      name: one.name, step: one.step, held_out_loss: numberOr(one.held_out_loss), seconds: numberOr(one.seconds),
      bytes: one.bytes,
    })),
    samples,
    table: tableOf(points),
    series: Object.fromEntries(SERIES.map((name) => [name, thin(points[name])]).filter(([, made]) => made)),
    experts,
  };
}

// The objects of a file of lines that have a step, in the order of steps. A last line without its end is one that is
// being written.
function readLines(files, name, notes) {
  const found = [];
  const lines = (files.get(name) ?? "").split("\n");
  lines.forEach((line, index) => {
    if (!line.trim()) return;
    const record = parsed(line);
    if (isObject(record) && isCount(record.step)) found.push(record);
    else notes.push(index === lines.length - 1 ? ["cut", name] : ["line", name, index + 1]);
  });
  return found.sort((a, b) => a.step - b.step);
}

// The [step, value] of the records that have a value of this name; null where it is no number, a gap in the curve.
function pointsOf(records, name) {
  return records.filter((record) => Object.hasOwn(record, name)).map((record) => [record.step, numberOr(record[name])]);
}

function readObject(files, name, notes) {
  if (!files.has(name)) return {};
  const value = parsed(files.get(name));
  if (isObject(value)) return value;
  notes.push(["file", name]);
  return {};
}

// The states of the checkpoints, oldest first, each with the name and the bytes of its folder.
function readCheckpoints(files, notes) {
  const found = [];
  for (const [folder, bytes] of files) {
    if (!/^checkpoints\/.*\/$/.test(folder)) continue;
    const name = folder.split("/")[1], state = parsed(files.get(folder + "training.json") ?? "");
    if (isObject(state) && isCount(state.step) && isObject(state.train)) {
      found.push({ ...state, name, bytes: Number(bytes) });
    } else {
      notes.push(["checkpoint", name, "training.json"]);
    }
  }
  return found;
}

// The options that the run began with, those of the training as its last checkpoint and an extension since have them.
function readOptions({ model = null, train = null, extensions }, state, notes) {
  const plain = (values) => isObject(values) && Object.values(values).every((value) => typeof value !== "object" || !value);
  let options = state?.train ?? train;
  for (const entry of Array.isArray(extensions) ? extensions : []) {
    if (!isObject(options) || !isObject(entry) || !state || entry.from_step !== state.step) continue;
    options = { ...options, ...Object.fromEntries(SCHEDULE.map((name) => [name, entry[name]])) };
  }
  const sized = model === null || (plain(model) && SIZES.every((name) => isCount(model[name]) && model[name] > 0));
  const timed = options === null || (plain(options) && isCount(options.steps) && options.steps > 0);
  if (!sized || !timed) notes.push(["options"]);
  return { model: sized ? model : null, train: timed ? options : null };
}

// Parameters of a model of which a token meets `experts` experts a layer.
function countParameters(model, experts) {
  const { vocab_size: vocabulary, hidden_size: hidden, num_layers: layers } = model;
  const attention = hidden * model.head_dim * 2 * (model.num_heads + model.num_kv_heads);
  const layer = attention + model.num_experts * hidden + 3 * experts * hidden * model.ffn_size;
  return 2 * vocabulary * hidden + layers * layer + (2 * layers + 1) * hidden;
}

function readNoted(noted, results) {
  const values = NOTED.map((name) => [name, [noted, results].map((one) => one[name]).find((one) => typeof one === "string")]);
  return Object.fromEntries(values.filter(([, value]) => value !== undefined)
    .map(([name, value]) => [name, cut(value, LONGEST_NOTED)]));
}

function readSamples(files, notes) {
  if (files.get("samples.jsonl") === "") notes.push(["file", "samples.jsonl"]);
  const found = readLines(files, "samples.jsonl", notes)
    .filter((one) => typeof one.prompt === "string" && typeof one.text === "string");
  if (found.length > MOST_SAMPLES) notes.push(["samples", found.length, MOST_SAMPLES]);
  return found.slice(-MOST_SAMPLES).map(({ step, prompt, text }) =>
    ({ step, prompt: cut(prompt, LONGEST_SAMPLE), text: cut(text, LONGEST_SAMPLE) }));
}

// The curves in numbers: at the evaluations, or at evenly spaced steps when there were none.
function tableOf(points) {
  const values = COLUMNS.map((name) => new Map(points[name]));
  const steps = [...new Map(points.held_out_loss.length ? points.held_out_loss : points.loss).keys()];
  const rows = Math.min(steps.length, MOST_ROWS), gaps = Math.max(rows - 1, 1);
  return Array.from({ length: rows }, (_, index) => steps[Math.round((index * (steps.length - 1)) / gaps)])
    .map((step) => [step, ...values.map((column) => column.get(step) ?? null)]);
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);

// A series of [step, value]; null when no value is a number. Of n records, point i of m = min(n, 300) stands for the
// records i·n/m up to (i+1)·n/m: the steps that they come `from` and go `to`, and the mean, lowest and highest of their
// numbers. `lows` and `highs`, a value a record, take the place of the values for the last two.
function thin(points, lows = null, highs = null) {
  const finite = points.filter(([, value]) => value !== null);
  if (!finite.length) return null;
  const count = Math.min(points.length, MOST_POINTS);
  const made = { records: points.length, finite: finite.length, first: finite[0], last: finite[finite.length - 1] };
  for (const name of ["from", "to", "mean", "low", "high"]) made[name] = [];
  for (let index = 0; index < count; index++) {
    const begin = Math.floor((index * points.length) / count), end = Math.floor(((index + 1) * points.length) / count);
    const values = points.slice(begin, end).map(([, value]) => value).filter((value) => value !== null);
    made.from.push(points[begin][0]);
    made.to.push(points[end - 1][0]);
    made.mean.push(values.length ? sum(values) / values.length : null);
    made.low.push(values.length ? least(lows ? lows.slice(begin, end) : values) : null);
    made.high.push(values.length ? most(highs ? highs.slice(begin, end) : values) : null);
  }
  return made;
}

// The first and last of the last 50 steps with a number, and the mean of theirs: that of one batch tells chance as much
// as the model.
function recentMean(points) {
  const finite = points.filter(([, value]) => value !== null);
  if (!finite.length) return null;
  const end = finite[finite.length - 1][0];
  const recent = finite.filter(([step]) => step > end - RECENT_STEPS);
  return [recent[0][0], end, sum(recent.map(([, value]) => value)) / recent.length];
}

// Coefficient of variation of the load over a layer's experts: 0 when all get the same.
function spreadOf(shares) {
  const mean = sum(shares) / shares.length;
  return mean > 0 ? Math.sqrt(sum(shares.map((share) => (share - mean) ** 2)) / shares.length) / mean : 0;
}

const isShares = (value) => Array.isArray(value) && value.length > 0 && value.every((row) => Array.isArray(row) &&
  row.length > 0 && row.length === value[0].length &&
  row.every((share) => typeof share === "number" && share >= 0 && share <= 1));

// Of the shares of choices that experts got, those of records whose tables have the size of the first one's: the spread
// over the experts, as a series of the mean over the layers with the least and greatest layer, and the maps. Their
// columns are equal numbers of steps: the mean of the records in them, and where there are none, the column before.
function readExperts(records, notes) {
  const given = records.filter((record) => Object.hasOwn(record, "expert_shares"));
  const tables = given.filter(({ expert_shares: shares }) => isShares(shares));
  const [layers, experts] = tables.length ? [tables[0].expert_shares.length, tables[0].expert_shares[0].length] : [0, 0];
  const found = tables.filter(({ expert_shares: shares }) => shares.length === layers && shares[0].length === experts);
  if (found.length < given.length) notes.push(["shares", given.length - found.length]);
  if (!found.length) return null;
  const spreads = found.map((record) => record.expert_shares.map(spreadOf));
  const spread = thin(found.map(({ step }, index) => [step, sum(spreads[index]) / layers]), spreads.map(least),
    spreads.map(most));
  const shown = Math.min(layers, MOST_LAYERS);
  const first = found[0].step, last = found[found.length - 1].step;
  const count = first === last ? 1
    : Math.min(found.length, MOST_COLUMNS, Math.max(2, Math.floor(MOST_CELLS / (shown * experts))));
  const groups = Array.from({ length: count }, () => []);
  for (const { step, expert_shares: shares } of found) {
    groups[first === last ? 0 : Math.min(Math.floor(((step - first) * count) / (last - first)), count - 1)].push(shares);
  }
  const columns = [];
  for (const inside of groups) {
    columns.push(!inside.length ? columns[columns.length - 1] : inside[0].slice(0, shown).map((row, layer) =>
      row.map((_, expert) => sum(inside.map((shares) => shares[layer][expert])) / inside.length)));
  }
  const edges = first === last ? [first - 0.5, last + 0.5] : [first, last];
  return { layers, experts, edges, spread, columns };
}
