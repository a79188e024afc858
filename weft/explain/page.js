"use strict";
// Draws the data of a report. Elements have data-k, the kernels they are part of, and data-v, the
// tensors (or names within a kernel) they are; pointing at one lights all others of the same.
const data = JSON.parse(document.getElementById("data").textContent);
const ALL = ["torch", "tensor", "loop", "tile", "kernel", "source"];
const MANY = 8000;  // lines of a level from which one kernel at a time is shown
const $ = (id) => document.getElementById(id);
const settings = new URLSearchParams(location.hash.slice(1));
let program = data.programs[0];
let shown = [];  // the levels of the columns
let pinned = null;

// ---- elements

function el(tag, attributes, ...children) {
  const made = SVG.has(tag) ? document.createElementNS($("drawing").namespaceURI, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}
const SVG = new Set(["svg", "g", "rect", "line", "circle", "text", "title", "path"]);

function table(columns, rows, foot) {
  const numeric = columns.map((c) => c.startsWith("#"));
  const cell = (tag) => (v, i) => v instanceof Node && (v.tagName === "TD" || v.tagName === "TH") ? v : el(tag, numeric[i] ? {class: "n"} : {}, v);
  const line = (row) => row instanceof Node ? row : el("tr", row.marks, row.cells.map(cell("td")));
  return el("div", {class: "scroll"}, el("table", {},
    el("thead", {}, el("tr", {}, columns.map((c, i) => el("th", numeric[i] ? {class: "n"} : {}, c.replace(/^#/, ""))))),
    el("tbody", {}, rows.map(line)), foot ? el("tfoot", {}, el("tr", {}, foot.map(cell("td")))) : null));
}
const code = (text, kind) => el("td", {class: kind ? `c ${kind}` : "c"}, text);
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

// ---- numbers

function digits(x) {
  if (x === null || x === undefined) return "-";
  const size = Math.abs(x);
  if (size >= 1000) return Math.round(x).toLocaleString("en-US");
  return size >= 100 ? x.toFixed(0) : size >= 10 ? x.toFixed(1) : x.toFixed(2);
}
function units(x, words) {
  let i = 0;
  while (Math.abs(x) >= 1000 && i < words.length - 1) { x /= 1000; i++; }
  return `${i ? digits(x) : Math.round(x)}\u00a0${words[i]}`;
}
const bytes = (x) => units(x, ["B", "kB", "MB", "GB", "TB"]);
const count = (x) => units(x, ["", "k", "M", "G", "T"]).trim();

// ---- names: which tensor a word of a text is

const WORD = /[A-Za-z_]\w*/g;
const CARRIED = /^(?:[abckn]\d+|acc\d+)(?:_\d+)?$/;  // loops and accumulators keep their names
const OWN = /^(?:in|v|panel|row|t|slab|part)\d+(?:_\d+)?$/;

let sourceWords = new Map();  // by the kernels that share a text

function wordsOf(level, kernels) {
  if (level === "source") {
    const known = sourceWords.get(kernels);
    if (known) return known;
    const found = {};
    const first = kernels.length ? program.kernels[kernels[0]].buffers : [];  // the text has its names
    for (const k of kernels) program.kernels[k].buffers.forEach((name, i) => {
      (found[first[i] || name] ||= new Set()).add(bufferOf(name));
    });
    const words = (word) => Object.hasOwn(found, word) ? [...found[word]].join(" ") : null;
    sourceWords.set(kernels, words);
    return words;
  }
  const names = program.values[level] || program.values.loop;
  return (word) => Object.hasOwn(names, word) ? names[word] || `t.${word}` : null;
}
const bufferOf = (name) => program.values.loop[name] || (name in program.values.loop ? `t.${name}` : `b.${name}`);

function localOf(level, word, kernel) {
  if (kernel === undefined || level === "torch" || level === "tensor") return null;
  if (CARRIED.test(word)) return `l.${kernel}.${word.replace(/^(acc\d+)_\d+$/, "$1")}`;
  const stage = level === "source" ? "kernel" : level;
  return OWN.test(word) ? `l.${kernel}.${stage}.${word}` : null;
}

// ---- levels

function lines(runs) {  // a negative number: so many lines follow the one before
  const found = [];
  let at = 0;
  for (const n of runs) {
    if (n >= 0) found.push(data.lines[at = n]);
    else for (let i = 0; i < -n; i++) found.push(data.lines[++at]);
  }
  return found;
}

function kernelsByLine(level, length) {
  const found = new Array(length).fill(null);
  for (const [start, stop, kernels] of program.spans[level] || [])
    for (let i = start; i < Math.min(stop, length); i++) found[i] = kernels;
  return found;
}

const NONE = [];

function drawLine(text, level, kernels) {
  const own = kernels || NONE;
  const row = el("div", {"data-k": own.length ? own.join(" ") : null});
  const at = level === "source" ? text.indexOf("//") : text.search(/  # /);
  const body = at < 0 ? text : text.slice(0, at);
  const value = wordsOf(level, own);
  let end = 0;
  for (const m of body.matchAll(WORD)) {
    const next = body[m.index + m[0].length], calls = next === "(" || (next === "{" && level === "tensor");
    const isFunction = calls || "{.".includes(body[m.index - 1] || " ");  // relu(v0), map{relu}, aten.relu
    const v = isFunction ? null : value(m[0]) || localOf(level, m[0], own[0]);
    const head = !v && m.index === 0 && /^(kernel|program|input|output|call|for|void)$/.test(m[0]);
    if (!v && !head) continue;
    row.append(body.slice(end, m.index), v ? el("i", {"data-v": v}, m[0]) : el("b", {}, m[0]));
    end = m.index + m[0].length;
  }
  row.append(body.slice(end));
  if (at >= 0) row.append(el("u", {}, text.slice(at)));
  return row;
}

function drawColumn(i) {
  const level = shown[i], column = $("columns").children[i];
  const box = column.lastElementChild, all = lines(program.levels[level] || []);
  const only = $("only").value, owner = kernelsByLine(level, all.length);
  box.replaceChildren();
  if (!all.length) { box.append(el("div", {}, `this program started below the ${level} level`)); return; }
  const chosen = only === "" && all.length > MANY ? 0 : only === "" ? null : Number(only);
  if (only === "" && chosen !== null)
    box.append(el("div", {}, el("u", {}, `${all.length} lines: one kernel at a time; choose it above`)));
  let skipped = 0;
  all.forEach((text, n) => {
    if (chosen !== null && !(owner[n] || []).includes(chosen)) { skipped++; return; }
    if (skipped) { box.append(el("div", {}, el("u", {}, `\u2026 ${plural(skipped, "line")}`))); skipped = 0; }
    box.append(drawLine(text, level, owner[n]));
  });
  column.querySelector("span").textContent = plural(all.length, "line");
  box.setAttribute("data-level", level);
}

function drawColumns() {
  $("columns").replaceChildren(...shown.map((level, i) => {
    const choice = el("select", {"aria-label": `level of column ${i + 1}`},
      ALL.map((name) => el("option", {selected: name === level ? "" : null}, name)));
    choice.addEventListener("change", () => { shown[i] = choice.value; drawColumn(i); index(); });
    return el("div", {class: "column"}, el("div", {}, choice, el("span", {class: "dim"})),
      el("div", {class: "code", tabindex: 0}));
  }));
  shown.forEach((_, i) => drawColumn(i));
}

// ---- kernels and the roofline

const roof = (kind) => data.ceilings[kind].map(([name, rate]) => ({name, rate}));
const times = (k) => [k.flops / roof("compute").at(k.half ? -1 : 0).rate / 1e3, k.bytes / roof("memory")[0].rate / 1e3];
const limit = (k) => Math.max(...times(k));
const bound = (k) => times(k)[1] > times(k)[0] ? "memory" : "compute";

function drawKernels() {
  const list = program.kernels.map((k, i) => ({...k, i})).filter((k) => k.launched);
  const sum = (f) => list.reduce((total, k) => total + (k[f] || 0), 0);
  const timed = list.some((k) => k.measured_us !== null);
  const launches = list.some((k) => k.launch);
  const columns = ["#", "kernel", "#flop", "#bytes", "#flop/B", "#predicted \u00b5s", ...(timed ? ["#measured \u00b5s"] : []), "#limit \u00b5s", "bound by", ...(launches ? ["#grid", "#block", "#registers"] : [])];
  const rows = list.map((k, n) => ({marks: {"data-k": k.i, title: k.origin.join("\n")}, cells: [
    String(n), code(k.rows > 1 ? `${k.name} (${k.rows} rows)` : k.name), count(k.flops), bytes(k.bytes), k.bytes ? digits(k.flops / k.bytes) : "-", digits(k.predicted_us),
    ...(timed ? [digits(k.measured_us)] : []), digits(limit(k)), bound(k),
    ...(launches ? [k.launch?.grid, k.launch?.block, k.launch?.registers].map((x) => x === null || x === undefined ? "-" : String(x)) : [])]}));
  const foot = ["", "all", count(sum("flops")), bytes(sum("bytes")), "", digits(sum("predicted_us")), ...(timed ? [digits(sum("measured_us"))] : []), digits(list.reduce((t, k) => t + limit(k), 0)), ""];
  $("kernels").replaceChildren(table(columns, rows, foot), el("p", {class: "note"},
    "flop: functions of floats as the loop nest has them, a multiply-add is two; bytes: each byte of a buffer read once, written once; " +
    `limit: the longer of both at the ceilings of ${data.target.name}, all cores, of products of 16 bits where the kernel reads such (${data.ceilings.from}). Caches that hold the operands go past the memory's.` +
    (timed ? "" : " --profile measures each kernel.")));
  drawRoofline(list.filter((k) => k.flops && k.bytes), list.length);
  const externs = data.externs.map((x) => ({cells: [code(x.op), digits(x.us), x.why, code(x.where, "wide")]}));
  const eager = data.eager.map((why) => el("p", {}, `in eager: ${why}`));
  $("externs").replaceChildren(...(externs.length ? [el("h3", {}, "Externs: what runs as ATen's own"), table(["op", "#measured \u00b5s", "why", "where"], externs)] : [el("p", {class: "note"}, "No externs: weft generates all of it.")]), ...eager);
}

function drawRoofline(list, total) {
  const width = 560, height = 360, left = 62, bottom = 40, top = 12, right = 14;
  if (!list.length) { $("roofline").replaceChildren(el("p", {class: "note"}, "No kernel here has operations on floats, so there is no roofline.")); return; }
  const at = (k, us) => us ? k.flops / us / 1e3 : null;  // GFLOP/s
  const peak = Math.max(...roof("compute").map((r) => r.rate));
  const xs = list.map((k) => k.flops / k.bytes);
  const ys = list.flatMap((k) => [at(k, k.predicted_us), at(k, k.measured_us)]).filter((y) => y);
  const low = Math.floor(Math.log10(Math.min(0.1, ...xs))), high = Math.ceil(Math.log10(Math.max(100, ...xs.map((x) => x * 1.3))));
  const floor = Math.floor(Math.log10(Math.min(1, ...ys))), ceiling = Math.log10(Math.max(peak, ...ys) * 1.9);
  const X = (x) => left + (Math.log10(x) - low) / (high - low) * (width - left - right);
  const Y = (y) => height - bottom - (Math.log10(y) - floor) / (ceiling - floor) * (height - bottom - top);
  const parts = [];
  for (let e = low; e <= high; e++) parts.push(el("line", {class: "axis", x1: X(10 ** e), x2: X(10 ** e), y1: top, y2: height - bottom}), el("text", {x: X(10 ** e), y: height - bottom + 15, "text-anchor": "middle"}, power(e)));
  for (let e = floor; e <= ceiling; e++) parts.push(el("line", {class: "axis", x1: left, x2: width - right, y1: Y(10 ** e), y2: Y(10 ** e)}), el("text", {x: left - 6, y: Y(10 ** e) + 4, "text-anchor": "end"}, power(e)));
  parts.push(el("text", {x: (left + width) / 2, y: height - 6, "text-anchor": "middle"}, "flop per byte"), el("text", {x: 14, y: (height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(height - bottom) / 2})`}, "GFLOP/s"));
  roof("compute").forEach(({name, rate}, i) => {
    const from = Math.max(10 ** low, rate / Math.max(...roof("memory").map((r) => r.rate)));
    parts.push(el("line", {class: i ? "roof more" : "roof", x1: X(from), x2: width - right, y1: Y(rate), y2: Y(rate)}), el("text", {class: "strong", x: width - right, y: Y(rate) - 5, "text-anchor": "end"}, `${name}, ${units(rate * 1e9, ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s"])}`));
  });
  roof("memory").forEach(({name, rate}, i) => {
    const from = Math.max(10 ** low, 10 ** floor / rate), to = Math.min(peak / rate, 10 ** high);
    if (to <= from) return;
    const slope = Math.atan2(Y(to * rate) - Y(from * rate), X(to) - X(from)) * 180 / Math.PI;
    const x = X(from) + 8, y = Y(from * rate) + 13, turn = `rotate(${slope} ${X(from)} ${Y(from * rate)})`;
    parts.push(el("line", {class: i ? "roof more" : "roof", x1: X(from), y1: Y(from * rate), x2: X(to), y2: Y(to * rate)}));
    if (!i) parts.push(el("text", {class: "strong", x, y, transform: turn}, `${name}, ${bytes(rate * 1e9)}/s`));
  });
  for (const k of list) {
    const x = X(k.flops / k.bytes), p = at(k, k.predicted_us), m = at(k, k.measured_us);
    parts.push(el("g", {"data-k": k.i},
      el("title", {}, `${k.name}: predicted ${digits(k.predicted_us)} \u00b5s` + (m ? `, measured ${digits(k.measured_us)} \u00b5s` : "")),
      p && m ? el("line", {class: "lead", x1: x, x2: x, y1: Y(p), y2: Y(m)}) : null,
      p ? el("circle", {class: "dot hollow", cx: x, cy: Y(p), r: 5}) : null,
      m ? el("circle", {class: "dot full", cx: x, cy: Y(m), r: 4}) : null));
  }
  const none = total - list.length;
  $("roofline").replaceChildren(el("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "roofline"}, parts),
    el("p", {class: "note"}, `Roofline: hollow is predicted, full is measured. Dashed: ${roof("memory").slice(1).map((r) => `${r.name}, ${bytes(r.rate * 1e9)}/s`).join("; ")}.` + (none ? ` ${plural(none, "kernel")} without operations on floats: only in the table.` : "")));
}
const power = (e) => e < 0 ? (10 ** e).toFixed(-e) : `${10 ** (e % 3)}${["", "k", "M", "G"][Math.floor(e / 3)]}`;

// ---- search

function drawSearch() {
  const effort = data.options.search || "off";
  if (effort === "off") { $("search").replaceChildren(el("p", {class: "note"}, "It was off: with --search on, sums of products of tensors are computed in the cheapest order that laws of algebra allow.")); return; }
  if (!program.regions.length) { $("search").replaceChildren(el("p", {class: "note"}, "It was on, and found no part of the program that may be computed in another way.")); return; }
  const taken = program.regions.filter((r) => r.outcome === "taken").length;
  $("search").replaceChildren(el("p", {}, `${plural(program.regions.length, "part")} of the program looked at, ${taken} computed in another way.`),
    ...program.regions.map((r) => {
      const box = el("div", {class: `region ${r.outcome === "taken" ? "taken" : ""}`});
      box.append(el("div", {}, el("span", {class: r.outcome === "taken" ? "yes" : "dim"}, r.outcome === "taken" ? "taken" : `kept as it was: ${r.outcome}`), "  ",
        ...r.roots.split(", ").map((name) => el("i", {class: "chip", "data-v": `t.${name}`}, name)),
        el("span", {class: "dim"}, r.ms === null ? "" : ` ${r.ms} ms of search`)));
      if (r.was) box.append(el("table", {}, el("tr", {}, el("td", {class: "dim"}, "was"), code(r.was, "wide")), el("tr", {}, el("td", {class: "dim"}, r.outcome === "taken" ? "is" : "found"), code(r.is, "wide"))));
      const scales = [["multiply-adds", r.operations, count], ["price of the order, \u00b5s", r.cost, digits], ["price of its kernels, \u00b5s", r.priced, digits]].filter((row) => row[1]);
      if (scales.length) box.append(el("table", {}, scales.flatMap(([name, pair, show]) => {
        const [old, made] = pair.split(" -> ").map(Number), most = Math.max(old, made);
        const bar = (x, kind) => el("span", {class: `gauge ${kind}`, style: `width:${Math.max(2, 220 * x / most)}px`});
        return [el("tr", {}, el("td", {class: "dim"}, name), el("td", {class: "n"}, show(old)), el("td", {}, bar(old, ""))), el("tr", {}, el("td", {}), el("td", {class: "n"}, show(made)), el("td", {}, bar(made, "after")))];
      })));
      box.append(el("div", {}, r.why || ""), el("div", {class: "dim mono"}, r.story || ""));
      return box;
    }));
}

// ---- fusion, passes, choices

function drawFusion() {
  const groups = program.kernels.map((k, i) => {
    const named = new Set();
    const text = lines(program.levels.tensor || []);
    for (const [start, stop, kernels] of program.spans.tensor || [])
      if (kernels.includes(i)) for (let n = start; n < stop; n++) named.add(text[n].split(" = ")[0]);
    return {marks: {"data-k": i}, cells: [code(k.name), code([...named].flatMap((name) => [el("i", {"data-v": `t.${name}`}, name), " "]), "wide")]};
  });
  const word = {inline: "computed where it is read", join: "in one kernel"};
  const row = (f) => ({cells: [f.taken ? el("span", {class: "yes"}, "yes") : el("span", {class: "dim"}, "no"), word[f.what] || f.what,
    code(f.of.flatMap((name) => [el("i", {"data-v": `t.${name}`}, name), " "])),
    f.saved === null ? "-" : f.saved >= 0 ? `saves ${digits(f.saved)}` : `costs ${digits(-f.saved)}`, f.why === "price" ? "by price" : f.why]});
  const part = (title, taken) => {
    const rows = program.fusions.filter((f) => f.taken === taken).sort((a, b) => (b.saved ?? -1e99) - (a.saved ?? -1e99)).map(row);
    return el("div", {}, el("h3", {}, title), rows.length ? table(["", "what", "tensors", "#\u00b5s", "why"], rows) : el("p", {class: "note"}, "none"));
  };
  $("fusion").replaceChildren(
    el("p", {class: "note"}, "Fusion begins with most tensors in memory, and makes the change that saves most, again and again. What it left undone is priced on the kernels that it ended with."),
    el("div", {class: "two"}, el("div", {}, el("h3", {}, "Kernels, and the tensors that each computes"), table(["kernel", "tensors"], groups)),
      el("div", {}, part("Taken", true), part("Not taken", false))));
}

function drawPasses() {
  const idle = [];
  const list = program.passes.map((p) => {
    const change = lines(p.diff), n = change.filter((t) => /^[+-]/.test(t)).length;
    if (!n) { idle.push(p); return null; }
    const kind = (t) => t[0] === "+" ? "a" : t[0] === "-" ? "d" : t[0] === "@" ? "h" : null;
    const box = el("details", {}, el("summary", {}, el("span", {class: "mono"}, p.name), el("span", {class: "n dim"}, `${p.ms.toFixed(1)} ms`), el("span", {}, `${n} lines changed`), el("span", {class: "dim"}, p.about.replace(/^\w+: /, ""))));
    box.addEventListener("toggle", () => {
      if (box.children.length > 1) return;
      const rules = Object.entries(p.rules).map(([rule, times]) => `${rule} \u00d7${times}`).join(", ");
      box.append(el("div", {}, p.kernels.length ? el("div", {}, "kernels: ", p.kernels.map(chip)) : null, rules ? el("p", {class: "dim"}, `rules: ${rules}`) : null,
        el("div", {class: "diff"}, change.map((t) => el("div", {class: kind(t)}, t)))));
      index();
    });
    return box;
  });
  const ms = program.passes.reduce((t, p) => t + p.ms, 0);
  $("passes").replaceChildren(el("p", {class: "note"}, `${program.passes.length} passes in ${digits(ms)} ms, in this order; n: on tensors, l: on the program's kernels, t: on each kernel, k: on a GPU's threads. Equal kernels are lowered once.`), ...list.filter((x) => x),
    el("p", {class: "note"}, idle.length ? `Without effect here: ${idle.map((p) => `${p.name} (${p.ms.toFixed(1)} ms)`).join(", ")}.` : ""));
}
function chip(name) {
  const i = program.kernels.findIndex((k) => k.name === name);
  return el("span", {class: "chip", "data-k": i < 0 ? null : i}, name);
}

const MEANING = {
  tile_rows: "rows of a register tile", panel: "columns of a packed panel", dot_tile: "register tile of dot products",
  vector_axis: "the loops that run over vector lanes", vectors: "vectors at a time; ranked by how far from the usual number",
  threads: "whether threads share it", stream: "whether stores bypass the caches", prefetch: "whether loads fetch ahead",
  stage: "whether a shared term gets a buffer", tile: "rows and columns of a block", chunk: "steps of a sum in shared memory", pieces: "how a tile is cut",
};

function drawChoices() {
  const boxes = Object.entries(program.choices).filter(([, list]) => list.length).map(([kernel, list]) => {
    const i = program.kernels.findIndex((k) => k.name === kernel);
    const changed = list.filter((c) => c.by !== "price").length;
    const meaning = (c) => MEANING[c.name.replace(/\.\d+$/, "")] || program.passes.find((p) => p.name.endsWith(`_${c.name}`))?.about.replace(/^\w+: /, "") || "";
    const by = (c) => c.by !== "price" ? c.by : c.prices.every((p) => p === null) ? "a rule of its pass" : "the least";
    const rows = list.map((c) => ({cells: [code(c.name), code(el("span", {class: "chosen"}, c.taken)), code(c.options.map((o, n) =>
      o === c.taken && c.prices[n] === null ? null : el("span", {class: "chip"}, c.prices[n] === null ? o : `${o}: ${digits(c.prices[n])}`)), "wide"), by(c), el("span", {class: "dim"}, meaning(c))]}));
    return el("details", {}, el("summary", {}, el("span", {class: "mono", "data-k": i < 0 ? null : i}, kernel), el("span", {class: "dim"}, `${plural(list.length, "choice")}${changed ? `, ${changed} not by price` : ""}`)),
      el("div", {}, table(["choice", "taken", "options, best first, with what ranks them where that is a number", "by", "what it is"], rows)));
  });
  $("choices").replaceChildren(el("p", {class: "note"}, "What the passes chose between, once for all kernels of one structure. Numbers are in the unit of their pass; the least is taken, unless a schedule or weft tune decided."), ...boxes);
}

// ---- memory and time

function drawMemory() {
  const {steps, buffers, bytes: total} = program.arena;
  const placed = buffers.filter((b) => b.offset !== null), width = 1100, left = 70, height = Math.min(320, 60 + 24 * placed.length);
  const title = (s) => s.extern || `${program.kernels[s.kernel].name}${s.once ? " (once)" : ""}`;
  const parts = [];
  const unit = (width - left - 10) / Math.max(1, steps.length), Y = (b) => 8 + (1 - b / total) * (height - 40);
  steps.forEach((s, i) => {
    parts.push(el("g", {"data-k": s.kernel ?? null}, el("rect", {x: left + i * unit, y: 8, width: unit, height: height - 40, fill: "transparent"}), el("line", {class: "axis", x1: left + i * unit, x2: left + i * unit, y1: 8, y2: height - 32}),
      el("text", {x: left + (i + 0.5) * unit, y: height - 16, "text-anchor": "middle"}, unit > 95 ? title(s).slice(0, Math.floor(unit / 7)) : String(i)), el("title", {}, `step ${i}: ${title(s)}`)));
  });
  for (const b of placed) {
    const w = (b.last - b.first + 1) * unit - 4, h = Math.max(2, Y(b.offset) - Y(b.offset + b.bytes));
    parts.push(el("g", {"data-v": bufferOf(b.name)}, el("rect", {class: "life", x: left + b.first * unit + 2, y: Y(b.offset + b.bytes), width: w, height: h}),
      h > 12 && w > 30 ? el("text", {x: left + b.first * unit + 7, y: Y(b.offset + b.bytes / 2) + 4}, b.name.slice(0, Math.floor(w / 7))) : null,
      el("title", {}, `${b.name}: ${bytes(b.bytes)} at ${b.offset}, steps ${b.first} to ${b.last}`)));
  }
  parts.push(el("text", {x: left - 6, y: 16, "text-anchor": "end"}, bytes(total)), el("text", {x: left - 6, y: height - 32, "text-anchor": "end"}, "0"), el("text", {x: left, y: height - 2}, "steps"));
  const sum = placed.reduce((t, b) => t + b.bytes, 0);
  const rows = buffers.map((b) => ({marks: {"data-v": bufferOf(b.name)}, cells: [code(b.name), KIND[b.kind] || b.kind, bytes(b.bytes), b.offset === null ? "-" : b.offset.toLocaleString("en-US"), b.first === b.last ? String(b.first) : `${b.first} \u2013 ${b.last}`]}));
  $("memory").replaceChildren(placed.length ? el("p", {}, `${plural(placed.length, "temporary tensor")}, ${bytes(sum)} together, share an arena of ${bytes(total)}: one takes the place of another that no later step reads.`) : el("p", {class: "note"}, "No temporaries: the arena is empty."),
    placed.length ? el("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "memory plan"}, parts) : "",
    el("details", {}, el("summary", {}, plural(buffers.length, "buffer")), el("div", {}, table(["buffer", "kind", "#size", "#offset", "#steps"], rows))));
}
const KIND = {input: "input", output: "output", temp: "temporary", kept: "kept between calls"};

function drawTime() {
  const stages = Object.entries(program.seconds), most = Math.max(...stages.map((s) => s[1])), total = stages.reduce((t, s) => t + s[1], 0);
  $("time").replaceChildren(table(["stage", "#s", ""], stages.map(([name, s]) => ({cells: [name, s.toFixed(3), el("span", {class: "gauge", style: `width:${Math.max(1, 420 * s / most)}px`})]})), ["total", total.toFixed(3), ""]),
    el("p", {class: "note"}, program.cached ? "The program came from the cache: compiler is the time to load it; the levels were made again for this page." : "torch: finding the program in the cache by its graph; compiler: the C or GPU compiler and the linker."));
}

function drawFacts() {
  const list = program.kernels.filter((k) => k.launched), fact = (name, value) => el("span", {}, `${name} `, el("b", {}, value));
  const sum = (f) => list.reduce((t, k) => t + (k[f] || 0), 0), timed = list.some((k) => k.measured_us !== null);
  $("title").textContent = data.title;
  $("title").title = data.title;
  const t = data.target, options = Object.entries(data.options).filter(([k]) => !["target", "profile", "tune", "fuse", "fallback"].includes(k));
  $("facts").replaceChildren(fact("target", `${t.name}, ${t.cores} ${t.gpu ? "multiprocessors" : "cores"}`), fact("kernels", String(list.length)), fact("externs", String(data.externs.length)),
    fact("flop", count(sum("flops"))), fact("predicted", `${digits(sum("predicted_us"))} \u00b5s`), ...(timed ? [fact("measured", `${digits(sum("measured_us"))} \u00b5s`)] : []),
    fact("arena", bytes(program.arena.bytes)), fact("compiled in", `${Object.values(program.seconds).reduce((a, b) => a + b, 0).toFixed(2)} s`),
    ...options.map(([k, v]) => fact(k, String(v))), ...program.sizes.map((s) => fact("size", s)));
}

// ---- light

let byKernel = new Map(), byValue = new Map(), lit = new Set();

function index() {
  byKernel = new Map(); byValue = new Map();
  const add = (map, key, e) => map.has(key) ? map.get(key).push(e) : map.set(key, [e]);
  for (const e of document.querySelectorAll("[data-k]")) for (const k of e.dataset.k.split(" ")) add(byKernel, k, e);
  for (const e of document.querySelectorAll("[data-v]")) for (const v of e.dataset.v.split(" ")) add(byValue, v, e);
}

function light(target) {
  for (const e of lit) e.classList.remove("lit");
  lit = new Set();
  if (!target) return;
  const on = (e) => { e.classList.add("lit"); lit.add(e); };
  if (target.dataset.v) {
    for (const v of target.dataset.v.split(" ")) for (const e of byValue.get(v) || []) { on(e); if (e.closest(".code")) on(e.closest(".code > div")); }
  } else for (const k of target.dataset.k.split(" ")) for (const e of byKernel.get(k) || []) on(e);
}
const marked = (e) => e.closest && (e.closest("[data-v]") || e.closest("[data-k]"));

document.addEventListener("mouseover", (event) => { if (!pinned) light(marked(event.target)); });
document.addEventListener("click", (event) => {
  const target = marked(event.target);
  if (event.target.closest("select, button, summary, a")) return;
  pinned = pinned ? null : target;
  light(target);
  if (!pinned) return;
  for (const box of document.querySelectorAll(".code")) {
    const first = box.querySelector(":scope > .lit");
    if (first && !box.contains(target)) box.scrollTop = first.offsetTop - box.offsetTop - 60;
  }
});

// ---- the whole page

function draw() {
  const kernels = program.kernels.map((k, i) => el("option", {value: i}, k.name));
  $("only").replaceChildren(el("option", {value: ""}, "all"), ...kernels);
  if (settings.has("kernel")) $("only").value = String(program.kernels.findIndex((k) => k.name === settings.get("kernel")));
  drawFacts(); drawColumns(); drawKernels(); drawSearch(); drawFusion(); drawPasses(); drawChoices(); drawMemory(); drawTime();
  index();
}

function begin() {
  const asked = (settings.get("levels") || "tensor,loop,source").split(",").filter((l) => ALL.includes(l));
  shown = [...asked, ...ALL.filter((l) => !asked.includes(l))].slice(0, 3);
  if (settings.has("theme")) document.documentElement.dataset.theme = settings.get("theme");
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark");
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
  const choice = $("program");
  data.programs.forEach((p, i) => choice.append(el("option", {value: i}, `graph ${i}: ${p.name}`)));
  choice.hidden = data.programs.length < 2;
  choice.addEventListener("change", () => { program = data.programs[Number(choice.value)]; pinned = null; lit = new Set(); sourceWords = new Map(); draw(); });
  $("only").addEventListener("change", () => { shown.forEach((_, i) => drawColumn(i)); index(); });
  draw();
  if (settings.has("open")) for (const d of $(settings.get("open")).querySelectorAll("details")) d.open = true;
  if (settings.has("hover")) {  // as if a mouse pointed at the first such name: links, and tests
    const name = settings.get("hover");
    const there = [...document.querySelectorAll(".code i[data-v], .code b, #kernels tr[data-k] td.c")].find((e) => e.textContent === name);
    if (there) there.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
    if (there) for (const box of document.querySelectorAll(".code")) { const first = box.querySelector(":scope > .lit"); if (first) box.scrollTop = first.offsetTop - box.offsetTop - 60; }
  }
}
begin();
