
// The page of a run, from the files of it that stand in the page. Whoever wrote them may be anyone: all that is shown goes
// into the page as text.

const run = readRun(new Map([...document.querySelectorAll("pre[data-file]")]
  .map((file) => [file.getAttribute("data-file"), file.textContent])));

// Characters that a browser shows as nothing, or that are half of one, become visible.
const clean = (text) => String(text).replace(
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g,
  "\ufffd");

function bytesText(count) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (count < 1024) return `${count.toFixed(unit === "B" ? 0 : 1)} ${unit}`;
    count /= 1024;
  }
  return `${count.toFixed(1)} TiB`;
}

function countText(count) {
  for (const [limit, unit] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (count >= limit) return `${(count / limit).toFixed(2)} ${unit}`;
  }
  return String(count);
}

function duration(seconds) {
  const minutes = Math.round(seconds / 60);
  if (seconds < 120) return `${seconds.toFixed(1)} s of training`;
  if (minutes < 120) return `${(seconds / 60).toFixed(1)} minutes of training`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min of training`;
}

const NOTES = {
  cut: (file) => `the last line of ${file} is cut off: the run was writing it, or was killed`,
  line: (file, line) => `line ${line} of ${file} is not a record of a step and was left out`,
  "not finite": (what, count, step) =>
    `the ${what} is not finite at ${count} ${count === 1 ? "step" : "steps"}, first at step ${step}`,
  shares: (count) => `the expert shares of ${count} records are not a table of shares like the others'`,
  checkpoint: (name, file) => `checkpoint ${name} was left out: its ${file} cannot be used; nncuda inspect says why`,
  file: (file) => `${file} cannot be read as JSON, and was left out`,
  options: () => "the options of the run are not valid for training, and were left out",
  samples: (all, shown) => `of ${all} samples the last ${shown} are shown`,
  more: (count) => `and ${count} more like these`,
};

// A table whose first column says what its rows are. A cell is text, or an element.
function table(caption, head, rows, kind = "numbers") {
  const cell = (value) => (value instanceof Element ? value : clean(value));
  const body = rows.map(([name, ...cells]) => element("tr", {}, element("th", { scope: "row" }, clean(name)),
    ...cells.map((value) => element("td", {}, cell(value)))));
  const made = element("table", kind ? { class: kind } : {}, element("caption", {}, caption));
  if (head) {
    const names = head.map((name) => element("th", { scope: "col" }, name));
    made.append(element("thead", {}, element("tr", {}, ...names)));
  }
  made.append(element("tbody", {}, ...body));
  return element("div", { class: "wide" }, made);
}

function section(title, ...parts) {
  const content = parts.filter(Boolean);
  return content.length ? element("section", {}, element("h2", {}, title), ...content) : "";
}

const grid = (figures) => (figures.length ? element("div", { class: "grid" }, ...figures) : "");

function lead() {
  const steps = run.options.train?.steps;
  if (!isNumber(steps)) {
    return `At step ${grouped(run.last_step)}; there is no checkpoint yet, so sizes and options are unknown.`;
  }
  if (run.last_step >= steps) return `Complete: ${grouped(steps)} steps.`;
  return `At step ${grouped(run.last_step)} of ${grouped(steps)}: going on, or interrupted.`;
}

const best = run.checkpoints.filter((one) => isNumber(one.held_out_loss))
  .reduce((a, b) => (a && a.held_out_loss <= b.held_out_loss ? a : b), null);

function summary() {
  const rows = [];
  const { model, train } = run.options;
  if (model) {
    rows.push(["parameters", `${countText(run.parameters)}, ${countText(run.active_parameters)} active per token`]);
    const heads = `${model.num_heads} heads of ${model.head_dim}`;
    const sizes = `${model.num_layers} layers of width ${model.hidden_size}, ${heads}`;
    const experts = `${model.num_experts} experts of ${model.ffn_size}, ${model.experts_per_token} per token`;
    rows.push(["model", `${sizes}; ${experts}; vocabulary ${grouped(model.vocab_size)}`]);
  }
  if (train) rows.push(["precision", train.precision ?? "f32"]);
  if (run.recent_loss) {
    const [from, to, mean] = run.recent_loss;
    const steps = from < to ? `the mean of steps ${grouped(from)} to ${grouped(to)}` : `at step ${grouped(to)}`;
    rows.push(["training loss", `${mean.toFixed(4)} nats per token, ${steps}`]);
  }
  if (run.series.held_out_loss) {
    const [step, loss] = run.series.held_out_loss.last;
    rows.push(["held-out loss", `${loss.toFixed(4)} nats per token, at step ${grouped(step)}`]);
  }
  if (run.unigram_entropy !== null) {
    rows.push(["unigram entropy", `${run.unigram_entropy.toFixed(4)} nats per token, of the held-out text`]);
  }
  if (best) rows.push(["best checkpoint", `${best.name}, held-out loss ${best.held_out_loss.toFixed(4)}`]);
  if (run.tokens !== null) {
    const size = run.data_windows * train?.sequence_length;
    const times = size > 0 ? `, ${(run.tokens / size).toFixed(2)} times the ${countText(size)} of the data` : "";
    rows.push(["tokens", `${countText(Math.round(run.tokens))} trained on${times}`]);
  }
  if (run.seconds !== null) rows.push(["time", duration(run.seconds)]);
  if (run.series.skipped_steps) rows.push(["skipped steps", String(run.series.skipped_steps.last[1])]);
  const peak = run.bytes_peak ?? run.series.bytes_peak?.last[1];
  if (peak >= 0) rows.push(["memory", `at most ${bytesText(peak)} of device memory`]);
  const names = { abi: "ABI", data_sha256: "its SHA-256", held_out: "held-out data", held_out_sha256: "its SHA-256" };
  for (const [name, value] of Object.entries(run.noted)) {
    const code = name.includes("sha256") || name === "data" || name === "held_out";
    rows.push([names[name] ?? name, code ? element("span", { class: "code" }, clean(value)) : value]);
  }
  return table("The run and its model", null, rows, "");
}

// A series as plot() wants it. A point stands for the records from one step to another: it is drawn in the middle.
function curve(series, colour, label, more = {}) {
  const thinned = series.records > series.from.length;
  const at = series.from.map((from, index) => (from + series.to[index]) / 2);
  return { ...series, at, colour, label, band: thinned, ...more };
}

const span = ({ first, last }, form = short) =>
  `from ${form(first[1])} at step ${grouped(first[0])} to ${form(last[1])} at step ${grouped(last[0])}`;

function bandWords({ records, from }) {
  if (records <= from.length) return "";
  return ` The line is the mean of about ${Math.round(records / from.length)} records, the band their range.`;
}

const positive = (series) => series.low.every((value) => value === null || value > 0);

function losses({ loss, held_out_loss: heldOut }) {
  if (!loss && !heldOut) return null;
  const words = [], curves = [], lines = [], marks = [];
  if (loss) {
    curves.push(curve(loss, "blue", "training"));
    words.push(`Training loss, ${span(loss)}.`);
  }
  if (heldOut) {
    curves.push(curve(heldOut, "red", "held-out", { dots: heldOut.from.length <= 60 }));
    words.push(`Held-out loss, ${span(heldOut)}.`);
  }
  if (best) {
    marks.push({ step: best.step, value: best.held_out_loss, colour: "green", label: "best checkpoint" });
    words.push(`The best checkpoint is that of step ${grouped(best.step)}, with ${short(best.held_out_loss)}.`);
  }
  if (run.unigram_entropy !== null) {
    lines.push({ value: run.unigram_entropy, colour: "ink", label: "unigram entropy" });
    words.push(`Unigram entropy of the held-out text: ${short(run.unigram_entropy)}.`);
  }
  const text = words.join(" ") + (loss ? bandWords(loss) : "");
  const shown = (value) => value.toFixed(4);
  return plot("losses", "Loss", text, { curves, lines, marks, unit: "nats per token", shown });
}

function gradientNorm(series) {
  if (!series) return null;
  const clip = run.options.train?.clip_norm;
  const lines = [];
  let words = `Global norm of the gradients before clipping, ${span(series)}.`;
  if (isNumber(clip) && clip > 0) {
    lines.push({ value: clip, colour: "red", label: `clipped to ${short(clip)}` });
    words += ` Clipped to ${short(clip)} in ${Math.round((100 * run.clipped) / series.finite)}% of the reported steps.`;
  }
  const scale = positive(series) ? "log10" : "linear";
  const curves = [curve(series, "blue", "gradient norm")];
  return plot("norm", "Gradient norm", words + bandWords(series), { curves, lines, scale });
}

function throughput(series) {
  if (!series) return null;
  const means = series.mean.filter(isNumber).sort((a, b) => a - b);
  const words = `Training tokens per second; about ${grouped(means[means.length >> 1])} most of the time.`;
  return plot("throughput", "Throughput", words + bandWords(series), {
    curves: [curve(series, "green")], scale: "zero", unit: "tokens a second",
  });
}

function lossScale({ loss_scale: scale, skipped_steps: skipped }) {
  if (!scale) return null;
  const curves = [curve(scale, "blue", "loss scale (left)", { steps: true, band: false })];
  const powers = positive(scale);
  const form = powers ? (value) => `2^${Number(Math.log2(value).toFixed(2))}` : short;
  let words = `Scale of the losses in f16, ${span(scale, form)}.`;
  if (skipped) {
    curves.push(curve(skipped, "red", "skipped (right)", { steps: true, band: false, right: true }));
    words += ` Steps skipped because their gradients overflowed: ${grouped(skipped.last[1])}.`;
  }
  return plot("scale", "Loss scale and skipped steps", words, {
    curves, scale: powers ? "log2" : "linear", yLabel: form,
  });
}

function plain(name, title, series, words, more) {
  return series ? plot(name, title, `${words}, ${span(series)}.`, { scale: "zero", ...more }) : null;
}

function memoryUse(series) {
  if (!series) return null;
  const words = `Peak device memory so far, ${bytesText(series.last[1])} at the end.`;
  // The axis counts in the unit that the words have, so that its marks are round numbers of it.
  const [, unit] = bytesText(Math.max(...series.high)).split(" ");
  const size = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].indexOf(unit);
  const mean = series.mean.map((value) => (value === null ? null : value / size));
  const curves = [curve({ ...series, mean }, "green", "", { band: false })];
  const shown = (value) => `${short(value)} ${unit}`;
  return plot("memory", "Memory", words, { curves, scale: "zero", unit, shown });
}

function curveFigures() {
  const { series } = run;
  const rate = series.learning_rate;
  return [
    losses(series),
    plain("rate", "Learning rate", rate, "Learning rate", {
      curves: rate && [curve(rate, "blue", "", { band: false })],
    }),
    gradientNorm(series.grad_norm),
    throughput(series.tokens_per_second),
    lossScale(series),
    plain("balance", "Load-balancing loss", series.aux_loss, "Load-balancing loss", {
      curves: series.aux_loss && [curve(series.aux_loss, "blue")], scale: "linear",
    }),
    memoryUse(series.bytes_peak),
  ].filter(Boolean);
}

function numbers() {
  const cell = (value, form) => (value === null ? "–" : form(value));
  const forms = [(v) => v.toFixed(4), (v) => v.toFixed(4), (v) => short(v, 3), (v) => short(v, 3), (v) => grouped(v)];
  const rows = run.table.map(([step, ...values]) =>
    [grouped(step), ...values.map((value, index) => cell(value, forms[index]))]);
  const head = ["step", "training loss", "held-out loss", "learning rate", "gradient norm", "tokens/s"];
  return rows.length ? table("The curves in numbers; – where there is none", head, rows) : "";
}

const LAYERS_A_FIGURE = 4;

// Loads in multiples of an even share, [column][layer][expert], of those layers that the page shows.
const loads = run.experts &&
  run.experts.columns.map((layers) => layers.map((row) => row.map((share) => share * run.experts.experts)));

function expertFigures() {
  if (!run.experts) return [];
  const { layers, spread, edges } = run.experts;
  let words = "Standard deviation of the load over a layer's experts, divided by its mean: 0 when all get the same. " +
    `Mean of the ${layers} layers, ${span(spread)}.`;
  if (layers > loads[0].length) words += ` The maps show the first ${loads[0].length} layers.`;
  const curves = [curve(spread, "blue", "mean of layers; band: from layer to layer", { band: layers > 1 })];
  const figures = [plot("spread", "Spread of expert load", words, { curves, scale: "zero", unit: "deviation / mean" })];
  // One load far above all others would leave them one colour.
  const sorted = loads.flat(2).sort((a, b) => a - b);
  const ceiling = Math.max(2, sorted[Math.floor((sorted.length - 1) * 0.995)]);
  const capped = sorted[sorted.length - 1] > ceiling;
  const end = loads[loads.length - 1];
  for (let first = 0; first < end.length; first += LAYERS_A_FIGURE) {
    const last = Math.min(first + LAYERS_A_FIGURE, end.length) - 1;
    let busiest = [first, 0];
    for (let layer = first; layer <= last; layer++) {
      end[layer].forEach((load, expert) => {
        if (load > end[busiest[0]][busiest[1]]) busiest = [layer, expert];
      });
    }
    const text = "Load of each expert over the steps, in multiples of an even share, as the last micro-batch of each " +
      `reported step had it. At the end the busiest is expert ${busiest[1]} of layer ${busiest[0]}, ` +
      `with ${end[busiest[0]][busiest[1]].toFixed(2)} times an even share.`;
    const title = first === last ? `Expert load, layer ${first}` : `Expert load, layers ${first} to ${last}`;
    figures.push(heatMaps(`load-${first}`, title, text, { columns: loads, edges, ceiling, first, last, capped }));
  }
  return figures;
}

// How even each layer's load was at the beginning and at the end.
function expertTable() {
  if (!run.experts) return "";
  const tenth = Math.max(1, Math.floor(loads.length / 10));
  const mean = (part, layer) =>
    part[0][layer].map((_, expert) => sum(part.map((column) => column[layer][expert])) / part.length);
  const rows = loads[0].map((_, layer) => {
    const [early, late] = [mean(loads.slice(0, tenth), layer), mean(loads.slice(-tenth), layer)];
    return [String(layer), spreadOf(early).toFixed(3), spreadOf(late).toFixed(3), Math.max(...late).toFixed(2),
      Math.min(...late).toFixed(2)];
  });
  const left = rows.length < run.experts.layers ? `; the first ${rows.length} of ${run.experts.layers} layers` : "";
  const caption = "Mean load in the first and the last tenth of the maps; loads in multiples of an even share";
  return table(caption + left, ["layer", "spread, first", "spread, last", "busiest, last", "idlest, last"], rows);
}

function checkpoints() {
  const last = run.checkpoints[run.checkpoints.length - 1];
  const rows = run.checkpoints.map((one) => {
    const marks = [["best", best], ["last", last]].filter(([, which]) => one === which).map(([word]) => word);
    const loss = one.held_out_loss === null ? "–" : one.held_out_loss.toFixed(4);
    const after = one.seconds === null ? "–" : duration(one.seconds);
    return [one.name, loss, after, bytesText(one.bytes), marks.join(" and ")];
  });
  return rows.length ? table("Checkpoints kept", ["checkpoint", "held-out loss", "after", "size", ""], rows) : "";
}

const samples = () => run.samples.flatMap(({ step, prompt, text }) => [
  element("p", { class: "soft" }, `after step ${grouped(step)}`),
  element("pre", {}, element("strong", {}, clean(prompt)), clean(text)),
]);

function options() {
  const word = (value) => (value === null ? "none" : String(value));
  const made = [["of the model", run.options.model], ["of the training", run.options.train]]
    .filter(([, values]) => values)
    .map(([caption, values]) =>
      table(caption, ["option", "value"], Object.entries(values).map(([name, value]) => [name, word(value)]), ""));
  return grid(made);
}

const title = clean(`Training run ${run.name}`);
document.title = title;
const notes = run.notes.map(([kind, ...values]) => element("li", {}, clean(NOTES[kind](...values))));
document.getElementById("page").append(
  element("header", {}, element("h1", {}, title), element("p", {}, lead())),
  element("main", {},
    notes.length ? element("div", { class: "notes", role: "note" }, element("ul", {}, ...notes)) : "",
    section("Summary", summary()),
    section("Curves", grid(curveFigures()), numbers()),
    section("Experts", grid(expertFigures()), expertTable()),
    section("Checkpoints", checkpoints()),
    section("Samples", ...samples()),
    section("Options", options())),
  element("footer", {}, "Made by ", element("code", {}, "nncuda report"), " from the run's folder as it was then."));
