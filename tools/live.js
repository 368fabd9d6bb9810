// Answers requests with the translator of the page, for tests and measurements: one JSON a line in, one a line out.
// node tools/live.js WEIGHTS < requests; WEIGHTS is the path of what tools/live.py wrote.
"use strict";
const path = require("path");
const readline = require("readline");
require(path.join(__dirname, "..", "book", "_static", "translator.js"));
require(path.resolve(process.argv[2]));
globalThis.document = { currentScript: { src: "file:///" }, querySelectorAll: () => [] }; // a page without a translator
require(path.join(__dirname, "..", "book", "_static", "translator_ui.js"));
const { Translator, Model, BOS } = globalThis.TestedTransformer;
const translator = new Translator(globalThis.TRANSLATOR_FILE);

const plain = (rows) => rows.map((row) => row.map((weights) => Array.from(weights)));

const ANSWERS = {
  offered: () => globalThis.LiveTranslator, // what a reader can break, and where it shows
  encode: ({ text }) => translator.source(text),
  decode: ({ tokens }) => translator.tokenizer.decode(tokens),
  translate({ text, options }) {
    const start = process.cpuUsage();
    const translation = translator.translate(text, options);
    return { translation, milliseconds: process.cpuUsage(start).user / 1000 };
  },
  search({ text, options }) { // the hypotheses after each token
    return Array.from(translator.search(text, options), (hypotheses) =>
      hypotheses.map(({ tokens, score, finished }) => ({ tokens, score, finished: Boolean(finished) })));
  },
  // Logits, as float32 in base64, and cross-attention weights at each token of a given translation.
  follow({ text, tokens, settings }) {
    const model = new Model(translator.file, settings), memory = model.encode(translator.source(text));
    const logits = [], weights = [], own = [], cache = model.emptyCache();
    for (const [at, token] of [BOS, ...tokens].entries()) {
      const step = model.settings.causal ? model.decode([token], memory, cache)
        : model.decode([BOS, ...tokens].slice(0, at + 1), memory, model.emptyCache());
      logits.push(Buffer.from(step.logits.buffer).toString("base64"));
      weights.push(plain(step.looked));
      own.push(plain(step.own));
    }
    return { logits, weights, own, read: memory.looked.map(plain) };
  },
};

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line);
  console.log(JSON.stringify(ANSWERS[request.what](request)));
});
