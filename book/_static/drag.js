// What one takes hold of: a query in a plane, the cells of a mask, the hands of clocks. After widgets.js, whose parts
// this is built of. Everything that a pointer moves can be moved by keys.
(function () {
"use strict";
if (typeof window === "undefined") return;
const { softmax, attend, positionRow, dot, make, draw, picture, line, label, written, list, button, choice, slider,
  table, matrix, row, speaker, set, WIDGETS } = window.widgetKit;

// Tells `moved` where in the drawing the pointer is as long as it is held down; `taken` says whether it takes hold.
function drag(svg, taken, moved) {
  const place = ({ clientX, clientY }) => new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
  svg.addEventListener("pointerdown", (event) => {
    if (!taken(place(event), event)) return;
    event.preventDefault();
    svg.setPointerCapture(event.pointerId);
    moved(place(event));
  });
  svg.addEventListener("pointermove", (event) => svg.hasPointerCapture(event.pointerId) && moved(place(event)));
}

const titled = (role, title, ...content) =>
  make("div", { class: `touch-part ${role}`, style: `--role: var(--role-${role})` },
    make("div", { class: "touch-title" }, title), ...content);

// An arrow from one place to another, as a path.
function arrow(x1, y1, x2, y2) {
  const angle = Math.atan2(y2 - y1, x2 - x1), length = Math.min(10, Math.hypot(x2 - x1, y2 - y1));
  const side = (turn) => `L${x2 - length * Math.cos(angle + turn)} ${y2 - length * Math.sin(angle + turn)}`;
  return `M${x1} ${y1}L${x2} ${y2}${side(0.45)}M${x2} ${y2}${side(-0.45)}`;
}

// --- A query in the plane of three keys -------------------------------------------------------------------------

WIDGETS.plane = ({ tokens, queries, keys, values, width }) => {
  const unit = 54, [low, high] = [-2, 3], size = unit * (high - low + 0.6), { element, say } = speaker();
  const [x, y] = [(a) => unit * (a - low + 0.3), (b) => unit * (high + 0.3 - b)], [left, top] = [x(0), y(0)];
  let query = [...queries[2]], divisor = Math.sqrt(width), d_k = width;

  const hand = draw("path", { class: "arrow query" }), knob = draw("circle", { r: 9, class: "knob" });
  const handle = draw("g", { class: "handle", tabindex: 0, role: "slider", "aria-valuemin": low, "aria-valuemax": high,
    "aria-label": "the query; the arrow keys move it" }, draw("circle", { r: 22, class: "hold" }), knob);
  const ray = line(0, 0, 0, 0, "ray"), name = label(0, 0, "query", { class: "query start" });
  const shadows = keys.map(() => [line(0, 0, 0, 0, "shadow"), draw("circle", { r: 3, class: "key" })]);
  const arrows = keys.flatMap(([a, b], j) => [
    draw("path", { class: "arrow key", d: arrow(left, top, x(a), y(b)) }),
    a > 0.3 ? label(x(a) + 7, y(b) - 12, tokens[j], { class: "key start" })
      : label(x(a), y(b) - 9, tokens[j], { class: "key" }),
  ]);
  const plane = picture(size, size, line(0, top, size, top, "axis"), line(left, 0, left, size, "axis"), ray,
    ...shadows.flat(), ...arrows, hand, handle, name);
  plane.removeAttribute("aria-hidden");
  set(plane, { class: "plane", role: "group", "aria-label": "query and keys" });

  const side = 210, [u, v] = [(a) => 30 + 15 * a, (b) => 180 - 15 * b];
  const threads = values.map(() => line(0, 0, 0, 0, "thread")), output = draw("circle", { r: 7, class: "output" });
  const triangle = picture(side + 40, side, line(30, 180, 190, 180, "axis"), line(30, 180, 30, 20, "axis"),
    draw("polygon", { class: "triangle", points: values.map(([a, b]) => `${u(a)},${v(b)}`).join(" ") }), ...threads,
    ...values.flatMap(([a, b], j) => [draw("circle", { cx: u(a), cy: v(b), r: 5, class: "value" }),
      label(u(a), v(b) + (b > 0 ? -11 : 20), tokens[j], { class: "value" })]), output);

  const bars = tokens.map(() => make("span", { class: "long-bar" })), shares = tokens.map(() => make("span"));
  const numbers = table("", tokens, ["dot product", "÷", "weight"],
    (i) => ["", "", make("div", { class: "with-bar" }, shares[i], bars[i])]);
  const rows = [...numbers.querySelectorAll("tbody tr")].map((each) => [...each.querySelectorAll("td")]);
  numbers.querySelector("caption").remove();

  function update() {
    const times = Math.sqrt(d_k / width), found = attend(query, keys, values, divisor, times), [a, b] = query;
    const square = dot(query, query) || 1, far = 9 / Math.sqrt(square);
    set(hand, { d: arrow(left, top, x(a), y(b)) });
    for (const circle of handle.children) set(circle, { cx: x(a), cy: y(b) });
    set(handle, { "aria-valuenow": written(a, 2).replace("−", "-"), "aria-valuetext": `(${list(query, 2)})` });
    set(ray, { x1: x(-far * a), y1: y(-far * b), x2: x(far * a), y2: y(far * b) });
    set(name, { x: x(a) + 25, y: y(b) + 16 });
    keys.forEach((key, j) => {
      const foot = query.map((part) => part * dot(query, key) / square), [drop, end] = shadows[j];
      set(drop, { x1: x(key[0]), y1: y(key[1]), x2: x(foot[0]), y2: y(foot[1]) });
      set(end, { cx: x(foot[0]), cy: y(foot[1]) });
      set(threads[j], { x1: u(values[j][0]), y1: v(values[j][1]), x2: u(found.output[0]), y2: v(found.output[1]) });
      threads[j].style.strokeWidth = 12 * found.weights[j];
      [found.products, found.scores].forEach((each, i) => { rows[j][i].textContent = written(each[j], 2); });
      shares[j].textContent = written(found.weights[j], 3);
      bars[j].style.setProperty("--size", found.weights[j]);
    });
    numbers.querySelectorAll("thead th")[1].textContent = `÷ ${written(divisor, 2)}`;
    set(output, { cx: u(found.output[0]), cy: v(found.output[1]) });
    out.textContent = `output (${list(found.output, 1)})`;
    const said = tokens.map((token, j) => `${token} ${written(found.weights[j], 3)}`).join(", ");
    say(`The query (${list(query, 2)}) has the weights ${said}; the output is (${list(found.output, 1)}).`);
  }
  const out = make("div", { class: "touch-note" });
  const move = (a, b) => {
    query = [a, b].map((part) => Math.max(low, Math.min(high, part)));
    update();
  };
  drag(plane, (_, { pointerType, target }) => pointerType === "mouse" || handle.contains(target), (at) => {
    handle.focus({ preventScroll: true });
    move((at.x - left) / unit, (top - at.y) / unit);
  });
  handle.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // the page stays
  handle.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
    if (!step) return;
    event.preventDefault();
    move(query[0] + step[0], query[1] + step[1]);
  });

  const root = () => Math.abs(divisor ** 2 / d_k - 1) < 1e-9;
  const divide = slider("divided by", { min: -1, max: 5, step: 0.5, value: Math.log2(divisor) }, (power) => {
    divisor = 2 ** power;
    update();
    return written(divisor, 2) + (root() ? " = √d_k" : "");
  });
  const wide = slider("width d_k", { min: Math.log2(width), max: 10, step: 1, value: Math.log2(width) }, (power) => {
    d_k = 2 ** power;
    divide.move();
    return `${d_k}: dot products × ${written(Math.sqrt(d_k / width), 1)}`;
  });
  wide.move();
  const starts = tokens.map((token, i) => button(`query of ${token}`, () => move(...queries[i])));
  return [
    row(...starts),
    make("div", { class: "touch" }, titled("query", "Query and keys", plane),
      titled("weight", "Dot products and weights", numbers),
      titled("value", "Values and their mean, the output", triangle, out)),
    row(wide.element, divide.element), element,
  ];
};

// --- The cells of a mask ----------------------------------------------------------------------------------------

WIDGETS.masks = ({ tokens, exponentials, presets }) => {
  const fillings = {
    "left out, as in this book": undefined, "replaced by −∞": -Infinity, "replaced by −1,000,000,000": -1e9,
  };
  const names = Object.keys(presets), n = tokens.length, { element, say } = speaker();
  let mask = [], last = n - 1, filling, brush, painted;
  const cells = tokens.map((_, i) => tokens.map((__, j) => make("button", { type: "button", class: "paint",
    tabindex: i || j ? -1 : 0, keydown: (event) => walk(event, i, j) })));
  const grid = table("exp(score)", tokens, tokens, (i) => cells[i]);
  const weights = matrix("weights", tokens, tokens, n, "weight", 3);
  weights.element.classList.add("glasses");

  function update() {
    const shares = exponentials.map((line, i) => softmax(line.map(Math.log), mask[i], filling));
    cells.forEach((line, i) => line.forEach((cell, j) => {
      cell.textContent = mask[i][j] ? written(exponentials[i][j], 0) : "×";
      const name = `query ${tokens[i]}, key ${tokens[j]}: ${cell.textContent}`;
      set(cell, { "aria-pressed": mask[i][j], "aria-label": name });
      weights.cells[i][j].style.setProperty("--size", shares[i][j] || 0);
      weights.cells[i][j].textContent = written(shares[i][j], 2);
    }));
    const seen = tokens.filter((_, j) => mask[last][j]);
    say(`The query ${tokens[last]} may attend to ${seen.length ? seen.join(", ") : "nothing"}; ` +
      `its weights are ${list(shares[last], 3)}.`);
  }
  function paint(cell, allowed) {
    const i = cells.findIndex((line) => line.includes(cell)), j = cells[i].indexOf(cell);
    mask[i][j] = allowed ?? !mask[i][j];
    last = i;
    update();
    return mask[i][j];
  }
  function walk(event, i, j) {
    const ways = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const [down, right] = ways[event.key] ?? [];
    const next = cells[i + down]?.[j + right];
    if (!next) return;
    event.preventDefault();
    cells[i][j].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
  // A pointer that is held down goes on with what it did first; its click comes last, and was done already.
  const under = ({ clientX, clientY }) => document.elementFromPoint(clientX, clientY)?.closest(".paint");
  grid.addEventListener("pointerdown", (event) => {
    if (!under(event)) return;
    painted = under(event);
    painted.releasePointerCapture(event.pointerId);
    brush = paint(painted);
  });
  grid.addEventListener("pointermove", (event) => {
    if (brush === undefined || !event.buttons) return;
    const cell = under(event);
    if (cell && grid.contains(cell) && (cell.getAttribute("aria-pressed") === "true") !== brush) paint(cell, brush);
  });
  grid.addEventListener("click", ({ target }) => {
    const cell = target.closest(".paint");
    if (cell && cell !== painted) paint(cell);
    painted = brush = undefined;
  });
  const take = (name) => { mask = presets[name].map((line) => [...line]); last = n - 1; update(); };
  const empty = button("forbid the last row", () => { mask[n - 1].fill(false); last = n - 1; update(); });
  const fill = choice("forbidden scores are", Object.keys(fillings), (i) => {
    filling = Object.values(fillings)[i];
    update();
  });
  take(names[names.length - 1]);
  return [row(...names.map((name) => button(name, () => take(name))), empty),
    make("div", { class: "touch" }, grid, make("span", { class: "becomes" }, "→"), weights.element),
    row(fill), element];
};

// --- The hands of clocks ----------------------------------------------------------------------------------------

WIDGETS.positions = ({ d_model, length, query, key }) => {
  const speeds = Array.from({ length: d_model / 2 }, (_, i) => 10000 ** (-2 * i / d_model));
  const place = { p: query, q: key }, roles = { p: "query", q: "key" }, { element, say } = speaker();
  const clocks = speeds.map((speed, i) => {
    const [p, q] = ["p", "q"].map((name) => draw("path", { class: `arrow ${roles[name]}` }));
    const sum = label(50, 124, ""), bar = draw("rect", { y: 133, height: 6 });
    const svg = picture(100, 142, draw("circle", { cx: 50, cy: 50, r: 46, class: "thin face" }), q, p,
      label(50, 110, `speed ${speed}`), sum, line(50, 131, 50, 141, "thin"), bar);
    svg.setAttribute("class", "clock");
    let held, exact, before;
    const angle = (at) => Math.atan2(at.x - 50, 50 - at.y);
    const apart = (a, b) => Math.atan2(Math.sin(a - b), Math.cos(a - b));
    drag(svg, (at) => {
      if (Math.hypot(at.x - 50, at.y - 50) > 50) return false;
      before = angle(at);
      const [p, q] = [place.p, place.q].map((position) => Math.abs(apart(before, position * speed)));
      held = p < q ? "p" : "q"; // the nearer one
      exact = place[held];
      return true;
    }, (at) => {
      exact = Math.max(0, Math.min(length, exact + apart(angle(at), before) / speed));
      before = angle(at);
      dials[held].input.value = Math.round(exact);
      dials[held].move();
    });
    return { svg, p, q, sum, bar };
  });
  const curve = draw("polyline", { class: "curve" }), mark = draw("circle", { r: 6, class: "key" });
  const [x, y] = [(q) => 10 + 3 * q, (product) => 98 - 22 * product], note = make("div", { class: "touch-note" });
  const plot = make("div", { class: "widget-plot" },
    picture(20 + 3 * length, 120, line(10, 98, 10 + 3 * length, 98, "thin"), curve, mark), note);
  function update() {
    const [p, q] = [place.p, place.q].map((position) => positionRow(position, d_model));
    clocks.forEach((clock, i) => {
      for (const [name, r] of [["p", p], ["q", q]])
        set(clock[name], { d: arrow(50, 50, 50 + 43 * r[2 * i], 50 - 43 * r[2 * i + 1]) });
      const adds = dot(p.slice(2 * i, 2 * i + 2), q.slice(2 * i, 2 * i + 2));
      clock.sum.textContent = `adds ${written(adds, 2)}`;
      set(clock.bar, { x: 50 + Math.min(0, 45 * adds), width: Math.abs(45 * adds) });
    });
    const products = Array.from({ length: length + 1 }, (_, other) => dot(p, positionRow(other, d_model)));
    curve.setAttribute("points", products.map((product, other) => `${x(other)},${y(product)}`).join(" "));
    set(mark, { cx: x(place.q), cy: y(products[place.q]) });
    note.textContent = `dot product of row ${place.p} with rows 0 to ${length}; ` +
      `dot: row ${place.q}, ${written(products[place.q], 2)}`;
    say(`Position ${place.p} has the row ${list(p, 2)}. Its dot product with the row of position ${place.q}, ` +
      `${Math.abs(place.p - place.q)} away, is ${written(products[place.q], 2)}; ` +
      `with itself it is ${written(d_model / 2, 0)}.`);
  }
  const dials = Object.fromEntries(["p", "q"].map((name) => [name,
    slider(`position ${name}`, { min: 0, max: length, step: 1, value: place[name] }, (value) => {
      place[name] = value;
      update();
      return String(value);
    })]));
  for (const name of ["p", "q"]) {
    dials[name].element.style.setProperty("--role", `var(--role-${roles[name]})`);
    dials[name].move();
  }
  return [row(...Object.values(dials).map((each) => each.element)),
    make("div", { class: "touch" }, ...clocks.map((clock) => clock.svg)), plot, element];
};
})();
