
// Figures: axes, curves with bands, and heat maps, as SVG elements in the colours of the page's style sheet. Each is
// drawn at one size and scaled by the browser, so nothing depends on the width of the window or of the paper.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 400, HEIGHT = 236;

// An element of the page. Text goes in as text, never as markup.
function element(name, attributes = {}, ...children) {
  const svg = name.startsWith("svg:");
  const made = svg ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const shape = (name, attributes, ...children) => element("svg:" + name, attributes, ...children);
const rounded = (value) => Math.round(value * 100) / 100;
const isNumber = (value) => typeof value === "number";

// Digits in groups of three: 1234567 is "1,234,567". Not by the reader's locale: the page says the same everywhere.
const grouped = (value, digits = 0) => value.toFixed(digits).replace(/\B(?=(\d{3})+(?!\d)(?=\.|$))/g, ",");

// A number in at most `digits` digits, with a power of ten where zeros would hide it.
function short(value, digits = 4) {
  const size = Math.abs(value);
  if (size >= 1e7 || (size > 0 && size < 1e-3)) {
    return value.toExponential(digits - 1).replace(/\.?0*e\+?/, "e");
  }
  const kept = Number(value.toPrecision(digits));
  return size >= 1000 ? grouped(kept) : String(kept);
}

// Places of ticks on a linear axis: multiples of 1, 2 or 5 times a power of ten, at most `most` and one of them.
function linearTicks(low, high, most, whole) {
  const least = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = Math.max([1, 2, 5, 10].find((factor) => factor * power >= least * (1 - 1e-9)) * power, whole ? 1 : 0);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return found;
}

// Places of ticks on an axis of logarithms: powers of `base`, with 2 and 5 between those of ten when they are few.
function logTicks(low, high, most, base) {
  const first = Math.floor(Math.log(low) / Math.log(base)), last = Math.ceil(Math.log(high) / Math.log(base));
  const between = base === 10 && high / low < 150 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((last - first) / most));
  const found = [];
  for (let power = first; power <= last; power += every) {
    for (const factor of between) {
      const at = factor * base ** power;
      if (at >= low * (1 - 1e-9) && at <= high * (1 + 1e-9)) found.push(at);
    }
  }
  return found.length ? found : [low, high];
}

// A scale from values to places, with its ticks. `kind` is "linear", "zero" (linear from 0 on), "log10" or "log2".
function makeScale(values, kind, [start, end], most, whole = false) {
  let low = Math.min(...values), high = Math.max(...values);
  const log = kind.startsWith("log");
  if (kind === "zero") low = Math.min(0, low);
  if (low === high) {
    const room = log ? 1 : Math.max(Math.abs(low) * 0.1, whole ? 1 : 1e-9);
    [low, high] = log ? [low / 2, high * 2] : [kind === "zero" && low === 0 ? 0 : low - room, high + room];
  } else if (!whole) {
    const room = log ? (high / low) ** 0.05 : (high - low) * 0.05;
    [low, high] = log ? [low / room, high * room] : [kind === "zero" && low === 0 ? 0 : low - room, high + room];
  }
  const of = log ? Math.log : Number;
  const place = (value) => start + ((of(value) - of(low)) / (of(high) - of(low))) * (end - start);
  const ticks = log ? logTicks(low, high, most, kind === "log2" ? 2 : 10) : linearTicks(low, high, most, whole);
  return { place, ticks, low, high };
}

// The frame of a plot: marks and labels of both axes, and a name over the vertical one.
function drawAxes(svg, box, x, y, options) {
  const path = (name, d) => svg.append(shape("path", { class: name, d }));
  const [left, top, right, bottom] = box;
  for (const tick of y.ticks) {
    const at = rounded(y.place(tick));
    path("mesh", `M${left} ${at}H${right}`);
    const label = options.yLabel(tick);
    svg.append(shape("text", { x: left - 5, y: at + 4, "text-anchor": "end" }, label));
  }
  path("axis", `M${left} ${top}V${bottom}H${right}`);
  drawSteps(svg, x, bottom, right);
  if (options.unit) svg.append(shape("text", { x: 2, y: 11 }, options.unit));
}

// The labels of an axis of steps at `top`, whose last may not stand beyond the drawing's edge.
function drawSteps(svg, x, top, right) {
  for (const tick of x.ticks) {
    const at = rounded(x.place(tick)), label = grouped(tick);
    const middle = Math.min(at, WIDTH - 2 - label.length * 3.2);
    svg.append(shape("path", { class: "axis", d: `M${at} ${top}v4` }));
    svg.append(shape("text", { x: rounded(middle), y: top + 16, "text-anchor": "middle" }, label));
  }
  svg.append(shape("text", { x: right, y: top + 30, "text-anchor": "end" }, "step"));
}

// A curve's line, its band from lowest to highest, and dots where it has no neighbour to be joined with.
function drawCurve(svg, curve, x, y) {
  const group = shape("g", { class: curve.colour });
  const { at, mean, low, high } = curve;
  const pieces = [];
  for (let index = 0; index < at.length; index++) {
    if (!isNumber(mean[index])) continue;
    if (index && isNumber(mean[index - 1])) pieces[pieces.length - 1].push(index);
    else pieces.push([index]);
  }
  const point = (index, values) => `${rounded(x.place(at[index]))} ${rounded(y.place(values[index]))}`;
  let line = "", band = "";
  for (const piece of pieces) {
    if (piece.length === 1 || curve.dots) {
      for (const index of piece) {
        const [cx, cy] = point(index, mean).split(" ");
        group.append(shape("circle", { class: "dot", cx, cy, r: 2.4 }));
      }
    }
    if (piece.length === 1) continue;
    if (curve.steps) {
      line += "M" + point(piece[0], mean);
      for (const index of piece.slice(1)) {
        line += `H${rounded(x.place(at[index]))}V${rounded(y.place(mean[index]))}`;
      }
    } else {
      line += "M" + piece.map((index) => point(index, mean)).join("L");
    }
    if (curve.band) {
      const back = [...piece].reverse();
      band += "M" + piece.map((index) => point(index, high)).join("L");
      band += "L" + back.map((index) => point(index, low)).join("L") + "Z";
    }
  }
  if (band) group.append(shape("path", { class: "band", d: band }));
  if (line) group.append(shape("path", { class: "line", d: line }));
  svg.append(group);
}

// What the colours of a plot mean, in a row that is broken where the page is narrow.
function legendOf(entries) {
  const parts = entries.map(({ mark, colour, label }) => {
    const inner = mark === "ring" ? shape("circle", { class: "ring", cx: 9, cy: 6, r: 4 })
      : shape("path", { class: mark, d: "M0 6h18" });
    const svg = shape("svg", { viewBox: "0 0 18 12", "aria-hidden": "true" }, shape("g", { class: colour }, inner));
    return element("span", {}, svg, label);
  });
  return element("div", { class: "legend" }, ...parts);
}

// A figure with its title above and its words below. The words are what the picture says to those who cannot see it.
function figure(name, title, words, svg, legend = []) {
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-labelledby", `${name}-title`);
  svg.setAttribute("aria-describedby", `${name}-text`);
  const tip = element("div", { class: "tip", hidden: "" });
  const heading = element("h3", { id: `${name}-title` }, title);
  const caption = element("figcaption", { id: `${name}-text` }, words);
  const parts = legend.length > 1 ? [heading, legendOf(legend), svg, tip, caption] : [heading, svg, tip, caption];
  return { element: element("figure", { id: name }, ...parts), tip };
}

// Shows what `find(x, y)` says of the place under the pointer, in units of the drawing: {x, text}, or null for nothing.
function follow(svg, tip, find) {
  const pointer = shape("path", { class: "pointer" });
  svg.append(pointer);
  const hide = () => {
    tip.hidden = true;
    pointer.setAttribute("d", "");
  };
  svg.addEventListener("pointermove", (event) => {
    const bounds = svg.getBoundingClientRect();
    const unit = WIDTH / bounds.width;
    const found = find((event.clientX - bounds.left) * unit, (event.clientY - bounds.top) * unit);
    if (!found) return hide();
    tip.hidden = false;
    tip.textContent = found.text;
    const outer = svg.parentElement.getBoundingClientRect();
    const beside = event.clientX - outer.left + 14;
    const over = beside + tip.offsetWidth > outer.width;
    tip.style.left = `${Math.max(0, over ? event.clientX - outer.left - tip.offsetWidth - 14 : beside)}px`;
    tip.style.top = `${event.clientY - outer.top + 10}px`;
    pointer.setAttribute("d", found.line || "");
  });
  svg.addEventListener("pointerleave", hide);
}

// A plot of curves over the steps.
//   curves  {at, from, to, mean, low, high, colour, label, band, dots, steps, right}; those with `right` have an axis of
//           their own on the right
//   lines   {value, colour, label}: dashed lines across
//   marks   {step, value, colour, label}: rings
//   scale   the kind of the vertical axis, as in makeScale
//   yLabel, shown   how its marks, and values under the pointer, are written
function plot(name, title, words, { curves, lines = [], marks = [], scale = "linear", unit = "", ...more }) {
  const { yLabel = short, shown = short } = more;
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}` });
  const other = curves.filter((curve) => curve.right);
  const box = [48, 22, WIDTH - (other.length ? 40 : 14), HEIGHT - 34];
  const steps = curves.flatMap((curve) => [...curve.from, ...curve.to]);
  const heights = (some) => some.flatMap((c) => [...c.mean, ...(c.band ? [...c.low, ...c.high] : [])]).filter(isNumber);
  const values = heights(curves.filter((curve) => !curve.right));
  values.push(...lines.map((line) => line.value), ...marks.map((mark) => mark.value));
  const x = makeScale(steps, "linear", [box[0], box[2]], 5, true);
  const y = makeScale(values, scale, [box[3], box[1]], 5);
  drawAxes(svg, box, x, y, { unit, yLabel });
  if (other.length) {
    const right = makeScale([...heights(other), 1], "zero", [box[3], box[1]], 4, true);
    for (const tick of right.ticks) {
      svg.append(shape("text", { x: box[2] + 5, y: rounded(right.place(tick)) + 4 }, short(tick)));
    }
    for (const curve of other) drawCurve(svg, curve, x, right);
  }
  for (const curve of curves) if (!curve.right) drawCurve(svg, curve, x, y);
  for (const line of lines) {
    const d = `M${box[0]} ${rounded(y.place(line.value))}H${box[2]}`;
    svg.append(shape("g", { class: line.colour }, shape("path", { class: "dashed", d })));
  }
  for (const mark of marks) {
    const ring = { class: "ring", cx: rounded(x.place(mark.step)), cy: rounded(y.place(mark.value)), r: 4.5 };
    svg.append(shape("g", { class: mark.colour }, shape("circle", ring)));
  }
  const legend = [
    ...curves.filter((curve) => curve.label).map((curve) => ({ ...curve, mark: "line" })),
    ...lines.map((line) => ({ ...line, mark: "dashed" })),
    ...marks.map((mark) => ({ ...mark, mark: "ring" })),
  ];
  const made = figure(name, title, words, svg, legend);
  follow(svg, made.tip, (left, top) => {
    if (left < box[0] - 4 || left > box[2] + 4 || top > box[3] + 4) return null;
    return describePlace(curves, x, left, box, shown);
  });
  return made.element;
}

// What curves have nearest to a place: of the curve whose point is nearest, its steps, and of all, their values there.
function describePlace(curves, x, left, box, shown) {
  const nearest = curves.map((curve) => {
    let best = -1, distance = Infinity;
    curve.at.forEach((step, index) => {
      const away = Math.abs(x.place(step) - left);
      if (isNumber(curve.mean[index]) && away < distance) [best, distance] = [index, away];
    });
    return { curve, best, distance };
  }).filter((entry) => entry.best >= 0);
  if (!nearest.length) return null;
  const first = nearest.reduce((a, b) => (b.distance < a.distance ? b : a));
  const { from, to, at } = first.curve;
  const steps = from[first.best] === to[first.best]
    ? `step ${grouped(from[first.best])}` : `steps ${grouped(from[first.best])} to ${grouped(to[first.best])}`;
  const text = [steps];
  for (const { curve, best, distance } of nearest) {
    if (distance > first.distance + 6) continue;
    const range = curve.band && curve.low[best] !== curve.high[best]
      ? ` (${shown(curve.low[best])} to ${shown(curve.high[best])})` : "";
    text.push(`${curve.label ? curve.label + ": " : ""}${shown(curve.mean[best])}${range}`);
  }
  const place = rounded(x.place(at[first.best]));
  return { text: text.join("\n"), line: `M${place} ${box[1]}V${box[3]}` };
}

// Anchors of the colour map viridis (Smith, van der Walt 2015, public domain), evenly spaced from its dark end.
const VIRIDIS = ["440154", "482878", "3e4a89", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"]
  .map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));

function colour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const below = Math.min(Math.floor(place), VIRIDIS.length - 2);
  return VIRIDIS[below].map((part, index) => Math.round(part + (VIRIDIS[below + 1][index] - part) * (place - below)));
}

// A picture of `columns` × `rows` points whose values, in 0 to 1, `value(column, row)` gives.
function picture(columns, rows, value) {
  const canvas = element("canvas", { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const data = context.createImageData(columns, rows);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      data.data.set([...colour(value(column, row)), 255], 4 * (row * columns + column));
    }
  }
  context.putImageData(data, 0, 0);
  return canvas.toDataURL();
}

// Heat maps of expert × step, a panel a layer from `first` on, and the scale of their colours below.
//   columns  [column][layer][expert]: the load in multiples of an even share
//   edges    the steps where the columns begin and end
//   ceiling  the load that has the brightest colour; what is above has it too
function heatMaps(name, title, words, { columns, edges, ceiling, first, last, capped }) {
  const layers = last - first + 1, experts = columns[0][0].length;
  const panel = 96, gap = 22, left = 42, right = WIDTH - 14;
  const end = layers * (panel + gap);
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${end + 68}` });
  const x = makeScale(edges, "linear", [left, right], 5, true);
  const names = linearTicks(0, experts - 1, 4, true);
  for (let index = 0; index < layers; index++) {
    const top = index * (panel + gap) + 16;
    svg.append(shape("text", { x: left, y: top - 4 }, `layer ${first + index}`));
    const href = picture(columns.length, experts, (c, e) => columns[c][first + index][e] / ceiling);
    const box = { x: left, y: top, width: right - left, height: panel };
    svg.append(shape("image", { href, ...box, preserveAspectRatio: "none" }));
    for (const expert of names) {
      const at = rounded(top + ((expert + 0.5) / experts) * panel) + 4;
      svg.append(shape("text", { x: left - 5, y: at, "text-anchor": "end" }, String(expert)));
    }
  }
  const foot = end - gap + 16;
  drawSteps(svg, x, foot, right);
  svg.append(shape("text", { x: 2, y: 12 }, "expert"));
  const bar = { x: left, y: foot + 40, width: right - left, height: 8, preserveAspectRatio: "none" };
  svg.append(shape("image", { href: picture(64, 1, (column) => column / 63), ...bar }));
  for (const load of linearTicks(0, ceiling * 0.95, 5, false)) {
    const at = rounded(left + (load / ceiling) * (right - left));
    svg.append(shape("text", { x: at, y: foot + 60, "text-anchor": "middle" }, short(load, 3)));
  }
  const most = `${short(ceiling, 3)}${capped ? " and more" : ""}`;
  svg.append(shape("text", { x: right, y: foot + 60, "text-anchor": "end" }, most));
  const made = figure(name, title, words, svg);
  follow(svg, made.tip, (across, down) => {
    const index = Math.floor((down - 16) / (panel + gap)), inside = down - 16 - index * (panel + gap);
    if (index < 0 || index >= layers || inside < 0 || inside >= panel || across < left || across >= right) return null;
    const column = Math.floor(((across - left) / (right - left)) * columns.length);
    const expert = Math.floor((inside / panel) * experts);
    const [begin, finish] = [0, 1].map((more) => edges[0] + ((edges[1] - edges[0]) * (column + more)) / columns.length);
    const load = columns[column][first + index][expert];
    return {
      text: `steps ${grouped(Math.ceil(begin))} to ${grouped(Math.floor(finish))}\n` +
        `layer ${first + index}, expert ${expert}: ${load.toFixed(2)} times an even share`,
    };
  });
  return made.element;
}
