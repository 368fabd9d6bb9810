// The head explorer: every head of an attention as a small picture, one of them large, as lines between two columns of
// words. <div class="heads"> holds its numbers as JSON, and a table that stands there as long as no script runs;
// translator_ui.js hands them over as arrays. No script is needed beside this one: a notebook carries it in an output.
globalThis.HeadExplorer ??= (function () {
"use strict";

const ROW = matchMedia("(pointer: coarse)").matches ? 36 : 26; // height of a line of words: pixels
const WIDE = 200; // of the lines between the columns
const LEAST = 0.02; // thinner lines are left out

const SVG = Object.assign(document.createElement("div"), { innerHTML: "<svg></svg>" }).firstChild.namespaceURI;
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path"].includes(tag);
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

// One of several things to choose, with the keys of radio buttons: one stop of the tab key, arrows within it. `columns`
// is how far the arrows up and down go.
function choice(label, items, columns, chosen) {
  const group = make("div", { role: "radiogroup", "aria-label": label }, ...items);
  const mark = (at) => items.forEach((item, i) => {
    item.setAttribute("aria-checked", i === at);
    item.tabIndex = i === at ? 0 : -1;
  });
  items.forEach((item, i) => {
    item.setAttribute("role", "radio");
    item.addEventListener("click", () => { mark(i); chosen(i); });
  });
  group.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    const at = items.findIndex((item) => item.tabIndex === 0), next = items[at + step];
    if (!step) return;
    event.preventDefault();
    if (next && !next.disabled) { next.focus(); next.click(); }
  });
  return { group, mark };
}

// A view: { name, queries, keys, heads, weights }, with weights [layer][head][query][key] in one row of numbers from 0
// to 1, or as bytes in base64; `first` is the number of its first layer, if that is not 1.
function unpacked(view) {
  if (typeof view.weights !== "string") return view;
  return { ...view, weights: Float32Array.from(atob(view.weights), (letter) => letter.charCodeAt(0) / 255) };
}

class Explorer {
  // `without`: { view's name: { "layer.head", "layer" or "all": what the German becomes without it, if it changes } },
  // and `german`, with all heads. Or `toggle`, called when `off`, a set of "name.layer.head", has changed, with the
  // `data-key` of the button; then `german` is what is said now, and `trained` what was said with all heads.
  constructor(box, { views, without, german, trained = german, toggle, off, at = {}, row = ROW }) {
    Object.assign(this, { box, without, german, trained, toggle, off: off ?? new Set(), row });
    box.style.setProperty("--row", `${row}px`);
    this.views = views.map(unpacked);
    this.at = { view: 0, layer: 0, head: 0, query: 0, ...at }; // a head's number after the last is the mean
    this.says = make("p", { class: "heads-says", role: "status", "aria-live": "polite" });
    this.tabs = make("div", { class: "heads-views" });
    this.body = make("div", { class: "heads-body" });
    box.replaceChildren(this.tabs, this.body, this.says);
    const names = this.views.map((view) => make("button", { type: "button" }, view.name));
    const tabs = choice("Which attention", names, 1, (view) => { this.at.view = view; this.show(); });
    tabs.mark(this.at.view);
    if (names.length > 1) this.tabs.append(tabs.group);
    this.show();
  }

  get view() { return this.views[this.at.view]; }

  number(layer) { return layer + (this.view.first ?? 1); }

  // The weights of a head, [query][key] in one row; or the mean of a layer's heads.
  matrix(layer, head) {
    const { weights, heads, queries, keys } = this.view, size = queries.length * keys.length;
    const part = (h) => weights.subarray((layer * heads + h) * size, (layer * heads + h + 1) * size);
    if (head < heads) return part(head);
    return part(0).map((_, i) => Array.from({ length: heads }, (_, h) => part(h)[i]).reduce((a, b) => a + b) / heads);
  }

  key(layer = this.at.layer, head = this.at.head) { return `${this.view.name}.${layer}.${head}`; }

  show() {
    const { queries, keys, heads, weights } = this.view;
    this.layers = weights.length / (heads * queries.length * keys.length);
    this.at.query = Math.min(this.at.query, queries.length - 1);
    this.body.replaceChildren(this.thumbnails(), this.large());
    this.look();
  }

  thumbnails() {
    const { queries, keys, heads } = this.view, items = [];
    for (let layer = this.layers - 1; layer >= 0; layer--) { // data flows up
      for (let head = 0; head <= heads; head++) {
        const canvas = make("canvas", { width: keys.length, height: queries.length });
        const ink = canvas.getContext("2d"), image = ink.createImageData(keys.length, queries.length);
        this.matrix(layer, head).forEach((weight, i) => image.data.set([181, 80, 156, 255 * weight ** 0.7], 4 * i));
        ink.putImageData(image, 0, 0);
        const name = head < heads ? `${this.number(layer)}.${head + 1}` : "mean";
        const label = head < heads ? `head ${name}` : `mean of layer ${this.number(layer)}`;
        const item = make("button", { type: "button", class: head < heads ? "" : "heads-mean", "aria-label": label },
          canvas, make("span", { "aria-hidden": "true" }, name));
        item.classList.toggle("off", this.off.has(this.key(layer, head)));
        item.place = [layer, head];
        items.push(item);
      }
    }
    this.items = items;
    const grid = choice("Heads", items, heads + 1, (i) => {
      [this.at.layer, this.at.head] = items[i].place;
      this.body.lastChild.replaceWith(this.large());
      this.look();
    });
    grid.mark(items.findIndex(({ place }) => place[0] === this.at.layer && place[1] === this.at.head));
    grid.group.style.gridTemplateColumns = `repeat(${heads + 1}, 1fr)`;
    grid.group.className = "heads-grid";
    return make("div", { class: "heads-left" }, make("p", { class: "heads-note" }, "Each small square is a head: " +
      "a row for each word that looks, a column for each word it looks at."), grid.group);
  }

  large() {
    const { queries, keys, heads } = this.view, { layer, head } = this.at;
    const numbers = this.matrix(layer, head), height = this.row * Math.max(queries.length, keys.length);
    const place = (i, all) => height / 2 + this.row * (i + 0.5 - all.length / 2);
    this.lines = queries.map((_, i) => keys.flatMap((_, j) => {
      const weight = numbers[i * keys.length + j], [y, z] = [place(i, queries), place(j, keys)];
      if (weight < LEAST) return [];
      return [make("path", { d: `M0,${y} C${WIDE / 2},${y} ${WIDE / 2},${z} ${WIDE},${z}`, "stroke-width": 12 * weight })];
    }));
    const drawing = make("svg", { viewBox: `0 0 ${WIDE} ${height}`, height, preserveAspectRatio: "none",
      "aria-hidden": "true" }, ...this.lines.flat());
    const asks = queries.map((word, i) => make("button", { type: "button", lang: this.view.asks,
      pointerenter: (event) => event.pointerType === "mouse" && this.look(i),
      pointerleave: () => this.look() }, word));
    this.words = choice("Words that ask", asks, 1, (i) => { this.at.query = i; this.look(); });
    this.words.mark(this.at.query);
    this.words.group.className = "heads-asks";
    this.asks = asks;
    this.answers = keys.map((word) => make("li", { lang: this.view.answers }, make("span", {}, word), make("b", {})));
    const title = head < heads ? `Layer ${this.number(layer)}, head ${head + 1}` : `Layer ${this.number(layer)}, the mean of its heads`;
    return make("div", { class: "heads-right" }, make("p", { class: "heads-title" }, title), make("div",
      { class: "heads-columns" }, this.words.group, drawing, make("ul", {}, ...this.answers)), ...this.switches());
  }

  // What can be switched off: a head, its layer, all. Stored results are of one of these at a time.
  switches() {
    if (!this.toggle && !this.without) return [];
    const { layer, head } = this.at, { heads, name } = this.view, layers = [...Array(this.layers).keys()];
    const whole = (layer) => Array.from({ length: heads }, (_, head) => this.key(layer, head));
    const scopes = [
      { label: `layer ${this.number(layer)}`, scope: `${layer}`, keys: whole(layer) },
      { label: `all ${heads * this.layers}`, scope: "all", keys: layers.flatMap(whole) },
    ];
    if (head < heads)
      scopes.unshift({ label: `head ${this.number(layer)}.${head + 1}`, scope: `${layer}.${head}`, keys: [this.key()] });
    const pressed = ({ scope, keys }) => this.toggle ? keys.every((key) => this.off.has(key))
      : this.gone?.name === name && this.gone.scope === scope;
    const result = make("p", { class: "heads-result" });
    const buttons = scopes.map((each) => make("button", { type: "button", "data-key": `off-${each.scope}`,
      "aria-label": `Switch off ${each.label}`, click: () => {
      const off = !pressed(each);
      if (!this.toggle) this.off.clear();
      for (const key of each.keys) this.off[off ? "add" : "delete"](key);
      this.gone = off ? { ...each, name } : undefined;
      if (this.toggle) return this.toggle(`off-${each.scope}`);
      mark();
      this.say(off ? result.textContent : `All heads are on: ${this.german}`);
    } }, each.label));
    const mark = () => {
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", pressed(scopes[i])));
      this.items.forEach((item) => item.classList.toggle("off", this.off.has(this.key(...item.place))));
      const gone = this.toggle ? undefined : this.gone;
      const now = gone ? this.without[gone.name][gone.scope] ?? this.german : this.german;
      const kind = now === this.trained ? "" : "changed", same = kind ? "" : ", no change";
      result.replaceChildren(gone ? `Without ${gone.label} of the ${gone.name}${same}: ` : "German: ",
        make("span", { lang: "de", class: kind }, now));
    };
    mark();
    return [make("div", { class: "heads-switches" }, "Switch off ", ...buttons), result];
  }

  say(words) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.says.textContent = words; }, this.says.textContent ? 250 : 0);
  }

  // Choose a word of a view, if it is the one that is shown.
  ask(query, name) {
    if (this.view.name !== name) return;
    this.at.query = query;
    this.words.mark(query);
    this.look();
  }

  // Show what one word looks at: the chosen one, or that under the pointer.
  look(query = this.at.query) {
    const { queries, keys } = this.view, numbers = this.matrix(this.at.layer, this.at.head);
    const row = Array.from(numbers.subarray(query * keys.length, (query + 1) * keys.length));
    this.lines.forEach((lines, i) => lines.forEach((line) => line.classList.toggle("faint", i !== query)));
    this.asks.forEach((word, i) => word.classList.toggle("seen", i === query));
    this.answers.forEach((item, j) => {
      item.style.setProperty("--share", row[j]);
      item.lastChild.textContent = row[j] < LEAST ? "" : percent(row[j]);
    });
    const most = row.map((share, j) => [share, keys[j]]).sort((a, b) => b[0] - a[0]).slice(0, 3)
      .filter(([share]) => share >= 0.1);
    this.say(`“${queries[query]}” looks at ` +
      (most.map(([share, word]) => `“${word}” ${percent(share)}`).join(", ") || "all words a little") + ".");
  }
}

function start() {
  for (const data of document.querySelectorAll('.heads > script[type="application/json"]'))
    data.parentElement.explorer = new Explorer(data.parentElement, JSON.parse(data.textContent));
}
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
return { Explorer, start };
})();
if (document.readyState !== "loading") globalThis.HeadExplorer.start();
