"use strict";
// What is selected, what lights up with it, and what is said of it.

const details = document.getElementById("details");
let selected = null;

/** What a key names: a side, a node, and an operation if it names one. */
function subject(key) {
  const [side, ...rest] = key.split("-");
  if (side === "step") {
    const operation = shownAs(backward.operations[Number(rest[0])]);
    return { key, side: "backward", node: unitOf(operation), operation };
  }
  const id = rest.join("-");
  return { key, side, node: layout[side].boxes.get(id).node, operation: null };
}

/** The key of what shows an operation, as far as folds are open. */
function shownKey(operation) {
  const unit = unitOf(operation);
  const closed = foldsAround(unit).filter((fold) => !fold.isOpen).pop();
  if (closed) return keyOf(operation.side, closed);
  const isStep = operation.side === "backward" && unit.isOpen && scene.items.has(stepKey(operation));
  return isStep ? stepKey(operation) : keyOf(operation.side, unit);
}

// ---- Light ----

function select(key) {
  selected = key && scene.items.has(key) ? subject(key) : null;
  light();
  describe(selected);
  showBars(selected);
  showAddress(selected?.operation || selected?.node.operation);
}

/** The address of the page leads to an operation, by the name of its first result. */
function showAddress(operation) {
  if (location.protocol === "about:") return; // the page is in the cell of a notebook
  history.replaceState(null, "", operation ? `#${operation.results[0]}` : location.href.split("#")[0]);
}

/** Lights up what is selected, what stands beside it, and the links of both. */
function light() {
  marks.chosen = new Set(selected ? [selected.key] : []);
  marks.lit = new Set(selected ? keysAround(selected.node) : []);
  markBand(selected?.node);
  paintGroup("lit-links", selected ? litLinks(selected.node) : []);
  showMarks();
}

/** The keys of everything that belongs to a node, on both sides. */
function keysAround(node) {
  const inside = node.isFold ? [node, ...node.parts.flatMap((p) => (node.isOpen ? [p] : []))] : [node];
  const nodes = inside.flatMap((part) => [keyOf("forward", part), keyOf("backward", part)]);
  const steps = inside.filter((part) => !part.isFold).flatMap((unit) => unit.beside.map(stepKey));
  return [...nodes, ...steps];
}

function litLinks(node) {
  const inside = new Set(node.isFold ? node.units : [node]);
  return linkPaths(scene.links.filter(({ flow, route }) => [...route.flows.get(flow)].some((unit) => inside.has(unit))));
}

/** A band across both graphs. */
function markBand(node) {
  const box = node && layout.forward.boxes.get(node.id);
  const band = document.getElementById("band");
  band.setAttribute("y", box ? box.y - 6 : 0);
  band.setAttribute("height", box ? box.height + 12 : 0);
}

// ---- Words ----

/** Says in the panel what something is. */
function describe(what) {
  details.replaceChildren(...(what ? aboutSubject(what) : aboutPage()));
  details.scrollTop = 0;
}

function aboutSubject({ side, node, operation }) {
  if (operation) return aboutOperation(operation);
  if (node.isFold) return aboutFold(node);
  return side === "forward" ? aboutOperation(node.operation) : aboutDerivative(node);
}

function aboutOperation(operation) {
  const graph = operation.side === "forward" ? forward : backward;
  const unit = unitOf(operation);
  return [
    html("h2", {}, operation.kind, html("small", {}, roleOf(operation))),
    operation.parts ? null : html("code", { class: "line" }, operation.text),
    operation.broadcast ? html("p", { class: "broadcast" }, html("b", {}, "\u03a3 "), `${operation.broadcast}: here its gradient is summed down again.`) : null,
    table("Tensors", [
      ...operation.results.map((name) => ["result", name, typeText(graph, name)]),
      ...operation.results.filter(isCalled).map((name) => ["in the file", contents.called[name], ""]),
      ...operation.operands.map(([operand, name]) => [operand, name, typeText(graph, name)]),
    ]),
    table("Attributes", operation.attributes),
    ...(operation.side === "backward" ? aboutValue(valueOf(operation)) : []),
    table("Costs", costRows(operation)),
    ...listed("Operations", operation.parts || []),
    ...ruleOf(operation),
    ...(operation.side === "forward" ? listed("Its derivative", derivativeOf(unit)) : listed("Derivative of", [unit.operation])),
  ].filter(Boolean);
}

function roleOf(operation) {
  if (operation.side === "forward") return "forward graph";
  const [name] = operation.results;
  if (gradients.has(name)) return `the gradient of ${gradients.get(name)}`;
  if (seeds.has(name)) return "input of the backward graph";
  if (operation.update) return "part of the training step";
  return operation.isDerivative ? "part of a derivative" : "computed again in the backward graph";
}

/** A number, or the word for what is none. */
const numberText = (number) => (typeof number === "number" ? number.toPrecision(3) : number);

/** The values of a gradient: its verdict, its norm, and a histogram of magnitudes. */
function aboutValue(value) {
  if (!value) return [];
  const rows = [
    ["norm", numberText(value.norm)],
    ["root mean square", numberText(value.mean)],
    ["zeros", `${countText(value.zeros)} of ${countText(value.size)}`],
  ];
  if (value.verdict) rows.unshift(["check", `${value.verdict}, error ${numberText(value.error)}`]);
  if (value.mark) rows.unshift(["mark", value.mark]);
  return [table("Values", rows), histogram(value.magnitudes)];
}

/** A bar for each half of a power of ten. */
function histogram(magnitudes) {
  const steps = Object.keys(magnitudes).map(Number);
  if (!steps.length) return null;
  const [least, most] = [Math.min(...steps), Math.max(...steps)];
  const highest = Math.max(...Object.values(magnitudes));
  const width = 300 / (most - least + 1);
  const bars = steps.map((step) => `M${round((step - least) * width)},60v${-round((58 * magnitudes[step]) / highest)}h${round(width * 0.9)}V60z`);
  const ends = [least / 2, (most + 1) / 2].map((power) => (10 ** power).toPrecision(1));
  return html(
    "figure",
    { class: "histogram" },
    html("figcaption", {}, `magnitudes from ${ends[0]} to ${ends[1]}`),
    svg("svg", { viewBox: "0 0 300 60", role: "img", "aria-label": `histogram of magnitudes from ${ends[0]} to ${ends[1]}` }, svg("path", { d: bars.join(""), class: "bars backward" }))
  );
}

/** Whether a tensor has another name in the file. */
const isCalled = (name) => contents.called[name] && contents.called[name] !== name;

function typeText(graph, name) {
  const type = graph.tensors.get(name)?.type;
  const maker = graph.makers.get(name);
  return `${type === "scalar" ? "" : `${type} `}${shapeText(graph, name)}${maker?.kind === "variable" ? ` ${labelOf(maker)}` : ""}`;
}

const costRows = (operation) => [
  ["multiply-adds", countText(operation.multiplyAdds)],
  ["read and written", byteText(operation.bytesMoved)],
  ...(operation.bytesAlive === null ? [] : [["alive meanwhile", byteText(operation.bytesAlive)]]),
];

function ruleOf(operation) {
  const [title, text] = contents.rules[operation.rule];
  const isForward = operation.side === "forward" || operation.isDerivative || operation.update;
  if (!isForward) return [];
  return [html("h3", {}, "Rule"), html("p", {}, title), text ? html("pre", { tabindex: 0, "aria-label": "The text of the rule" }, text) : null];
}

function aboutDerivative(unit) {
  const { operation } = unit;
  return [
    html("h2", {}, derivativeOf(unit).length ? `\u2202 ${operation.kind}` : operation.kind, html("small", {}, derivativeName(unit))),
    html("code", { class: "line" }, operation.text),
    ...listed("Operations", derivativeOf(unit)),
    ...listed("Gradients", others(unit).filter(isGradient)),
    ...listed("Computed again", again(unit)),
    ...ruleOf(operation),
  ].filter(Boolean);
}

function aboutFold(fold) {
  const sides = ["forward", "backward"].map((side) => sideOperations(fold, side));
  const kinds = kindsOf(sides[0]).map(([kind, count]) => [kind, String(count)]);
  return [
    html("h2", {}, foldName(fold), html("small", {}, "several operations as one")),
    table("", [
      ["", "forward", "backward"],
      ["operations", ...sides.map((operations) => String(operations.length))],
      ["multiply-adds", ...sides.map((operations) => countText(sum(operations, "multiplyAdds")))],
      ["read and written", ...sides.map((operations) => byteText(sum(operations, "bytesMoved")))],
    ]),
    html("p", {}, `Double-click, or press the space bar, to ${fold.isOpen ? "fold" : "unfold"} it.`),
    table("Kinds", kinds),
  ];
}

const COSTS = [
  ["operations", ({ totals }) => totals.operations, String],
  ["parameters", ({ totals }) => totals.parameters, countText],
  ["multiply-adds", ({ totals }) => totals.multiply_adds, countText],
  ["read and written", ({ operations }) => sum(operations, "bytesMoved"), byteText],
  ["inputs", ({ totals }) => totals.input_bytes, byteText],
  ["variables", ({ totals }) => totals.variable_bytes, byteText],
  ["activations", ({ totals }) => totals.activation_bytes, byteText],
  ["their peak", ({ totals }) => totals.peak_bytes, byteText],
];

function aboutPage() {
  return [
    html("h2", {}, "A graph and its gradient"),
    html("p", {}, "On the left, values flow down through the graph. On the right, at the same height, stands the derivative of each operation: gradients flow up."),
    html("p", {}, "Click an operation to light up its derivative, or the other way round. Point at one to read its shapes, its attributes and its rule."),
    legend(),
    table("Costs", [
      ["", "forward", "backward"],
      ...COSTS.map(([name, cost, text]) => [name, text(cost(forward)), text(cost(backward))]),
    ]),
    table("Keys", [
      ["\u2191 \u2193", "along a graph"],
      ["\u2190 \u2192", "between an operation and its derivative"],
      ["Enter", "select"],
      ["space", "unfold or fold"],
      ["/", "search; Enter for the next one"],
      ["+ \u2212 0", "zoom, show everything"],
      ["Esc", "select nothing"],
      ["wheel", "scroll; with Ctrl, zoom"],
    ]),
  ];
}

const LEGEND = [
  ["family-conv", "convolutions, matrix products"],
  ["family-normalize", "normalization"],
  ["family-elementwise", "element by element"],
  ["family-pool", "pooling, reductions"],
  ["family-shape", "shapes"],
];

function legend() {
  const rows = LEGEND.map(([name, text]) => html("li", {}, html("i", { class: name }), text));
  const links = [["value", "values"], ["gradient", "gradients"], ["again", "values computed again for the gradient"]];
  rows.push(...links.map(([flow, text]) => html("li", {}, html("i", { class: `line ${flow}` }), text)));
  rows.push(html("li", {}, html("i", { class: "sum" }, "\u03a3"), "summed down where the forward graph broadcast"));
  return html("ul", { class: "legend", "aria-label": "Legend" }, ...rows);
}

function table(caption, rows) {
  if (!rows.length) return null;
  const body = rows.map(([first, ...others]) => html("tr", {}, html("th", { scope: "row" }, first), ...others.map((cell) => html("td", {}, cell))));
  return html("table", {}, caption ? html("caption", {}, caption) : null, html("tbody", {}, ...body));
}

/** A list of operations, each of which leads to where it is drawn. */
function listed(title, operations) {
  if (!operations.length) return [];
  const items = operations.map((operation) => {
    const button = html("button", { type: "button", class: "line" }, operation.broadcast ? html("b", {}, "\u03a3 ") : null, operation.text);
    button.addEventListener("click", () => goTo(operation));
    return html("li", {}, button);
  });
  return [html("h3", {}, title), html("ul", { class: "operations" }, ...items)];
}
