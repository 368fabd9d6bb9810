// The trained translator in plain JavaScript: everything between an English sentence and a German one.
// It computes what the Python library computes. A vector is a Float32Array, and a sequence is a list of vectors.
(function () {
"use strict";

const PAD = 0, BOS = 1, EOS = 2;

// --- Text to tokens and back: byte-pair encoding over bytes -----------------------------------------------------

const LINE_ENDS = /[ \t-\r\x1c-\x1e\x85\u2028\u2029]+/; // spaces of other kinds are letters, and stay
// Words, numbers and signs, each with the space before it; what is left are spaces.
const WORDS = new RegExp("'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+" +
  "|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu");

class Tokenizer {
  constructor(merges) { // pairs of pieces, the first learnt first
    let unprintable = 256; // a byte that is no visible character is written as one beyond the first 256
    const visible = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    this.letters = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(visible(byte) ? byte : unprintable++));
    this.bytes = new Map(this.letters.map((letter, byte) => [letter, byte]));
    const joined = merges.map((pair) => pair.replace(" ", ""));
    this.pieces = ["<pad>", "<bos>", "<eos>", ...[...this.letters].sort(), ...joined];
    this.ids = new Map(this.pieces.map((piece, id) => [piece, id]));
    this.ranks = new Map(merges.map((pair, rank) => [pair, rank]));
  }

  encode(text) {
    const ids = [];
    for (const [word] of text.normalize("NFC").matchAll(WORDS)) {
      const parts = Array.from(new TextEncoder().encode(word), (byte) => this.letters[byte]);
      for (;;) { // join the pair that was learnt first, until no pair was ever learnt
        const ranks = parts.slice(1).map((part, i) => this.ranks.get(`${parts[i]} ${part}`) ?? Infinity);
        const best = ranks.reduce((best, rank) => Math.min(best, rank), Infinity);
        if (best === Infinity) break;
        const at = ranks.indexOf(best);
        parts.splice(at, 2, parts[at] + parts[at + 1]);
      }
      for (const part of parts) ids.push(this.ids.get(part));
    }
    return [...ids, EOS];
  }

  decode(ids) {
    const letters = ids.filter((id) => id > EOS).map((id) => this.pieces[id]).join("");
    const bytes = Uint8Array.from(letters, (letter) => this.bytes.get(letter));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  }
}

// --- Small mathematics --------------------------------------------------------------------------------------------

// Row `row` of a matrix times x. Four sums that do not wait for each other are faster than one.
function dot(matrix, row, x) {
  let a = 0, b = 0, c = 0, d = 0;
  for (let i = 0, at = row * x.length; i < x.length; i += 4, at += 4) {
    a += matrix[at] * x[i];
    b += matrix[at + 1] * x[i + 1];
    c += matrix[at + 2] * x[i + 2];
    d += matrix[at + 3] * x[i + 3];
  }
  return a + b + c + d;
}

const add = (x, y) => x.map((row, i) => row.map((value, j) => value + y[i][j]));

function logSumExp(values) {
  const largest = values.reduce((largest, value) => Math.max(largest, value), -Infinity);
  return largest + Math.log(values.reduce((sum, value) => sum + Math.exp(value - largest), 0));
}

function bestTokens(logits, count) { // the largest first; among equals the lower token first; never padding
  const best = [];
  for (let token = PAD + 1; token < logits.length; token++) {
    if (best.length === count && !(logits[token] > logits[best[count - 1]])) continue;
    const at = best.findIndex((other) => logits[token] > logits[other]);
    best.splice(at < 0 ? best.length : at, 0, token);
    if (best.length > count) best.pop();
  }
  return best;
}

// --- The model ----------------------------------------------------------------------------------------------------

// A model that is right has these settings. `off` names heads whose output is replaced by zeros.
const RIGHT = { scale: true, positions: true, causal: true, sourceMask: true, padding: 0, off: [] };

class Model {
  constructor({ config, weights }, settings = {}) {
    Object.assign(this, config, { weights, settings: { ...RIGHT, ...settings } });
  }

  linear(name, x, first = 0, last = undefined) { // only the rows first … last - 1 of the matrix
    const matrix = this.weights[`${name}.weight`], bias = this.weights[`${name}.bias`].slice(first, last);
    return x.map((row) => bias.map((value, i) => value + dot(matrix, first + i, row)));
  }

  norm(name, x) {
    const gain = this.weights[`${name}.weight`], bias = this.weights[`${name}.bias`];
    return x.map((row) => {
      const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
      const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length;
      return row.map((value, i) => ((value - mean) / Math.sqrt(variance + 1e-5)) * gain[i] + bias[i]);
    });
  }

  embed(tokens, offset) {
    const size = this.d_model, table = this.weights["output_projection.weight"];
    const position = (at, channel) => {
      const angle = at * 10000 ** (-(channel - (channel % 2)) / size);
      return channel % 2 ? Math.cos(angle) : Math.sin(angle);
    };
    return tokens.map((token, i) => table.slice(token * size, (token + 1) * size).map((value, channel) =>
      value * Math.sqrt(size) + (this.settings.positions ? position(offset + i, channel) : 0)));
  }

  // Query i looks at the first visible(i) keys. Gives the output, and the weights [query][head][key].
  attend(name, queries, keys, values, visible) {
    const heads = Array.from({ length: this.num_heads }, (_, head) => head), size = this.d_model / this.num_heads;
    const outputs = queries.map((query) => new Float32Array(query.length));
    const weights = queries.map((query, i) => heads.map((head) => {
      const start = head * size, part = query.subarray(start, start + size);
      const scores = Float32Array.from(keys.slice(0, visible(i)), (key) =>
        dot(key.subarray(start, start + size), 0, part) / (this.settings.scale ? Math.sqrt(size) : 1));
      const normalizer = logSumExp(scores), row = scores.map((score) => Math.exp(score - normalizer));
      if (!this.settings.off.includes(`${name}.${head}`)) {
        row.forEach((weight, j) => {
          for (let c = start; c < start + size; c++) outputs[i][c] += weight * values[j][c];
        });
      }
      return row;
    }));
    return { output: this.linear(`${name}.out_projection`, outputs), weights };
  }

  selfAttention(name, x, cache, visible) { // adds the new keys and values to the cache
    const size = this.d_model, projected = this.linear(`${name}.in_projection`, x);
    cache.keys = [...cache.keys, ...projected.map((row) => row.subarray(size, 2 * size))];
    cache.values = [...cache.values, ...projected.map((row) => row.subarray(2 * size))];
    return this.attend(name, projected.map((row) => row.subarray(0, size)), cache.keys, cache.values, visible);
  }

  feedForward(name, x) {
    const inner = this.linear(`${name}.linear1`, x).map((row) => row.map((value) => Math.max(0, value)));
    return this.linear(`${name}.linear2`, inner);
  }

  // The memory: keys and values of the source for each decoder layer, how many of them may be seen, and where the
  // encoder looked.
  encode(tokens) {
    const padded = [...tokens, ...Array(this.settings.padding).fill(PAD)], size = this.d_model;
    const visible = this.settings.sourceMask ? tokens.length : padded.length;
    let x = this.embed(padded, 0);
    const looked = []; // [layer][query][head][key]
    for (let layer = 0; layer < this.num_encoder_layers; layer++) {
      const name = `encoder.layers.${layer}`, y = this.norm(`${name}.self_attention_norm`, x);
      const { output, weights } = this.selfAttention(`${name}.self_attention`, y, { keys: [], values: [] }, () => visible);
      looked.push(weights);
      x = add(x, output);
      x = add(x, this.feedForward(`${name}.feed_forward`, this.norm(`${name}.feed_forward_norm`, x)));
    }
    x = this.norm("encoder.norm", x);
    const layers = Array.from({ length: this.num_decoder_layers }, (_, layer) => {
      const name = `decoder.layers.${layer}.cross_attention.in_projection`;
      return { keys: this.linear(name, x, size, 2 * size), values: this.linear(name, x, 2 * size) };
    });
    return { layers, visible, looked };
  }

  // From the target tokens that are not yet in the cache: logits of the next token, and where each head of each
  // layer looked when it computed them: in the source [layer][head][position], and in the target so far.
  decode(tokens, memory, cache) {
    const offset = cache[0].keys.length, looked = [], own = [];
    const visible = (i) => offset + (this.settings.causal ? i + 1 : tokens.length);
    let x = this.embed(tokens, offset);
    for (let layer = 0; layer < this.num_decoder_layers; layer++) {
      const name = `decoder.layers.${layer}`, { keys, values } = memory.layers[layer];
      const y = this.norm(`${name}.self_attention_norm`, x);
      const self = this.selfAttention(`${name}.self_attention`, y, cache[layer], visible);
      own.push(self.weights.at(-1));
      x = add(x, self.output);
      const z = this.norm(`${name}.cross_attention_norm`, x), cross = `${name}.cross_attention`;
      const queries = this.linear(`${cross}.in_projection`, z, 0, this.d_model);
      const { output, weights } = this.attend(cross, queries, keys, values, () => memory.visible);
      looked.push(weights.at(-1));
      x = add(x, output);
      x = add(x, this.feedForward(`${name}.feed_forward`, this.norm(`${name}.feed_forward_norm`, x)));
    }
    const [hidden] = this.norm("decoder.norm", x.slice(-1)), table = this.weights["output_projection.weight"];
    return { logits: new Float32Array(this.target_vocab_size).map((_, token) => dot(table, token, hidden)), looked, own };
  }

  emptyCache() {
    return Array.from({ length: this.num_decoder_layers }, () => ({ keys: [], values: [] }));
  }
}

// --- The search ---------------------------------------------------------------------------------------------------

// Beam search. Stops after each token to show its hypotheses, best first; the last ones are the result.
// `force` holds tokens with which every translation has to begin.
function* search(model, source, { beamSize = 5, lengthPenalty = 1, force = [] } = {}) {
  const memory = model.encode(source), limit = Math.min(2 * source.length + 10, model.max_len);
  const scored = (hypothesis, length) => ({ ...hypothesis, score: hypothesis.total / length ** lengthPenalty });
  const byScore = (a, b) => b.score - a.score;
  let live = [{ tokens: [], total: 0, steps: [], cache: model.emptyCache() }], finished = [];
  while (live.length) {
    const candidates = [];
    for (const { tokens, total, steps, cache } of live) {
      const cached = model.settings.causal; // without the mask, earlier tokens change with each new one
      const longer = cached ? cache.map((layer) => ({ ...layer })) : model.emptyCache();
      const { logits, looked, own } = model.decode([BOS, ...tokens].slice(longer[0].keys.length), memory, longer);
      const normalizer = logSumExp(logits), forced = force.slice(tokens.length, tokens.length + 1);
      const choices = bestTokens(logits, Math.max(beamSize, 6)).map((token) => [token, logits[token] - normalizer]);
      for (const token of forced.length ? forced : choices.slice(0, beamSize).map(([token]) => token)) {
        candidates.push({ tokens: [...tokens, token], total: total + logits[token] - normalizer,
          steps: [...steps, { choices, looked, own, read: memory.looked }], cache: longer, finished: token === EOS });
      }
    }
    candidates.sort((a, b) => b.total - a.total); // equal ones keep their order
    const kept = candidates.slice(0, beamSize - finished.length), length = kept[0].tokens.length;
    finished = [...finished, ...kept.filter((one) => one.finished).map((one) => scored(one, length))].sort(byScore);
    live = kept.filter((one) => !one.finished);
    const hopeless = live.length && finished.length && finished[0].score >= live[0].total / limit ** lengthPenalty;
    if (length === limit || hopeless) {
      if (!finished.length) finished = live.map((one) => scored(one, limit));
      live = [];
    }
    yield [...finished, ...live.map((one) => scored(one, length))].sort(byScore);
  }
}

// --- From the file to a translator --------------------------------------------------------------------------------

// Each row of a matrix is stored as whole numbers from -127 to 127 and one scale; vectors as they are.
function unpack({ config, merges, shapes, floats, integers }) {
  const bytes = (letters) => new Uint8Array(letters.length).map((_, i) => letters.charCodeAt(i)).buffer;
  const numbers = new Float32Array(bytes(atob(floats))), whole = new Int8Array(bytes(atob(integers))), weights = {};
  let first = 0, start = 0; // in numbers, in whole
  for (const [name, [rows, columns]] of Object.entries(shapes)) {
    const own = numbers.slice(first, first + rows), from = start; // a vector, or the scales of a matrix
    first += rows;
    weights[name] = columns === undefined ? own :
      new Float32Array(rows * columns).map((_, i) => whole[from + i] * own[Math.floor(i / columns)]);
    start += columns === undefined ? 0 : rows * columns;
  }
  return { config, weights, tokenizer: new Tokenizer(merges) };
}

class Translator {
  constructor(file) {
    this.file = unpack(file);
    this.tokenizer = this.file.tokenizer;
  }

  source(text) { // of a text that is too long the beginning, and the end token
    const tokens = this.tokenizer.encode(text), longest = this.file.config.max_len;
    return tokens.length > longest ? [...tokens.slice(0, longest - 1), EOS] : tokens;
  }

  search(text, { settings = {}, ...options } = {}) {
    return search(new Model(this.file, settings), this.source(text), options);
  }

  text(tokens) {
    return this.tokenizer.decode(tokens).split(LINE_ENDS).filter(Boolean).join(" ");
  }

  translate(text, options) {
    let hypotheses = [{ tokens: [] }]; // the answer to a blank text
    if (/\P{White_Space}/u.test(text)) for (hypotheses of this.search(text, options));
    return this.text(hypotheses[0].tokens);
  }
}

globalThis.TestedTransformer = { Tokenizer, Model, Translator, search, unpack, BOS, EOS };
})();
