// The controls around translator.js. Nothing is loaded before the reader asks for it; what the reader types is only
// ever shown as text.
(function () {
"use strict";

const STATIC = new URL(".", document.currentScript.src); // scripts may be loaded from a file, modules and data may not
const LONGEST = 60; // tokens, which take some seconds; the longest caption of the test set has 34
// Below this score the model guesses. 61 of the 1,000 test captions are, with a BLEU of 15 where the others have 43, and
// 46 of 49 sentences that are no captions: records/live_scores.py.
const GUESSING = -0.6;
const GUITAR = "A man plays the guitar on the street.";
// What a reader can break, a sentence in which it shows, and what one sees there.
const INTACT = { name: "nothing", settings: {} };
const MISTAKES = [
  { name: "scores not divided by √dₖ", settings: { scale: false },
    example: "A girl in a red dress throws a yellow ball to a boy in a green shirt.",
    shows: "Each head sees hardly more than one token, and the model loses its place: the same word comes again and again." },
  { name: "no positions", settings: { positions: false }, example: "A white dog is chasing a black dog.",
    shows: "The encoder sees the words without their order, and cannot say who chases whom: the dogs change places." },
  { name: "no causal mask", settings: { causal: false }, example: "A brown dog bites a white dog.",
    shows: "The second dog is lost. But most sentences stay as they are: when the model chooses a token, none comes " +
      "after it yet. In training, all of them do; there this mistake ruins everything." },
  { name: "padded by 20 tokens, and the source mask forgotten", settings: { padding: 20, sourceMask: false },
    example: GUITAR, shows: "The padding is translated as well." },
];
const EXAMPLES = [GUITAR, ...MISTAKES.map((mistake) => mistake.example).filter((text) => text !== GUITAR)];
const SHOWN = { layer: 3, head: 3 }; // the head that marks the source tokens

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function percent(share) {
  if (share < 0.001) return "< 0.1 %";
  return `${share < 0.1 ? (100 * share).toFixed(1) : Math.round(100 * share)} %`;
}

// The model's name for a head of the explorer: "encoder.0.1" is "encoder.layers.0.self_attention.1".
function nameOf(key) {
  const [view, layer, head] = key.split(".");
  const [side, part] = view === "cross-attention" ? ["decoder", "cross_attention"] : [view, "self_attention"];
  return `${side}.layers.${layer}.${part}.${head}`;
}

// The weights here have 8 bits, which changes the third decimal: two are the same with all bits, as on the tour.
const signed = (score) => score.toFixed(2).replace("-", "−");
const pause = () => new Promise((resolve) => setTimeout(resolve, 40));

function load(name) {
  return new Promise((resolve, reject) => {
    const script = make("script", { src: new URL(name, STATIC).href });
    script.onload = resolve;
    script.onerror = () => reject(new Error(`${name} is not there: \`make render\` puts it beside this page.`));
    document.head.append(script);
  });
}

class Live {
  constructor(section) {
    this.section = section;
    this.status = make("p", { className: "live-status", role: "status" });
    this.start = make("button", { type: "button" }, "Load the translator (3.8 MB) and try it");
    this.start.addEventListener("click", () => this.open());
    section.append(this.start, this.status);
  }

  async open() {
    this.start.disabled = true;
    this.status.textContent = "Loading the weights …";
    try {
      if (!globalThis.TestedTransformer) await load("translator.js");
      if (!globalThis.TRANSLATOR_FILE) await load("translator_weights.js");
      if (!globalThis.HeadExplorer) await load("heads.js");
      await pause();
      this.translator = new globalThis.TestedTransformer.Translator(globalThis.TRANSLATOR_FILE);
    } catch (error) {
      this.start.disabled = false;
      this.status.textContent = error.message;
      return;
    }
    this.build();
    this.submit.focus(); // the button that had it is gone; in a text field, a phone would show its keyboard
    this.run();
  }

  // --- The controls ---

  build() {
    this.input = make("input", { type: "text", value: GUITAR, lang: "en", spellcheck: false, autocomplete: "off" });
    this.stop = make("button", { type: "button", hidden: true }, "Stop");
    this.stop.addEventListener("click", () => this.finish("Stopped."));
    this.submit = make("button", { type: "submit" }, "Translate");
    const form = make("form", { className: "live-form" }, make("label", {}, "An English sentence", this.input),
      this.submit, this.stop);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.run();
    });
    const examples = EXAMPLES.map((text) => this.example(text));
    this.off = new Set();
    this.mistake = INTACT;
    this.guess = make("p", { className: "live-guess", hidden: true }, "The model is guessing: this is no photo caption, " +
      "or an unusual one. It knows captions only, and the score below says how unsure it is (",
      make("a", { href: new URL("../book/17a_luck.html", STATIC).href }, "what such numbers are worth"), ").");
    this.output = make("div", { className: "live-output", hidden: true });
    this.trained = new Map(); // text → its translation when nothing is changed
    this.section.replaceChildren(form, make("div", { className: "live-examples", role: "group",
      "aria-label": "Examples" }, ...examples), this.switches(), this.status, this.guess, this.output);
  }

  example(text, label = text) {
    const button = make("button", { type: "button", lang: "en" }, label);
    button.addEventListener("click", () => {
      this.input.value = text;
      this.run();
    });
    return button;
  }

  // A mistake comes with the sentence in which it shows, unless the reader wrote one; beside that, it is offered.
  switches() {
    const group = make("fieldset", { className: "live-broken" }, make("legend", {}, "Break one thing"));
    for (const mistake of [INTACT, ...MISTAKES]) {
      const radio = make("input", { type: "radio", name: "live-broken", checked: mistake === INTACT });
      radio.addEventListener("change", () => {
        this.mistake = mistake;
        if (mistake.example && EXAMPLES.includes(this.input.value)) this.input.value = mistake.example;
        this.run();
      });
      group.append(make("label", {}, radio, mistake.name));
    }
    return make("div", {}, group, (this.shows = make("p", { className: "live-note" })));
  }

  // What one sees of the chosen mistake, beside the sentence in which one sees it.
  explain(text, same) {
    const { example, shows } = this.mistake;
    const here = same ? "It does not show in this sentence. " : "It shows in this sentence, too. ";
    this.shows.replaceChildren(...(text === example ? [shows] :
      example ? [here, this.example(example, `Try “${example}”`)] : []));
  }

  // --- One translation ---

  async run(force = []) {
    const text = this.input.value, run = (this.current = {});
    this.stop.hidden = true;
    if (!/\P{White_Space}/u.test(text)) return this.refuse("Please type a sentence.");
    this.source = this.translator.source(text);
    if (this.source.length > LONGEST) {
      return this.refuse(`Please write a shorter sentence: this one has ${this.source.length} tokens, ` +
        `and the page takes at most ${LONGEST}; a caption has about 15.`);
    }
    const settings = { ...this.mistake.settings, off: [...this.off].map(nameOf) };
    const changed = this.mistake !== INTACT || this.off.size > 0 || force.length > 0;
    this.guess.hidden = true;
    this.stop.hidden = false;
    this.status.textContent = "Translating …";
    if (changed && !this.trained.has(text)) {
      let best;
      for ([best] of this.translator.search(text)) {
        await pause();
        if (run !== this.current) return;
      }
      this.trained.set(text, this.translator.text(best.tokens));
    }
    this.from = this.source.map((token) => this.piece(token)).concat(Array(settings.padding ?? 0).fill("pad"));
    for (this.hypotheses of this.translator.search(text, { settings, force })) {
      this.showProgress();
      await pause();
      if (run !== this.current) return;
    }
    const translation = this.translator.text(this.hypotheses[0].tokens);
    if (!changed) this.trained.set(text, translation);
    this.chosen = 0;
    this.at = Math.min(force.length ? force.length - 1 : 0, this.hypotheses[0].tokens.length - 1);
    this.reference = changed ? this.trained.get(text) : null;
    this.guess.hidden = changed || (this.hypotheses[0].score > GUESSING && this.hypotheses[0].finished);
    this.show();
    const same = changed && translation === this.reference;
    this.explain(text, same);
    this.finish(`${changed ? (same ? "Changed, with the same result" : "Changed") : "Translated"}: ${translation}`);
  }

  refuse(message) {
    this.output.hidden = this.guess.hidden = true; // they are those of another sentence
    this.finish(message);
  }

  finish(message) {
    this.current = null;
    this.output.removeAttribute("aria-busy");
    this.stop.hidden = true;
    this.status.textContent = message;
  }

  piece(token) {
    if (token === globalThis.TestedTransformer.EOS) return "end";
    return this.translator.tokenizer.decode([token]).trim() || "␣";
  }

  // A token that goes on with the word before it stands close to it.
  joined(tokens, i) {
    if (i === 0 || tokens[i] === globalThis.TestedTransformer.EOS) return false;
    return !/^\s/.test(this.translator.tokenizer.decode([tokens[i]]));
  }

  // The translation, and dots if it is not finished.
  written(hypothesis) {
    const text = this.translator.text(hypothesis.tokens) || (hypothesis.finished ? "(an empty sentence)" : "");
    return make("span", { lang: "de" }, ` ${text}${hypothesis.finished ? "" : " …"}`);
  }

  // The name of a token that might stand here: a piece that would go on with a word is told from a new word.
  choice(token) {
    const text = this.translator.tokenizer.decode([token]);
    return (this.at > 0 && /^[\p{L}\p{N}]/u.test(text) ? "…" : "") + this.piece(token);
  }

  // --- What is shown ---

  showProgress() {
    const [best] = this.hypotheses;
    const words = best.tokens.map((token, i) =>
      make("span", { className: this.joined(best.tokens, i) ? "live-token joined" : "live-token" }, this.piece(token)));
    const hypotheses = this.hypotheses.map((hypothesis) =>
      make("li", {}, make("span", { className: "live-score" }, signed(hypothesis.score)), this.written(hypothesis)));
    const progress = make("div", { className: "live-progress" },
      make("p", { className: "live-label" }, `German: token ${best.tokens.length}`),
      make("div", { className: "live-tokens live-target", lang: "de" }, ...words),
      make("p", { className: "live-label" }, "The best beginnings so far"),
      make("ol", { className: "live-hypotheses" }, ...hypotheses));
    this.output.hidden = false;
    this.output.setAttribute("aria-busy", "true");
    const parts = this.output.querySelector(".live-parts");
    if (parts) parts.hidden = true;
    this.output.querySelector(".live-progress")?.remove();
    this.output.prepend(progress);
  }

  show() {
    const focused = document.activeElement; // what had the focus is made anew, and gets it again
    const key = this.output.contains(focused) || focused === document.body ? this.key : null;
    const reference = make("p", {}, "Without your change: ", make("span", { lang: "de" }, this.reference ?? ""));
    const parts = make("div", { className: "live-parts" }, ...(this.reference === null ? [] : [reference]),
      ...this.sourceTokens(), this.targetTokens(), this.choices(), ...this.heads(), this.list());
    this.output.replaceChildren(parts);
    this.look(this.at);
    if (key) this.output.querySelector(`[data-key="${key}"]`)?.focus();
    this.key = null;
  }

  sourceTokens() {
    this.sources = this.from.map((piece, i) =>
      make("li", { className: this.joined(this.source, i) ? "live-token joined" : "live-token" }, piece));
    return [make("p", { className: "live-label" }, "English"),
      make("ol", { className: "live-tokens live-source", lang: "en" }, ...this.sources),
      (this.most = make("p", { className: "live-note" }))];
  }

  targetTokens() {
    const { tokens } = this.hypotheses[this.chosen];
    const group = make("fieldset", { className: "live-tokens live-target" },
      make("legend", {}, "German: choose a token to see where the model looked when it chose this token"));
    tokens.forEach((token, i) => {
      const radio = make("input", { type: "radio", name: "live-token", checked: i === this.at,
        "data-key": `token-${i}` });
      const label = make("label", { className: this.joined(tokens, i) ? "live-token joined" : "live-token" }, radio,
        make("span", { lang: token === globalThis.TestedTransformer.EOS ? "en" : "de" }, this.piece(token)));
      radio.addEventListener("change", () => {
        this.at = i;
        this.look(i);
        this.output.querySelector(".live-choices").replaceWith(this.choices());
      });
      label.addEventListener("mouseenter", () => this.look(i));
      label.addEventListener("mouseleave", () => this.look(this.at));
      group.append(label);
    });
    return group;
  }

  choices() {
    const { tokens, steps } = this.hypotheses[this.chosen];
    const group = make("div", { className: "live-choices", role: "group", "aria-label": "Other next tokens" },
      make("p", { className: "live-label" }, "The most probable tokens here: take another one, and let it go on"));
    for (const [token, logProbability] of steps[this.at].choices) {
      const button = make("button", { type: "button", lang: "de", "data-key": `token-${this.at}` },
        `${this.choice(token)} `, make("span", { className: "live-score" }, percent(Math.exp(logProbability))));
      if (token === tokens[this.at]) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => {
        this.key = button.dataset.key;
        this.run([...tokens.slice(0, this.at), token]);
      });
      group.append(button);
    }
    return group;
  }

  list() {
    const group = make("fieldset", { className: "live-hypotheses" },
      make("legend", {}, "Translations, the best one first. The number is the model's score: the nearer to 0, the surer it is."));
    this.hypotheses.forEach((hypothesis, i) => {
      const radio = make("input", { type: "radio", name: "live-hypothesis", checked: i === this.chosen,
        "data-key": `hypothesis-${i}` });
      radio.addEventListener("change", () => {
        this.chosen = i;
        this.at = Math.min(this.at, hypothesis.tokens.length - 1);
        this.key = radio.dataset.key;
        this.show();
      });
      const score = make("span", { className: "live-score" }, signed(hypothesis.score));
      group.append(make("label", {}, radio, score, this.written(hypothesis)));
    });
    return group;
  }

  // All heads of the encoder, of the decoder and of the cross-attention, which can be switched off.
  heads() {
    const { tokens, steps } = this.hypotheses[this.chosen], [{ read }] = steps;
    const german = tokens.map((token) => this.piece(token)), before = ["<bos>", ...german.slice(0, -1)];
    const view = (name, queries, keys, row) => {
      const layers = row(0).length, heads = row(0)[0].length;
      const weights = new Float32Array(layers * heads * queries.length * keys.length); // what is not seen has none
      for (let layer = 0, at = 0; layer < layers; layer++)
        for (let head = 0; head < heads; head++)
          for (let i = 0; i < queries.length; i++, at += keys.length) weights.set(row(i)[layer][head], at);
      return { name, queries, keys, heads, weights };
    };
    const views = [
      view("encoder", this.from, this.from, (i) => read.map((layer) => layer[i])),
      view("decoder", before, before, (i) => steps[i].own),
      view("cross-attention", german, this.from, (i) => steps[i].looked),
    ];
    const box = make("div", { className: "heads", role: "group", "aria-label": "Every head" });
    const toggle = (key) => {
      this.key = key;
      this.run();
    };
    this.explorer = new globalThis.HeadExplorer.Explorer(box, { views, off: this.off, toggle,
      german: this.translator.text(tokens), trained: this.reference ?? undefined,
      at: this.explorer?.at ?? { view: 2, ...SHOWN } });
    return [box];
  }

  // Mark where the model looked when it chose token number `at`.
  look(at) {
    const { looked } = this.hypotheses[this.chosen].steps[at], token = this.hypotheses[this.chosen].tokens[at];
    const best = (weights) => weights.indexOf(Math.max(...weights));
    const shown = looked[SHOWN.layer][SHOWN.head];
    this.sources.forEach((item, j) => item.style.setProperty("--share", shown[j] ?? 0));
    const who = `head ${SHOWN.head + 1} of layer ${SHOWN.layer + 1}`;
    this.most.textContent = `“${this.piece(token)}”: ${who} looked most at “${this.from[best(shown)]}” ` +
      `(${percent(shown[best(shown)])}).`;
    this.explorer?.ask(at, "cross-attention");
  }
}

globalThis.LiveTranslator = { MISTAKES, GUESSING, LONGEST };
for (const section of document.querySelectorAll(".live-translator")) new Live(section);
})();
