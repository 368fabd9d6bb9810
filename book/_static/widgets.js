// Things to touch: each widget takes the numbers that a cell of its page wrote, and computes what the page computes.
// First what is computed, then what a widget is built of, then the widgets.
(function () {
"use strict";

// --- What is computed -------------------------------------------------------------------------------------------

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const dot = (a, b) => sum(a.map((x, i) => x * b[i]));

// The weights of one query: a softmax in which `filling` stands for each score that the mask forbids. Without a
// filling, a query that may attend to nothing has zeros.
function softmax(scores, mask = scores.map(() => true), filling) {
  if (filling === undefined && !mask.some(Boolean)) return scores.map(() => 0);
  const filled = scores.map((score, j) => (mask[j] ? score : filling ?? -Infinity));
  const largest = Math.max(...filled);
  const exponentials = filled.map((score) => Math.exp(score - largest));
  return exponentials.map((x) => x / sum(exponentials));
}

// Dot products, scores, weights and output of one query; the products are `times` as large as those of the vectors, and
// divided by `divisor`.
function attend(query, keys, values, divisor, times = 1) {
  const products = keys.map((key) => times * dot(query, key)), scores = products.map((product) => product / divisor);
  const weights = softmax(scores), output = values[0].map((_, c) => dot(weights, values.map((value) => value[c])));
  return { products, scores, weights, output };
}

// The row of a position in the sinusoidal table: sine and cosine of each clock's angle.
function positionRow(position, d_model) {
  return Array.from({ length: d_model }, (_, channel) => {
    const angle = position * 10000 ** (-2 * Math.floor(channel / 2) / d_model);
    return channel % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

// A beam search in a table of next-token probabilities: what happens to each candidate in each step, and the answers.
function beamSearch(table, size, alpha, maxLength) {
  const steps = [], finished = [];
  const better = (a, b) => b.score - a.score;
  let live = [{ words: [], p: 1 }];
  for (let length = 1; live.length; length++) {
    const candidates = live.flatMap(({ words, p }) => Object.entries(table[words[words.length - 1] ?? "start"])
      .filter(([, chance]) => chance > 0).map(([word, chance]) => ({ words: [...words, word], p: p * chance })));
    candidates.sort((a, b) => b.p - a.p);
    const slots = size - finished.length, score = (p) => Math.log(p) / length ** alpha;
    candidates.forEach((each, i) => {
      each.fate = i >= slots ? "dropped" : each.words[length - 1] === "end" ? "finished" : "live";
      if (each.fate === "finished") finished.push({ words: each.words, score: score(each.p) });
    });
    live = candidates.filter((each) => each.fate === "live");
    const best = Math.max(-Infinity, ...finished.map((each) => each.score));
    const reach = live.length ? Math.log(live[0].p) / maxLength ** alpha : -Infinity;
    steps.push({ candidates, best, reach });
    if (best >= reach || length === maxLength) {
      if (!finished.length) finished.push(...live.map(({ words, p }) => ({ words, score: score(p) })));
      live = [];
    }
  }
  return { steps, answers: finished.sort(better) };
}

// Probabilities, best first, after the temperature, then top-k, then top-p.
function filtered(p, temperature, topK, topP) {
  const scaled = softmax(p.map((x) => Math.log(x) / temperature), p.map((_, i) => i < topK));
  let before = 0;
  const kept = scaled.map((x) => {
    const stays = before < topP;
    before += x;
    return stays ? x : 0;
  });
  return kept.map((x) => x / sum(kept));
}

// --- What a widget is built of ----------------------------------------------------------------------------------

// An element with attributes, listeners (functions) and children; texts stay texts.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {}))
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  element.append(...children);
  return element;
}

// A drawing for the eyes alone; the same numbers stand in a table or a sentence.
function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const set = (element, attributes) => {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
};

const picture = (width, height, ...children) =>
  draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, ...children);
const label = (x, y, text, attributes) => draw("text", { x, y, ...attributes }, text);
const line = (x1, y1, x2, y2, style) => draw("line", { x1, y1, x2, y2, class: style });

const written = (number, digits) => number.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
const list = (numbers, digits) => numbers.map((number) => written(number, digits)).join(", ");
const button = (label, click, attributes) => make("button", { type: "button", click, ...attributes }, label);

function choice(label, options, change, chosen = 0) {
  const items = options.map((option, i) => make("option", { value: i, selected: i === chosen }, option));
  const select = make("select", { change: () => change(Number(select.value)) }, ...items);
  return make("label", {}, label + " ", select);
}

// A slider with its value beside it in words; `moved` gets the value and returns the words.
function slider(label, { min, max, step, value }, moved) {
  const words = make("span", { class: "widget-value", "aria-hidden": "true" });
  const input = make("input", { type: "range", min, max, step, value });
  const move = () => {
    words.textContent = moved(Number(input.value));
    input.setAttribute("aria-valuetext", words.textContent);
  };
  input.addEventListener("input", move);
  const element = make("label", { class: "widget-slider" }, make("span", {}, label + " "), input, words);
  return { element, input, move };
}

// A table with a name for each row and column; `cell(i, j)` makes what is in a cell.
function table(caption, rows, names, cell) {
  const titles = names?.map((name) => make("th", { scope: "col" }, name));
  const head = names && make("thead", {}, make("tr", {}, make("td"), ...titles));
  const body = rows.map((row, i) =>
    make("tr", {}, make("th", { scope: "row" }, row), ...cell(i).map((content) => make("td", {}, content))));
  const inner = make("table", {}, make("caption", {}, caption), ...(head ? [head] : []), make("tbody", {}, ...body));
  return make("div", { class: "widget-table" }, inner);
}

// A table of numbers that change: `show` writes them, each with a bar of its size in the colour of its role.
function matrix(caption, rows, names, width, role, digits) {
  const element = table(caption, rows, names, () => Array(width).fill(""));
  const cells = [...element.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td")]);
  if (role) element.style.setProperty("--role", `var(--role-${role})`);
  const show = (numbers) => {
    const largest = Math.max(1e-9, ...numbers.flat().map(Math.abs));
    cells.forEach((row, i) => row.forEach((cell, j) => {
      cell.textContent = written(numbers[i][j], digits);
      cell.style.setProperty("--size", role && Math.abs(numbers[i][j]) / largest || 0);
    }));
  };
  return { element, show, cells };
}

const row = (...children) => make("div", { class: "widget-row" }, ...children);

// What is said to those who do not see the tables change; `say` waits until a slider or a key comes to rest.
function speaker() {
  const element = make("p", { class: "widget-says", role: "status", "aria-live": "polite" });
  let timer;
  const say = (words) => {
    clearTimeout(timer);
    timer = setTimeout(() => { element.textContent = words; }, element.textContent ? 300 : 0);
  };
  return { element, say };
}

// --- The widgets: each gets the page's numbers, and returns what stands in its box ------------------------------

const WIDGETS = {};

WIDGETS.sampling = ({ words, p }) => {
  const { element, say } = speaker(), n = words.length, setting = { temperature: 1, k: n, share: 1 };
  const bars = matrix("probabilities", words, ["by the model", "to draw with"], 2, "decoder", 3);
  const model = filtered(p, 1, n, 1);
  function update() {
    const drawn = filtered(p, setting.temperature, setting.k, setting.share), kept = drawn.filter((x) => x > 0).length;
    bars.show(model.map((x, i) => [x, drawn[i]]));
    say(`${kept} of the ${n} tokens may be drawn; “${words[0]}” with the probability ${written(drawn[0], 3)}` +
      (kept > 1 ? `, “${words[kept - 1]}” with ${written(drawn[kept - 1], 3)}.` : "."));
  }
  const dial = (name, label, range, said) =>
    slider(label, { ...range, value: setting[name] }, (value) => {
      setting[name] = value;
      update();
      return said(value);
    });
  const dials = [
    dial("temperature", "temperature τ", { min: 0.1, max: 3, step: 0.1 }, (value) => written(value, 1)),
    dial("k", "top-k", { min: 1, max: n, step: 1 }, (value) => `k = ${value}`),
    dial("share", "top-p", { min: 0.05, max: 1, step: 0.05 }, (value) => `P = ${written(value, 2)}`),
  ];
  for (const each of dials) each.move();
  return [row(...dials.map((each) => each.element)), bars.element, element];
};

// --- Start ------------------------------------------------------------------------------------------------------

// The widget takes the place of the table that stands in its box as long as no script runs.
function start() {
  for (const box of document.querySelectorAll(".widget")) {
    const data = box.querySelector('script[type="application/json"]');
    const content = WIDGETS[box.id.replace("widget-", "")](JSON.parse(data.textContent));
    for (const still of box.querySelectorAll(".widget-still")) still.classList.add("on-paper");
    box.append(...content);
  }
}

const kit = { sum, dot, softmax, attend, positionRow, beamSearch, filtered, make, draw, set, picture, line, label,
  written, list, button, choice, slider, table, matrix, row, speaker, WIDGETS };
if (typeof module === "object") module.exports = kit;
else {
  window.widgetKit = kit; // for drag.js, steps.js and ride.js
  document.addEventListener("DOMContentLoaded", start);
}
})();
