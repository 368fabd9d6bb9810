// What one steps through: a beam search that grows as a tree, and a training. After widgets.js, whose parts this is
// built of.
(function () {
"use strict";
if (typeof window === "undefined") return;
const { beamSearch, make, draw, picture, line, label, written, button, choice, slider, row, speaker, set, WIDGETS } =
  window.widgetKit;

// --- A beam search as a tree ------------------------------------------------------------------------------------

WIDGETS.beam = ({ table: chances, max_length }) => {
  const alphas = [0, 0.5, 1], shown = 8, { element, say } = speaker(), stage = make("div", { class: "tree" });
  let size = 2, alpha = 1, search, at, width = 600;
  const next = button("next step", () => step(1)), back = button("step back", () => step(-1));
  const again = () => {
    search = beamSearch(chances, size, alpha, max_length);
    at = 0;
    step(1); // a tree of one box would explain nothing
  };

  // The tree up to this step: of each step the candidates that are kept, and the best others, below their parents.
  function tree() {
    const columns = [[{ words: [], p: 1, fate: "live" }]];
    for (const { candidates } of search.steps.slice(0, at)) {
      const kept = candidates.filter((each) => each.fate !== "dropped").length;
      const some = candidates.slice(0, Math.max(shown, kept)), order = columns[columns.length - 1];
      const parent = (each) => order.findIndex((other) => other.words.join() === each.words.slice(0, -1).join());
      columns.push(some.sort((a, b) => parent(a) - parent(b) || a.words.join() > b.words.join() || -1));
    }
    return columns;
  }
  function show() {
    const columns = tree(), half = width < 400 ? 21 : 27, gap = (width - 2 * half - 16) / search.steps.length;
    const height = 38 * Math.max(5, ...columns.map((each) => each.length));
    const answer = at === search.steps.length ? search.answers[0].words : undefined, parts = [], place = new Map();
    columns.forEach((column, depth) => column.forEach((each, i) => {
      const x = half + 8 + gap * depth, y = (height * (i + 0.5)) / column.length, name = each.words.join();
      const from = place.get(each.words.slice(0, -1).join());
      const best = answer && each.words.every((word, k) => word === answer[k]);
      const style = `${each.fate}${best ? " best" : ""}${depth === at ? " new" : ""}`;
      place.set(name, [x + half, y]);
      if (depth) {
        const bend = (x - half - from[0]) / 2, up = y - from[1];
        const d = `M${from}c${bend} 0 ${bend} ${up} ${2 * bend} ${up}`;
        parts.unshift(draw("path", { class: `branch ${style}`, d }));
      }
      const box = (more) => draw("rect", { x: x - half - more, y: y - 14 - more, width: 2 * (half + more),
        height: 28 + 2 * more, rx: 4, class: "node" });
      parts.push(draw("g", { class: style }, ...(each.fate === "finished" ? [box(3.5)] : []), box(0),
        label(x, depth ? y - 1 : y + 4, depth ? each.words[depth - 1] : "start", { class: "token" }),
        ...(depth ? [label(x, y + 10, written(each.p, 3), { class: "small" })] : [])));
    }));
    const steps = columns.slice(1).map((column, i) => {
      const more = search.steps[i].candidates.length - column.length;
      const text = `step ${i + 1}` + (more ? `, ${more} more` : "");
      return label(half + 8 + gap * (i + 1), height + 14, text, { class: "small" });
    });
    stage.replaceChildren(picture(width, height + 20, ...parts, ...steps));
  }
  function step(by) {
    at += by;
    const over = at === search.steps.length;
    if (over && document.activeElement === next) back.focus(); // a button that can no longer be pressed loses the place
    if (!at && document.activeElement === back) next.focus();
    [next.disabled, back.disabled] = [over, !at];
    show();
    if (!at) return say(`The search has ${size} ${size === 1 ? "slot" : "slots"}, and begins with nothing written.`);
    const { candidates, best, reach } = search.steps[at - 1], answer = search.answers[0];
    const kept = candidates.filter((each) => each.fate !== "dropped");
    const fates = kept.map((each) => `${each.words.join(" ")} ${each.fate === "live" ? "stays live" : "is finished"}`);
    say(`Step ${at}: ${fates.join(", ")}. ` +
      (best > -Infinity ? `The best finished score is ${written(best, 3)}. ` : "Nothing has finished. ") +
      (best >= reach && reach > -Infinity ? "No live one can still overtake it. " : "") +
      (over ? `The search is over. The answer is ${answer.words.join(" ")}, with the score ${written(answer.score, 3)}.`
        : "The search goes on."));
  }
  const slots = choice("slots", ["1 (greedy)", "2", "3", "4"], (i) => { size = i + 1; again(); }, 1);
  const penalty = choice("length penalty α", alphas.map(String), (i) => { alpha = alphas[i]; again(); }, 2);
  new ResizeObserver(([{ contentRect }]) => {
    const wide = Math.round(Math.max(280, Math.min(640, contentRect.width)));
    if (wide !== width) { width = wide; show(); }
  }).observe(stage);
  again();
  return [row(slots, penalty, next, back), stage, element];
};

// --- A training -------------------------------------------------------------------------------------------------

// Losses and steps of the stored moments; three captions and where one head looks, as they were at the chosen one.
WIDGETS.learning = ({ english, source, target, checkpoints }) => {
  const { element, say } = speaker(), n = checkpoints.length, [width, height] = [340, 150];
  const losses = checkpoints.map((each) => each.loss), top = Math.max(...losses);
  const [x, y] = [(i) => 12 + ((width - 24) * i) / (n - 1), (loss) => height - 8 - ((height - 34) * loss) / top];
  const mark = draw("circle", { r: 7, class: "output" }), drop = line(0, 0, 0, height - 8, "axis");
  const value = label(0, 0, "", { class: "value-label" });
  const curve = picture(width, height, line(8, height - 8, width - 8, height - 8, "axis"),
    draw("polyline", { class: "curve decoder", points: losses.map((loss, i) => `${x(i)},${y(loss)}`).join(" ") }),
    ...losses.map((loss, i) => draw("circle", { cx: x(i), cy: y(loss), r: 2.5, class: "decoder" })), drop, mark, value);
  const cell = 22, [left, up] = [62, 58], cells = target.map((_, i) => source.map((_, j) =>
    draw("rect", { x: left + cell * j, y: up + cell * i, width: cell - 2, height: cell - 2, rx: 2, class: "weight" })));
  const map = picture(left + cell * source.length + 34, up + cell * target.length + 2, ...cells.flat(),
    ...target.map((word, i) => label(left - 6, up + cell * i + 15, word, { class: "end decoder" })),
    ...source.map((word, j) => label(0, 0, word,
      { class: "start encoder", transform: `translate(${left + cell * j + 13} ${up - 5}) rotate(-50)` })));
  const german = english.map(() => make("span", { lang: "de" }));
  const captions = make("dl", { class: "captions" },
    ...english.flatMap((text, i) => [make("dt", { lang: "en" }, text), make("dd", {}, german[i])]));
  const time = slider("training step", { min: 0, max: n - 1, step: 1, value: n - 1 }, (i) => {
    const { step, loss, bleu, german: said, weights } = checkpoints[i];
    german.forEach((each, j) => { each.textContent = said[j]; });
    cells.forEach((line, a) => line.forEach((each, b) => { each.style.fillOpacity = weights[a][b] / 100; }));
    set(mark, { cx: x(i), cy: y(loss) });
    set(drop, { x1: x(i), x2: x(i), y1: y(loss) });
    set(value, { x: Math.max(40, Math.min(width - 40, x(i))), y: y(loss) - 14 });
    value.textContent = `loss ${written(loss, 2)}`;
    const most = source[weights[0].indexOf(Math.max(...weights[0]))];
    say(`Step ${step}: loss ${written(loss, 2)}, BLEU ${written(bleu, 1)}. ${said[0]} “${target[0]}” looks most at “${most}”.`);
    return `${step}: BLEU ${written(bleu, 1)}`;
  });
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let clock;
  const stop = () => { clearInterval(clock); clock = undefined; play.textContent = "Play"; };
  const play = button("Play", () => {
    if (clock) return stop();
    if (Number(time.input.value) === n - 1) time.input.value = -1;
    play.textContent = "Stop";
    clock = setInterval(() => {
      time.input.value = Number(time.input.value) + 1;
      time.move();
      if (Number(time.input.value) === n - 1) stop();
    }, 450);
  });
  const part = (title, ...content) =>
    make("div", { class: "touch-part" }, make("div", { class: "touch-title" }, title), ...content);
  for (const kind of ["pointerdown", "keydown"]) time.input.addEventListener(kind, () => clock && stop());
  time.move();
  return [row(time.element, ...(still ? [] : [play])),
    make("div", { class: "touch" }, part("Loss on new captions", curve, captions),
      part("One head, while it reads the human translation", map)),
    element];
};
})();
