// Things to touch: each widget takes the numbers that a cell of its page wrote, and computes what the page computes.
// First what is computed, then what a widget is built of, then the widgets.
(function () {
"use strict";

// --- What is computed -------------------------------------------------------------------------------------------

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const dot = (a, b) => sum(a.map((x, i) => x * b[i]));
const columns = (matrix) => matrix[0].map((_, j) => matrix.map((row) => row[j]));
const multiply = (a, b) => a.map((row) => columns(b).map((column) => dot(row, column)));

// The weights of one query: a softmax in which `filling` stands for each score that the mask forbids. Without a
// filling, a query that may attend to nothing has zeros.
function softmax(scores, mask = scores.map(() => true), filling) {
  if (filling === undefined && !mask.some(Boolean)) return scores.map(() => 0);
  const filled = scores.map((score, j) => (mask[j] ? score : filling ?? -Infinity));
  const largest = Math.max(...filled);
  const exponentials = filled.map((score) => Math.exp(score - largest));
  return exponentials.map((x) => x / sum(exponentials));
}

// Queries, keys, values, scores, weights and output of the tokens X, with scores divided by `divisor`.
function attention({ X, W_Q, W_K, W_V }, divisor) {
  const [Q, K, V] = [W_Q, W_K, W_V].map((W) => multiply(X, W));
  const scores = multiply(Q, columns(K)).map((row) => row.map((score) => score / divisor));
  const weights = scores.map((row) => softmax(row));
  return { Q, K, V, scores, weights, output: multiply(weights, V) };
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

// The formulas of transformer_lib.cost for a model and a batch without padding, and tokens that are written one by one.
function cost(c) {
  const [d, f, V, b] = [c.d_model, c.d_ff, c.target_vocab_size, c.batch], [n, m] = [c.source_length, c.target_length];
  const [encoders, decoders] = [c.num_encoder_layers, c.num_decoder_layers];
  const attention = 4 * (d * d + d), network = 2 * d * f + f + d, norm = 2 * d;
  const tables = { none: c.source_vocab_size + 2 * V, target: c.source_vocab_size + V, all: V }[c.tie_embeddings] * d;
  const parameters = encoders * (attention + network + 2 * norm) + decoders * (2 * attention + network + 3 * norm)
    + (c.norm_first ? 2 * norm : 0) + tables;
  const layer = 8 * d * d + 4 * d * f; // FLOPs a token: an attention's own projections, and the network
  const encode = b * n * (encoders * (layer + 4 * n * d) + decoders * 4 * d * d); // with the memory's keys and values
  const decode = (keys) => decoders * (layer + 4 * d * d + 4 * (keys + n) * d) + 2 * d * V; // a token that sees so many
  const memory = (length, weights) => 4 * b * (5 * length * d + c.num_heads * weights);
  return {
    parameters,
    training: 3 * (encode + b * m * decode(m)),
    decoding: encode + b * m * decode((m + 1) / 2), // with a cache: 1, 2, …, m keys
    fused: memory(n, n),
    readable: memory(n, n * n),
  };
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

const picture = (width, height, ...children) =>
  draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, ...children);
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

// A table of numbers that the reader changes; `read` gives them, or nothing where one is missing or out of range.
function editable(caption, rows, names, numbers, role, change, range = { min: -99, max: 99, step: "any" }) {
  const inputs = numbers.map((row, i) => row.map((value, j) => make("input", {
    type: "number", value, ...range, required: true, input: change,
    "aria-label": `${caption}, ${rows[i]}` + (row.length > 1 ? `, ${names ? names[j] : "column " + (j + 1)}` : ""),
  })));
  const element = table(caption, rows, names, (i) => inputs[i]);
  if (role) element.style.setProperty("--role", `var(--role-${role})`);
  const read = () => inputs.flat().every((input) => input.validity.valid)
    ? inputs.map((row) => row.map((input) => input.valueAsNumber)) : undefined;
  const reset = () => inputs.forEach((row, i) => row.forEach((input, j) => { input.value = numbers[i][j]; }));
  return { element, read, reset };
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

WIDGETS.attention = (given) => {
  const { tokens, features } = given, d_k = given.W_Q[0].length, d_v = given.W_V[0].length;
  const inputs = {
    X: editable("tokens X", tokens, features, given.X, "", () => update()),
    W_Q: editable("W_Q", features, null, given.W_Q, "query", () => update()),
    W_K: editable("W_K", features, null, given.W_K, "key", () => update()),
    W_V: editable("W_V", features, null, given.W_V, "value", () => update()),
  };
  const shown = {
    Q: matrix("queries", tokens, null, d_k, "query", 1),
    K: matrix("keys", tokens, null, d_k, "key", 1),
    V: matrix("values", tokens, null, d_v, "value", 1),
    scores: matrix("scores", tokens, tokens, tokens.length, "", 2),
    weights: matrix("weights", tokens, tokens, tokens.length, "weight", 3),
    output: matrix("output", tokens, null, d_v, "", 1),
  };
  const { element, say } = speaker();
  let query = 0, divisor = given.divisor;
  const range = { min: 0.25, max: 8, step: 0.25, value: divisor };
  const scale = slider("scores are dot products divided by", range, (value) => {
    divisor = value;
    update();
    return written(value, 2) + (value ** 2 === d_k ? " = √d_k" : "");
  });
  function update() {
    const read = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.read()]));
    if (!Object.values(read).every(Boolean)) return say("Each number must lie between −99 and 99.");
    const result = attention(read, divisor);
    for (const name in shown) {
      shown[name].show(result[name]);
      shown[name].cells.forEach(([first], i) =>
        first.parentElement.classList.toggle("chosen", i === query && !"KV".includes(name)));
    }
    say(`The query of “${tokens[query]}” has the scores ${list(result.scores[query], 2)}, ` +
      `the weights ${list(result.weights[query], 3)}, and the output ${list(result.output[query], 1)}.`);
  }
  const reset = button("Back to the page's numbers", () => {
    for (const input of Object.values(inputs)) input.reset();
    scale.input.value = given.divisor;
    scale.move();
  });
  const chosen = choice("read out the query of", tokens, (i) => { query = i; update(); });
  scale.move();
  return [
    row(...Object.values(inputs).map((input) => input.element)),
    row(scale.element, chosen, reset),
    element,
    row(...Object.values(shown).map((matrix) => matrix.element)),
  ];
};

WIDGETS.masks = ({ tokens, exponentials, presets }) => {
  const fillings = {
    "left out, as in this book": undefined, "replaced by −∞": -Infinity, "replaced by −1,000,000,000": -1e9,
  };
  const names = Object.keys(presets), n = tokens.length;
  const { element, say } = speaker();
  let mask = [], last = n - 1, filling;
  const cells = tokens.map((query, i) => tokens.map((key, j) => button("", () => {
    mask[i][j] = !mask[i][j];
    last = i;
    update();
  }, { class: "widget-cell", "aria-label": `query ${query}, key ${key}` })));
  const left = matrix("exponentials of the scores", tokens, tokens, n, "", 0);
  const weights = matrix("weights", tokens, tokens, n, "weight", 3);
  function update() {
    const shares = exponentials.map((row, i) => softmax(row.map(Math.log), mask[i], filling));
    cells.forEach((row, i) => row.forEach((cell, j) => {
      cell.textContent = mask[i][j] ? "✓" : "✗";
      cell.setAttribute("aria-pressed", mask[i][j]);
    }));
    weights.show(shares);
    const seen = tokens.filter((_, j) => mask[last][j]);
    say(`The query ${tokens[last]} may attend to ${seen.length ? seen.join(", ") : "nothing"}; ` +
      `its weights are ${list(shares[last], 3)}.`);
  }
  const take = (name) => { mask = presets[name].map((row) => [...row]); last = n - 1; update(); };
  const buttons = names.map((name) => button(name, () => take(name)));
  const empty = button("forbid the last row", () => { mask[n - 1].fill(false); last = n - 1; update(); });
  const fill = choice("forbidden scores are", Object.keys(fillings), (i) => {
    filling = Object.values(fillings)[i];
    update();
  });
  take(names[names.length - 1]);
  left.show(exponentials);
  return [
    row(...buttons, empty), row(fill),
    row(left.element, table("mask: queries down, keys across", tokens, tokens, (i) => cells[i]), weights.element),
    element,
  ];
};

WIDGETS.positions = ({ d_model, length, query, key }) => {
  const clocks = Array.from({ length: d_model / 2 }, (_, i) => i), place = { p: query, q: key };
  const { element, say } = speaker();
  const hands = clocks.map(() => ({ p: line(50, 50, 50, 50, "hand"), q: line(50, 50, 50, 50, "hand dashed") }));
  const rim = () => draw("circle", { cx: 50, cy: 50, r: 46, class: "thin" });
  const face = (i) => picture(100, 116, rim(), hands[i].q, hands[i].p,
    draw("text", { x: 50, y: 112 }, `speed ${10000 ** (-2 * i / d_model)}`));
  const rows = matrix("The hands of p and q, and what each clock adds to the dot product",
    clocks.map((i) => `clock ${i}`), ["sin p", "cos p", "sin q", "cos q", "adds"], 5, "", 2);
  const curve = draw("polyline", { class: "curve" }), mark = draw("circle", { r: 5 });
  const [x, y] = [(q) => 10 + 3 * q, (product) => 98 - 22 * product];
  const plot = make("div", { class: "widget-plot" },
    picture(20 + 3 * length, 120, line(10, 98, 10 + 3 * length, 98, "thin"), curve, mark),
    make("div", {}, `dot product with positions q = 0 to ${length} (line: 0, dot: q)`));
  function update() {
    const [p, q] = [place.p, place.q].map((position) => positionRow(position, d_model));
    rows.show(clocks.map((i) => {
      const [a, b] = [p, q].map((numbers) => numbers.slice(2 * i, 2 * i + 2));
      return [...a, ...b, dot(a, b)];
    }));
    for (const [name, numbers] of [["p", p], ["q", q]])
      clocks.forEach((i) => {
        hands[i][name].setAttribute("x2", 50 + 44 * numbers[2 * i]);
        hands[i][name].setAttribute("y2", 50 - 44 * numbers[2 * i + 1]);
      });
    const products = Array.from({ length: length + 1 }, (_, other) => dot(p, positionRow(other, d_model)));
    curve.setAttribute("points", products.map((product, other) => `${x(other)},${y(product)}`).join(" "));
    mark.setAttribute("cx", x(place.q));
    mark.setAttribute("cy", y(products[place.q]));
    say(`Position ${place.p} has the row ${list(p, 2)}. Its dot product with the row of position ${place.q}, ` +
      `${Math.abs(place.p - place.q)} away, is ${written(products[place.q], 2)}; ` +
      `with itself it is ${written(d_model / 2, 0)}.`);
  }
  const range = (name) => ({ min: 0, max: length, step: 1, value: place[name] });
  const sliders = ["p", "q"].map((name) => slider(`position ${name}`, range(name), (value) => {
    place[name] = value;
    update();
    return `${value} (${name === "p" ? "solid" : "dashed"} hands)`;
  }));
  for (const { move } of sliders) move();
  return [row(...sliders.map((each) => each.element)), row(...clocks.map(face)), row(rows.element, plot), element];
};

WIDGETS.beam = ({ table: chances, max_length }) => {
  const alphas = [0, 0.5, 1], { element, say } = speaker(), shown = make("div", { class: "widget-row widget-steps" });
  let size = 2, alpha = 1, search, at;
  const next = button("next step", () => { at += 1; step(); }), restart = button("start again", () => again());
  const again = () => {
    search = beamSearch(chances, size, alpha, max_length);
    at = 0;
    shown.replaceChildren();
    next.disabled = false;
    say(`The search has ${size} ${size === 1 ? "slot" : "slots"}, and begins with nothing written.`);
  };
  function step() {
    const { candidates, best, reach } = search.steps[at - 1];
    const kept = candidates.filter((each) => each.fate !== "dropped"), rows = candidates.slice(0, kept.length + 3);
    const list = table(`step ${at}`, rows.map((each) => each.words.join(" ")), ["probability", "outcome"],
      (i) => [written(rows[i].p, 4), rows[i].fate]);
    list.querySelectorAll("tbody tr").forEach((line, i) => line.classList.toggle("chosen", i < kept.length));
    const more = candidates.length - rows.length;
    shown.append(make("div", {}, list, ...(more > 0 ? [`and ${more} more dropped`] : [])));
    const over = at === search.steps.length, answer = search.answers[0];
    next.disabled = over;
    if (over) restart.focus(); // a button that can no longer be pressed loses the keyboard's place
    const fates = kept.map((each) => `${each.words.join(" ")} ${each.fate === "live" ? "stays live" : "is finished"}`);
    say(`Step ${at}: ${fates.join(", ")}. ` +
      (best > -Infinity ? `The best finished score is ${written(best, 3)}` : "Nothing has finished") +
      (reach > -Infinity ? `; the best live one can still reach ${written(reach, 3)}. ` : "; nothing is live. ") +
      (over ? `The search is over. The answer is ${answer.words.join(" ")}, with the score ${written(answer.score, 3)}.`
        : "The search goes on."));
  }
  const width = choice("slots", ["1 (greedy)", "2", "3", "4"], (i) => { size = i + 1; again(); }, 1);
  const penalty = choice("length penalty α", alphas.map(String), (i) => { alpha = alphas[i]; again(); }, 2);
  again();
  return [row(width, penalty, next, restart), element, shown];
};

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

WIDGETS.gallery = ({ cases }) => {
  const { element, say } = speaker(), shown = make("div", { class: "widget-row" }), [width, height] = [300, 110];
  let chosen = cases[0], wrong = false;
  const bug = make("input", { type: "checkbox", role: "switch", change: () => { wrong = bug.checked; update(); } });
  function update() {
    const { names, down, words } = chosen, numbers = wrong ? chosen.wrong : chosen.right;
    const largest = Math.max(...chosen.right, ...chosen.wrong), gap = width / names.length;
    const bars = numbers.map((number, i) => draw("rect", { x: 10 + i * gap, y: height - 100 * number / largest,
      width: 0.7 * gap, height: 100 * number / largest, class: wrong ? "bug" : "" }));
    const rows = matrix(down, names, [wrong ? "with the bug" : "as it should be"], 1, "", 2);
    rows.show(numbers.map((number) => [number]));
    const floor = line(10, height, 10 + width, height, "thin");
    shown.replaceChildren(picture(20 + width, height + 2, ...bars, floor), rows.element);
    say(words[Number(wrong)]);
  }
  const which = choice("case", cases.map((each) => each.title), (i) => { chosen = cases[i]; update(); });
  update();
  return [row(which, make("label", {}, bug, " with the bug")), shown, element];
};

WIDGETS.cost = ({ sizes, tie_embeddings, machines, share }) => {
  const { element, say } = speaker(), names = Object.keys(sizes), peaks = Object.entries(machines);
  const ties = ["none", "target", "all"];
  const rows = ["parameters", "weights, gradients, Adam",
    "kept by one encoder attention, fused kernel", "the same, readable formula",
    "FLOPs of a training step", "time of a training step", "time of 100,000 steps", "FLOPs to write the target, cached"];
  const start = names.map((name) => [sizes[name]]);
  const inputs = editable("sizes", names, null, start, "", () => update(), { min: 1, max: 1e6, step: 1 });
  const results = table("what it costs", rows, null, () => [""]), cells = [...results.querySelectorAll("td")];
  let tie = tie_embeddings, machine = 0, reached = share;
  const bytes = (n) => (n < 2 ** 30 ? `${written(n / 2 ** 20, 1)} MiB` : `${written(n / 2 ** 30, 1)} GiB`);
  const raised = (digits) => [...digits].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
  const power = (n) => n.toExponential(2).replace(/e\+(\d+)/, (_, digits) => " · 10" + raised(digits));
  const time = (s) => (s < 1 ? `${written(1000 * s, 2)} ms` : s < 3600 ? `${written(s, 1)} s` : `${written(s / 3600, 1)} h`);
  function update() {
    const read = inputs.read();
    const given = read && { ...Object.fromEntries(names.map((name, i) => [name, read[i][0]])), tie_embeddings: tie };
    if (!read) return say("Each size must be a whole number from 1 to 1,000,000.");
    if (given.d_model % given.num_heads)
      return say(`The heads share the width: ${given.num_heads} does not divide ${given.d_model}.`);
    if (tie === "all" && given.source_vocab_size !== given.target_vocab_size)
      return say("One table for all needs equal vocabularies.");
    const found = cost(given), step = found.training / (reached * peaks[machine][1]);
    const kept = [16 * found.parameters, found.fused, found.readable].map(bytes);
    const texts = [found.parameters.toLocaleString("en"), ...kept,
      power(found.training), time(step), time(1e5 * step), power(found.decoding)];
    texts.forEach((text, i) => { cells[i].textContent = text; });
    say(`${texts[0]} parameters; a training step takes ${texts[5]} on the ${peaks[machine][0].replace(", ", " in ")} ` +
      `at ${written(100 * reached, 0)} % of its FLOP/s.`);
  }
  const tied = choice("tied embeddings", ties, (i) => { tie = ties[i]; update(); }, ties.indexOf(tie));
  const processor = choice("processor", peaks.map(([name]) => name), (i) => { machine = i; update(); });
  const part = slider("it reaches", { min: 0.05, max: 1, step: 0.05, value: share }, (value) => {
    reached = value;
    update();
    return `${written(100 * value, 0)} % of its FLOP/s`;
  });
  part.move();
  return [row(processor, part.element, tied), row(inputs.element, results), element];
};

// --- Start ------------------------------------------------------------------------------------------------------

// The widget takes the place of the table that stands in its box as long as no script runs.
function start() {
  for (const box of document.querySelectorAll(".widget")) {
    const data = box.querySelector('script[type="application/json"]');
    const content = WIDGETS[box.id.replace("widget-", "")](JSON.parse(data.textContent));
    for (const still of box.querySelectorAll(".widget-still")) still.remove();
    box.append(...content);
  }
}

if (typeof module === "object") module.exports = { softmax, attention, positionRow, beamSearch, filtered, cost };
else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
})();
