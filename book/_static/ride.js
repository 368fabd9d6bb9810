// Ride the data: a sentence goes through the map of the model box by box. An attention shows where its heads look
// (heads.js), another box the numbers that leave it. They are those that a cell of the tour wrote into <div class="ride">;
// the words about the boxes stand here.
(function () {
"use strict";

const { make, positionRow, written: digits } = window.widgetKit;
const written = (number) => digits(number, Math.abs(number) < 10 ? 2 : 1);
const percent = (share) => `${(100 * share).toFixed(share < 0.01 ? 1 : 0)} %`;
const bytes = (text, Kind) => Kind.from(atob(text), (letter) => letter.charCodeAt(0));

// A strip is stored as a whole number q from −127 to 127 for each of its numbers, which is (q / 127)² of the largest
// of its row: so a small number is as exact as a large one.
function unpacked({ largest, bytes: text }) {
  const whole = bytes(text, Int8Array), width = whole.length / largest.length;
  return largest.map((most, row) => Float32Array.from(whole.subarray(row * width, (row + 1) * width),
    (q) => Math.sign(q) * (q / 127) ** 2 * most));
}

const add = (a, b) => a.map((row, i) => row.map((value, j) => value + b[i][j]));

const mean = (row) => row.reduce((a, b) => a + b) / row.length;
const normed = (rows, [gain, shift]) => rows.map((row) => {
  const middle = mean(row), deviation = Math.sqrt(mean(row.map((value) => (value - middle) ** 2)));
  return row.map((value, i) => (value - middle) / deviation * gain[i] + shift[i]);
});

// --- The stops: where on the map, what is said, and what is shown -------------------------------------------------

const HEADS = 4, LEFT = 30, RIGHT = 208, BOX = 32, NORM = 20; // as on map.svg, whose boxes are 148 wide
const box = (x, y, height = BOX) => [x, y, 148, height];
const plus = (x, y) => [x + 62, y - 12, 24, 24];

// A stop that is `more` is left out by the short ride: norms, sums, and what is the same again.
function stops(strips, { english, next: steps, inside }) {
  const list = [], go = (place, title, words, shows) => list.push({ place, title, words, ...shows });
  const of = (side, name) => strips[`${side} ${name}`], more = true;

  function enter(side, x, who, rows) {
    const start = of(side, "embedding"), layer = `${side === "encoder" ? "Encoder" : "Decoder"}, layer 1`;
    let entered = start;
    const part = (name, title, y, words, sum, why, heads) => {
      go(box(x, y + 40, NORM), `${layer}: norm`, "A copy of each row, rescaled to mean 0 and standard deviation 1; then " +
        "each channel times a learned number, plus another.", { strip: normed(entered, of(side, `${name}_norm`)), rows, more });
      go(box(x, y), `${layer}: ${title}`, words, { ...(heads ?? { strip: of(side, name) }), rows });
      entered = add(entered, of(side, name));
      go(plus(x, sum), `${layer}: plus`, why, { strip: entered, rows, more });
    };
    go(box(x, 514), `${who}: embedding`, "Each token becomes a row of 128 learned numbers.",
      { strip: start, rows, more });
    entered = add(start, start.map((_, i) => positionRow(i, start[0].length)));
    go(box(x, 470), `${who}: + positions`, "Added: a pattern of waves that says where the token stands.",
      { strip: entered, rows, more });
    return part;
  }

  const en = { side: "encoder" }, { layer, head, ask } = inside;
  go(box(LEFT, 558), "English tokens", "The sentence is cut into tokens. Each has a number.", { ids: true, ...en });
  const encode = enter("encoder", LEFT, "English", en);
  encode("self_attention", "self-attention", 376, "Each word looks at all words, and takes something from each. The " +
    "thicker the line, the more it takes.", 360, "What attention has found is added to the rows.",
    { heads: "encoder 1", head: 1, ask });
  encode("feed_forward", "feed-forward", 274, "A small network works on each word by itself.", 258,
    "Its remark is added, too. This leaves layer 1.");
  for (const at of [2, 3, 4]) {
    go(box(LEFT, 376), `Encoder, layer ${at}: self-attention`, "The same again, with other numbers. A head is one way of " +
      "looking; the squares below are this layer’s four, and “mean”, their average. Choose one.",
      { heads: `encoder ${at}`, head: at === layer ? head : 0, ask, rows: en, more: at !== layer });
    if (at !== layer) continue;
    go(box(LEFT, 56), "Inside an attention", `In the same head, “${english[ask]}” asks. The percentages ` +
      "say how much it takes from each word. The softmax makes them of the scores: its query times a word’s key, " +
      "divided by √32. Below, “Stop 4” says more.",
      { inside, rows: en });
    go(box(LEFT, 56), "Inside an attention: the mix", "Each word hands over 32 numbers, its value. A strip below is a " +
      "value times the word’s share; the last one is their sum. ", { mix: inside, rows: en });
  }
  go(box(LEFT, 156, 62), "Memory", "After four layers (N is four here) and a last norm, each row knows of the whole sentence.",
    { strip: of("encoder", "norm"), rows: en });

  const first = { side: "decoder", count: 1 };
  go(box(RIGHT, 558), "German so far", "The decoder begins with one token: beginning of sentence.",
    { ids: true, ...first });
  const decode = enter("decoder", RIGHT, "German", first);
  decode("self_attention", "masked self-attention", 376, "A word looks at itself and at those before it. There are none " +
    "yet.", 360, "Added to the row.", { heads: "decoder 2", head: 0, ask: 0, more });
  decode("cross_attention", "cross-attention", 274, "To choose a first word, the decoder looks at the memory. Only here " +
    "does English come in. Below, “Stop 7” says more.", 258, "Added to the row.", { heads: "cross-attention 1", head: 0, ask: 0 });
  decode("feed_forward", "feed-forward", 172, "A small network again.", 156, "Added. This leaves layer 1.");
  steps.forEach((choices, i) => {
    const rows = { side: "decoder", count: i + 1 }, last = i ? `“${steps[i - 1][0][0]}” has gone in as well. ` : "";
    if (i) go(box(RIGHT, 376), "Decoder, layer 2: masked self-attention", last + "A word looks at itself and at " +
      "those before it: no line leads down.", { heads: "decoder 2", head: 0, ask: i, rows, more: i !== 6 });
    go(box(RIGHT, 274), "Decoder, layer 4: cross-attention", last + "In the last layer, the decoder looks at the " +
      "English words once more, to choose the next word.", { heads: "cross-attention 4", head: 3, ask: i, rows,
      more: i > 1 && i !== 6 });
    if (!i) go(box(RIGHT, 96, NORM), "The last norm", "This row is compared with the rows of all 10,000 tokens.",
      { strip: of("decoder", "norm"), rows, more });
    go(box(RIGHT, 54), "Next-word scores", `The most probable next token is “${choices[0][0]}”.`,
      { choices, ...rows, more: i > 0 });
    go(box(RIGHT, 12), "Search", i === steps.length - 1 ? "The end of the sentence."
      : `“${choices[0][0]}” is written, and goes in below.`, { choices, ...rows, count: i + 2 });
  });
  go(box(LEFT, 12), "Training", "All learned numbers were random at first; training has set them.",
    { link: make("a", { href: "index.html#index-learn" }, "Watch a translator learn."), side: "encoder" });
  return list;
}

// The box, with the number at its right edge.
function light(halo, [x, y, width, height]) {
  for (const [name, part, whole] of [["left", x, 392], ["top", y, 596], ["width", width > 24 ? 159 : width, 392], ["height", height, 596]])
    halo.style[name] = `${100 * part / whole}%`;
  halo.classList.toggle("decoder", x + width / 2 > 196);
}

// --- The panel ----------------------------------------------------------------------------------------------------

class Ride {
  constructor(panel, figure, data) {
    this.words = { encoder: data.english, decoder: data.german };
    Object.assign(this, { ids: data.ids, looks: data.looks });
    data.inside.values = unpacked(data.inside.values);
    const strips = Object.fromEntries(Object.entries(data.strips).map(([name, strip]) => [name, unpacked(strip)]));
    this.stops = stops(strips, data);
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.halo = make("span", { class: "ride-halo" });
    this.plan = make("div", { class: "ride-plan", click: (event) => this.pointed(event),
      pointermove: (event) => { this.plan.style.cursor = this.under(event).length ? "" : "default"; } });
    this.map = make("div", { class: "ride-map" }, this.plan);
    this.title = make("p", { class: "ride-title" });
    this.said = make("p", {});
    this.body = make("div", { class: "ride-body" });
    this.number = make("p", { class: "ride-number" });
    this.german = make("p", { class: "ride-german" });
    this.says = make("p", { class: "visually-hidden", role: "status", "aria-live": "polite" });
    this.play = make("button", { type: "button", class: "ride-play", click: () => this.run(!this.timer) });
    this.slider = make("input", { type: "range", min: 0, max: this.stops.length - 1, step: 1, value: 0,
      "aria-label": "Stop of the ride", input: () => { this.run(false); this.go(Number(this.slider.value)); } });
    this.every = make("input", { type: "checkbox" });
    const step = (by) => () => { this.run(false); this.go(this.from(by)); };
    this.back = make("button", { type: "button", click: step(-1) }, "◀ Back");
    this.next = make("button", { type: "button", click: step(1) }, "Next ▶");
    const controls = make("div", { class: "ride-controls" }, this.play, this.back, this.next,
      make("label", {}, this.every, "every box"), this.slider);
    panel.append(this.map, make("div", { class: "ride-side" }, controls, this.title, this.said, this.german,
      this.says, this.body, this.number));
    const picture = figure.querySelector("img");
    picture.closest("a, picture")?.replaceWith(picture);
    figure.prepend(panel);
    this.plan.append(picture, this.halo);
    panel.hidden = false;
    this.follow(picture);
    this.run(false);
    this.go(0);
  }

  // Beside the contents, a small map shows where the page's stop is.
  follow(picture) {
    const side = document.querySelector(".bd-sidebar-secondary");
    if (!side) return;
    const small = make("div", { class: "ride-plan ride-small", "aria-hidden": true,
      click: () => { this.go(at); this.map.scrollIntoView({ block: "center" }); } }, picture.cloneNode(),
      make("span", { class: "ride-halo" }));
    const titles = ["English t", "English: e", "English: +", "Inside", "Encoder, layer 1: s", "Encoder, layer 1: f",
      "Next-word", "Decoder, layer 4", "Search"];
    let at = 0;
    const seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const title = titles[/^Stop (\d)/.exec(target.innerText)?.[1] - 1];
        if (isIntersecting) small.hidden = !title;
        if (!isIntersecting || !title) continue;
        at = this.stops.findIndex((stop) => stop.title.startsWith(title));
        light(small.lastChild, this.stops[at].place);
      }
    }, { rootMargin: "-40% 0px -59% 0px" });
    for (const section of document.querySelectorAll(".bd-article section > section")) seen.observe(section);
    small.hidden = true;
    side.prepend(small);
  }

  run(on) { // where no motion is wanted, one steps
    clearTimeout(this.timer);
    this.play.hidden = this.still.matches;
    this.timer = on && !this.still.matches ? setTimeout(() => this.run(true), 4000) : undefined;
    if (this.timer) this.go(this.at === this.stops.length - 1 ? 0 : this.from(1));
    this.play.textContent = this.timer ? "❚❚ Pause" : "▶ Play";
  }

  from(by) { // the next stop, forwards (1) or backwards (−1)
    let at = this.at + by;
    while (this.stops[at] && !this.every.checked && this.stops[at].more) at += by;
    return at;
  }

  go(at) {
    this.at = Math.max(0, Math.min(at, this.stops.length - 1));
    const stop = this.stops[this.at];
    if (this.at === this.stops.length - 1) this.run(false);
    this.back.disabled = this.at === 0;
    this.next.disabled = this.at === this.stops.length - 1;
    this.slider.value = this.at;
    this.slider.setAttribute("aria-valuetext", `${this.at + 1} of ${this.stops.length}: ${stop.title}`);
    light(this.halo, stop.place);
    const [x, y, width, height] = stop.place, scale = this.plan.clientWidth / 392;
    const middle = (at, size) => at * scale - size / 2;
    this.map.scrollTo({ left: middle(x + width / 2, this.map.clientWidth), top: middle(y + height / 2, this.map.clientHeight),
      behavior: this.still.matches ? "auto" : "smooth" });
    this.title.textContent = stop.title;
    this.said.textContent = stop.words;
    this.number.textContent = "";
    const rows = stop.rows ?? stop, words = this.words[rows.side];
    if (stop.strip) this.strip(stop.strip.slice(0, rows.count), words);
    else if (stop.mix) this.mix(stop.mix);
    else if (stop.heads) {
      const box = make("div", { class: "heads", role: "group", "aria-label": "Every head of this attention" });
      this.body.replaceChildren(box);
      new HeadExplorer.Explorer(box, { views: [this.attention(stop)], at: { head: stop.head, query: stop.ask }, row: 26 });
    } else this.body.replaceChildren(stop.choices ? this.bars(stop.choices, { lang: "de" })
      : stop.inside ? this.scored(stop.inside) : stop.link ?? this.tokens(stop));
    if (stop.ids && !this.at) this.number.textContent = "“Next” stops where there is most to see. Or touch a box of the map.";
    this.german.hidden = !rows.count;
    this.german.replaceChildren("German so far: ", make("b", { lang: "de" }, words.slice(1, rows.count).join(" ") || "…"));
    this.say(`${stop.title}. ${this.said.textContent}`);
  }

  say(words) {
    clearTimeout(this.saying);
    this.saying = setTimeout(() => { this.says.textContent = words; }, 250);
  }

  // The stops of the box under the pointer.
  under({ clientX, clientY }) {
    const { left, top, width, height } = this.plan.getBoundingClientRect();
    const [x, y] = [(clientX - left) / width * 392, (clientY - top) / height * 596];
    const here = ({ place: [a, b, w, h] }) => x >= a && x <= a + w && y >= b && y <= b + h;
    const found = [...this.stops.keys()].filter((i) => here(this.stops[i]));
    const size = (i) => this.stops[i].place[2] * this.stops[i].place[3], least = Math.min(...found.map(size));
    return found.filter((i) => size(i) === least);
  }

  // A click leads to the box's first stop, or to the next one if the ride is there.
  pointed(event) {
    const same = this.under(event);
    if (!same.length) return;
    this.run(false);
    this.go(same.find((i) => i > this.at) ?? same[0]);
  }

  tokens({ side, count }) {
    const items = this.words[side].slice(0, count).map((word, i) =>
      make("li", {}, make("span", {}, word), make("small", {}, this.ids[side][i])));
    return make("ol", { class: `ride-tokens ${side}` }, ...items);
  }

  bars(choices, language) {
    return make("ol", { class: "ride-bars" }, ...choices.map(([word, share, score]) => {
      const item = make("li", {}, make("span", language, word), make("i", {}),
        make("small", {}, score === undefined ? percent(share) : `${written(score)} → ${percent(share)}`));
      item.style.setProperty("--share", share);
      return item;
    }));
  }

  shares({ layer, head, ask }) {
    const { weights, keys: { length } } = this.attention({ heads: `encoder ${layer}`, rows: {} });
    return weights.slice((head * length + ask) * length, (head * length + ask + 1) * length);
  }

  scored(inside) {
    const shares = this.shares(inside);
    return this.bars(this.words.encoder.map((word, j) => [word, shares[j], inside.scores[j]]));
  }

  // Values times their shares, and the sum.
  mix(inside) {
    const words = this.words.encoder, shares = this.shares(inside), { values, ask } = inside;
    const parts = values.map((row, i) => row.map((value) => shares[i] * value));
    const sum = parts.reduce((a, b) => a.map((value, j) => value + b[j]));
    const most = [...words.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, 3);
    this.said.append(make("b", {}, `What “${words[ask]}” receives = ` +
      most.map((i) => `${written(shares[i])}\u00a0·\u00a0value(${words[i]}) + `).join("") + "…"));
    this.strip([...parts, sum], [...words.map((word, i) => `${written(shares[i])} · ${word}`), "sum"], (i, j) => i < words.length
      ? `${words[i]}, channel ${j}: ${written(shares[i])} · ${written(values[i][j])} = ${written(parts[i][j])}`
      : `Sum, channel ${j}: ${written(sum[j])}`);
    this.body.firstChild.classList.add("ride-mix");
  }

  // The words that ask, those that answer (so far), and the weights [head][asks][answers].
  attention({ heads: name, rows: { count } }) {
    const { encoder, decoder } = this.words, [view, first] = name.split(" "), all = bytes(this.looks[name], Uint8Array);
    const written = decoder.slice(0, count), chosen = [...decoder.slice(1, count), "next word"];
    const [queries, keys, width] = view === "encoder" ? [encoder, encoder, encoder.length]
      : view === "decoder" ? [written, written, decoder.length - 1] : [chosen, encoder, encoder.length];
    const size = all.length / HEADS, length = HEADS * queries.length * keys.length;
    const weights = Float32Array.from({ length }, (_, i) => {
      const j = i % keys.length, row = (i - j) / keys.length, head = Math.floor(row / queries.length);
      return all[head * size + (row % queries.length) * width + j] / 255;
    });
    return { name: view, queries, keys, heads: HEADS, first: Number(first), weights };
  }

  // Rows of numbers as shades; the pointer or the arrow keys read one.
  strip(rows, words, told = (row, column) => `${words[row]}, channel ${column}: ${written(rows[row][column])}`) {
    const width = rows[0].length, canvas = make("canvas", { width, height: rows.length });
    const ink = canvas.getContext("2d"), image = ink.createImageData(width, rows.length);
    const sizes = rows.flatMap((row) => Array.from(row, Math.abs)).sort((a, b) => a - b);
    const deep = sizes[Math.floor(0.97 * sizes.length)];
    rows.forEach((row, i) => row.forEach((value, j) => {
      const colour = value < 0 ? [194, 59, 78] : [0, 114, 178];
      image.data.set([...colour, 255 * Math.min(1, Math.abs(value) / deep)], 4 * (i * width + j));
    }));
    ink.putImageData(image, 0, 0);
    const mark = make("span", { class: "ride-mark", hidden: true });
    let place = [0, 0];
    const read = (row, column) => {
      place = [Math.max(0, Math.min(row, rows.length - 1)), Math.max(0, Math.min(column, width - 1))];
      mark.hidden = false;
      Object.assign(mark.style, { left: `${100 * place[1] / width}%`, top: `${100 * place[0] / rows.length}%`,
        width: `${100 / width}%`, height: `${100 / rows.length}%` });
      this.number.textContent = told(...place);
    };
    const at = ({ clientX, clientY }) => {
      const { left, top, right, bottom } = canvas.getBoundingClientRect();
      const [down, across] = [(clientY - top) / (bottom - top), (clientX - left) / (right - left)];
      read(Math.floor(down * rows.length), Math.floor(across * width));
    };
    const keyed = (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!step) return;
      event.preventDefault();
      read(place[0] + step[0], place[1] + step[1]);
      this.say(this.number.textContent);
    };
    const field = make("div", { class: "ride-field", tabindex: 0, role: "application", pointerdown: at, pointermove: at,
      keydown: keyed, "aria-label": `Numbers of ${rows.length} rows, ${width} in each; arrow keys read them` },
      canvas, mark);
    const labels = words.slice(0, rows.length).map((word) => make("span", {}, word));
    const names = make("div", { class: "ride-rows", "aria-hidden": "true" }, ...labels);
    this.body.replaceChildren(make("div", { class: "ride-strip" }, names, field));
    this.number.textContent = `Red is below zero, blue above; full colour: ${written(deep)} or more. Touch a number.`;
  }
}

for (const panel of document.querySelectorAll(".ride[hidden]")) {
  const data = JSON.parse(panel.querySelector('script[type="application/json"]').textContent);
  panel.ride = new Ride(panel, document.getElementById("fig-tour-map"), data);
}
})();
