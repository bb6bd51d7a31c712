"use strict";
// The contents of the page as objects: graphs, their operations, the units that are drawn,
// and the folds around them.

const contents = JSON.parse(document.getElementById("contents").textContent);
const forward = readGraph(contents.forward, "forward");
const backward = readGraph(contents.backward, "backward");
const seeds = new Set(Object.values(contents.backward.seeds));
const gradients = new Map(Object.entries(contents.backward.gradients).map(([x, dx]) => [dx, x]));
const units = readUnits();
const root = readFold(contents.folds, null, 0);

/** A graph with what makes and what reads each tensor. */
function readGraph(data, side) {
  const operations = data.operations.map((operation, index) => ({
    ...operation,
    inputs: [...new Set(operation.operands.map(([, name]) => name))],
    side,
    index,
    place: data.places[index],
    broadcast: data.broadcasts ? data.broadcasts[index] : "",
    isActive: data.active ? data.active[index] : false,
  }));
  const tensors = new Map(data.tensors.map(([name, type, shape]) => [name, { name, type, shape }]));
  const makers = new Map();
  const readers = new Map();
  for (const operation of operations) {
    operation.results.forEach((name) => makers.set(name, operation));
    operation.inputs.forEach((name) => readers.set(name, [...(readers.get(name) || []), operation]));
  }
  const peak = operations.reduce((best, o) => ((o.bytesAlive || 0) > (best.bytesAlive || 0) ? o : best), operations[0]);
  return { ...data, side, operations, tensors, makers, readers, peak };
}

/** Whether an operation only brings a value: it is drawn with its reader. */
function isData(operation) {
  return !operation.isDerivative && !isGradient(operation) && ["variable", "constant"].includes(operation.kind);
}

/** Whether an operation makes the gradient of an output or a result of the backward graph. */
function isGradient({ results: [name] }) {
  return seeds.has(name) || gradients.has(name);
}

/** A unit is a forward operation with its variables, and beside it its derivative. */
function readUnits() {
  const found = new Map();
  for (const operation of forward.operations.filter((o) => o.place === o.index)) {
    found.set(operation.index, {
      id: `u${operation.index}`,
      isFold: false,
      isOpen: false,
      operation,
      weights: weightsOf(operation),
      variables: [],
      beside: [],
    });
  }
  for (const operation of forward.operations.filter((o) => o.place !== o.index)) {
    found.get(operation.place)?.variables.push(operation);
  }
  for (const operation of backward.operations) {
    const unit = found.get(operation.place);
    if (unit && !isData(operation)) unit.beside.push(operation);
  }
  for (const unit of found.values()) unit.steps = stepsOf(unit.beside);
  return found;
}

/** What is drawn of operations one by one: those that an optimizer has for a variable are one
 * step. */
function stepsOf(operations) {
  const updates = [];
  for (const operation of operations.filter(({ update, kind }) => update || kind === "update")) {
    const near = updates.filter((parts) => parts.some((part) => isNear(part, operation)));
    near.forEach((parts) => updates.splice(updates.indexOf(parts), 1));
    updates.push([...near.flat(), operation]);
  }
  updates.filter(([first, ...others]) => others.length && first.update).forEach(joinUpdate);
  return [...new Set(operations.map(shownAs))];
}

/** Whether an operation of an optimizer reads another one of the same shape. */
function isNear(maker, reader) {
  const shape = shapeText(backward, reader.results[0]);
  const isSame = !reader.update || maker.update === reader.update;
  return isSame && reader.inputs.some((name) => maker.results.includes(name) && shapeText(backward, name) === shape);
}

function shownAs(operation) {
  return operation.within || operation;
}

/** One operation in the place of several: it reads what they read, and makes what is read
 * elsewhere. */
function joinUpdate(parts) {
  const last = parts[parts.length - 1];
  const made = new Set(parts.flatMap(({ results }) => results));
  const operands = parts.flatMap((part) => part.operands).filter(([, name]) => !made.has(name));
  const whole = {
    ...last,
    kind: parts[0].update,
    update: parts[0].update,
    parts,
    operands: [...new Map(operands.map(([, name]) => [name, ["reads", name]])).values()],
    results: [...made].filter((name) => !parts.some(({ inputs }) => inputs.includes(name))),
    attributes: [],
    multiplyAdds: sum(parts, "multiplyAdds"),
    bytesMoved: sum(parts, "bytesMoved"),
    bytesAlive: Math.max(...parts.map(({ bytesAlive }) => bytesAlive)),
  };
  whole.inputs = whole.operands.map(([, name]) => name);
  parts.forEach((part) => (part.within = whole));
}

/** The variables that an operation of the forward graph reads, with the operands they are. */
function weightsOf({ operands }) {
  const read = operands.map(([operand, name]) => [operand, forward.makers.get(name)]);
  return read.filter(([, maker]) => maker?.kind === "variable").map(([operand, maker]) => ({ operand, label: labelOf(maker) }));
}

/** The label of a variable, without its quotes. */
function labelOf({ attributes }) {
  return attributes.find(([key]) => key === "label")?.[1].slice(1, -1) || "";
}

/** The tree of folds; its leaves are units. */
function readFold(data, parent, depth) {
  if (typeof data === "number") return Object.assign(units.get(data), { parent });
  const fold = { id: "", isFold: true, isOpen: depth === 0, name: data.name, parent, depth, whole: {} };
  fold.parts = data.parts.map((part) => readFold(part, fold, depth + 1));
  fold.units = fold.parts.flatMap((part) => (part.isFold ? part.units : [part]));
  fold.id = `f${depth}-${fold.units[0].operation.index}`;
  return fold;
}

const folds = [...eachFold(root)];

function* eachFold(fold) {
  yield fold;
  for (const part of fold.parts) if (part.isFold) yield* eachFold(part);
}

/** The folds around a node, from the inside out. */
function foldsAround(node) {
  return node.parent ? [node.parent, ...foldsAround(node.parent)] : [];
}

function unitOf(operation) {
  return units.get(forward.operations[operation.place].place);
}

// ---- What is open ----

/** Opens or closes everything. */
function openAll(isOpen) {
  folds.slice(1).forEach((fold) => (fold.isOpen = isOpen));
  units.forEach((unit) => (unit.isOpen = isOpen));
}

/** Opens what hides an operation. */
function reveal(operation) {
  const unit = unitOf(operation);
  foldsAround(unit).forEach((fold) => (fold.isOpen = true));
  if (operation.side === "backward" && !isData(operation)) unit.isOpen = true;
  return unit;
}

/** What is known of the values of a gradient, if an operation makes one. */
const valueOf = ({ results: [name] }) => contents.values[name];

/** The verdict on a folded derivative: the first that is no good one. */
function verdictOf(operations) {
  const words = operations.map(valueOf).filter(Boolean).map(({ mark, verdict }) => mark || verdict || "");
  return words.find((word) => word !== "ok") || words[0] || "";
}

// ---- Words ----

function scaled(number, factor, names) {
  let power = 0;
  while (number >= factor ** (power + 1) && power + 1 < names.length) power += 1;
  const value = number / factor ** power;
  return `${Number(value.toPrecision(3))} ${names[power]}`.trim();
}
const countText = (number) => scaled(number, 1000, ["", "K", "M", "G", "T"]);
const byteText = (number) => scaled(number, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const counted = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

function sum(items, key) {
  return items.reduce((total, item) => total + (item[key] || 0), 0);
}

function shapeText(graph, name) {
  const tensor = graph.tensors.get(name);
  if (!tensor) return "";
  return tensor.shape.length ? tensor.shape.join("\u00d7") : "number";
}

/** The name of a fold: that of its module, or its first and last result. */
function foldName(fold) {
  if (fold.name) return fold.name;
  const [first, last] = [fold.units[0], fold.units[fold.units.length - 1]];
  return `${first.operation.results[0]} \u2026 ${last.operation.results[0]}`;
}

const derivativeOf = (unit) => unit.beside.filter((o) => o.isDerivative);
const others = (unit) => unit.beside.filter((o) => !o.isDerivative);
const again = (unit) => others(unit).filter((o) => !isGradient(o) && !o.update);

/** Whether there is more beside an operation than itself: its derivative, or its parts. */
function hasInside(unit) {
  return unit.beside.length > 1 || derivativeOf(unit).length > 0;
}

/** How many operations of each kind, the most frequent first. */
function kindsOf(operations) {
  const counts = new Map();
  operations.forEach((o) => counts.set(o.kind, (counts.get(o.kind) || 0) + 1));
  return [...counts].sort((a, b) => b[1] - a[1]);
}
