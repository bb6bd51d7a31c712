"use strict";
// Where everything is drawn. Each open fold is laid out by itself, by dagre, and is then one
// box in the layout of the fold around it: the time is that of many small graphs, and what is
// opened or closed leaves the rest as it is. The graphs are laid out alike: a box is as high
// as what stands on either side of it needs, so an operation and its derivative stand at the
// same height.

const CARD = { width: 214, height: 46 };
const LINE = 14; // of a weight on a card
const MOST_WEIGHTS = 4; // that a card has lines for
const STEP = { width: 178, height: 38 };
const PADDING = { x: 14, top: 34, bottom: 14 };
const GAP = 70; // between the two graphs
const PORTS = ["in", "out"]; // where links enter and leave an open fold

// ---- Links ----

const passed = new Set(); // the units that gradients pass as they are
const links = collectLinks();

/** For each fold, its links by their ends: what flows along them, and between which units. */
function collectLinks() {
  const found = new Map(folds.map((fold) => [fold, new Map()]));
  const add = (fold, from, to, flow, ends) => {
    const key = `${from}>${to}`;
    const known = found.get(fold);
    if (!known.has(key)) known.set(key, { from, to, flows: new Map() });
    const flows = known.get(key).flows;
    flows.set(flow, new Set([...(flows.get(flow) || []), ...ends]));
  };
  for (const graph of [forward, backward]) {
    for (const reader of graph.operations) {
      for (const name of reader.inputs) {
        const maker = graph.makers.get(name);
        if (!maker || isData(maker)) continue;
        const flow = flowOf(maker);
        const ends = [unitOf(maker), unitOf(reader)];
        if (seeds.has(name)) passed.add(ends[0]);
        if (flow !== "gradient") addPath(add, ...ends, flow);
        // Gradients flow against the values: a link has the direction of the values.
        else for (const [from, to] of pairs(wayBetween(ends[1], ends[0]))) addPath(add, from, to, flow);
      }
    }
  }
  return found;
}

/** What a tensor is: a value of the forward graph, one computed again, or a gradient. */
function flowOf(maker) {
  if (maker.side === "forward") return "value";
  return maker.isDerivative || seeds.has(maker.results[0]) ? "gradient" : "again";
}

function pairs(items) {
  return items.slice(1).map((item, index) => [items[index], item]);
}

/** The units from one to another that a gradient passes as it is, as it passes an addition:
 * beside them nothing is computed but reductions for what was broadcast. */
function wayBetween(from, to) {
  const ways = [[from]];
  const seen = new Set([from]);
  for (const way of ways) {
    for (const next of readersOf(way[way.length - 1])) {
      if (next === to) {
        way.slice(1).forEach((unit) => passed.add(unit));
        return [...way, to];
      }
      if (seen.has(next) || !derivativeOf(next).every((o) => o.broadcast)) continue;
      seen.add(next);
      ways.push([...way, next]);
    }
  }
  return [from, to];
}

function readersOf(unit) {
  return unit.operation.results.flatMap((name) => forward.readers.get(name) || []).map(unitOf);
}

/** The links from a unit to another: through all folds that hold one of them alone. */
function addPath(add, from, to, flow) {
  if (from === to) return;
  const ends = [from, to];
  const outside = new Set(foldsAround(to));
  let part = from;
  while (!outside.has(part.parent)) {
    add(part.parent, part.id, "out", flow, ends);
    part = part.parent;
  }
  const common = part.parent;
  let last = to;
  while (last.parent !== common) {
    add(last.parent, "in", last.id, flow, ends);
    last = last.parent;
  }
  add(common, part.id, last.id, flow, ends);
}

// ---- Sizes ----

/** The size of a node on one side, with the layout of what is in it. */
function measure(node, side) {
  if (!node.isFold) return measureUnit(node, side);
  if (!node.isOpen) return CARD;
  if (!isWhole(node)) return measureFold(node, side);
  return (node.whole[side] ||= measureFold(node, side));
}

/** Whether all that is inside of a fold is open. */
const isWhole = (node) => node.isOpen && (!node.isFold || node.parts.every(isWhole));

function measureFold(node, side) {
  const sizes = new Map(node.parts.map((part) => [part.id, measure(part, side)]));
  const graph = newGraph({ nodesep: 26, ranksep: 30 });
  sizes.forEach(({ width, height }, id) => graph.setNode(id, { width, height }));
  for (const { from, to } of links.get(node).values()) {
    for (const id of [from, to]) if (PORTS.includes(id)) graph.setNode(id, { width: 1, height: 1 });
    graph.setEdge(from, to);
  }
  return { ...sizeOf(graph), graph, sizes };
}

/** A unit has one height on both sides, and the width of its derivative on one. */
function measureUnit(unit, side) {
  const card = cardOf(unit, "forward");
  if (!unit.isOpen || !hasInside(unit)) return card;
  unit.inside ||= measureSteps(unit.steps);
  const height = Math.max(card.height, unit.inside.height);
  return { ...(side === "backward" ? unit.inside : card), height };
}

/** The size of the card of a unit: the forward one has a line for each weight. */
function cardOf(unit, side) {
  const lines = side === "forward" ? Math.min(unit.weights.length, MOST_WEIGHTS) : 0;
  return { width: CARD.width, height: CARD.height + LINE * lines };
}

function measureSteps(operations) {
  const graph = newGraph({ nodesep: 14, ranksep: 20, rankdir: "BT" });
  operations.forEach((o) => graph.setNode(String(o.index), { ...STEP }));
  for (const operation of operations) {
    for (const name of operation.inputs) {
      const maker = backward.makers.get(name) && shownAs(backward.makers.get(name));
      if (operations.includes(maker)) graph.setEdge(String(maker.index), String(operation.index));
    }
  }
  return { ...sizeOf(graph), graph };
}

function newGraph(settings) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ marginx: 0, marginy: 0, ...settings });
  graph.setDefaultEdgeLabel(() => ({}));
  return graph;
}

/** The size of a graph that is laid out: that of a frame around it, with room for a heading. */
function sizeOf(graph) {
  layOutLike(graph);
  const { width, height } = graph.graph();
  return {
    width: Math.max(width, CARD.width) + 2 * PADDING.x,
    height: height + PADDING.top + PADDING.bottom,
    shift: PADDING.x + Math.max(0, CARD.width - width) / 2,
  };
}

const layouts = new Map();

/** Lays out a graph; one that is like an earlier one gets its layout, for networks repeat
 * their blocks. */
function layOutLike(graph) {
  const [nodes, edges] = [graph.nodes(), graph.edges()];
  const indices = new Map(nodes.map((id, index) => [id, index]));
  const key = JSON.stringify([
    graph.graph(),
    nodes.map((id) => [graph.node(id).width, graph.node(id).height]),
    edges.map(({ v, w }) => [indices.get(v), indices.get(w)]),
  ]);
  const known = layouts.get(key);
  if (!known) {
    dagre.layout(graph);
    layouts.set(key, graph);
    return;
  }
  graph.setGraph(known.graph());
  known.nodes().forEach((id, index) => graph.setNode(nodes[index], known.node(id)));
  known.edges().forEach((edge, index) => graph.setEdge(edges[index], known.edge(edge)));
}

/** Lays out the folds as they are when all is open, in moments when nothing else is to be
 * done: by the time that they are opened it is known. */
function layOutAhead(time, remaining = [...folds]) {
  do layOutWhole(remaining.pop());
  while (remaining.length && time.timeRemaining() > 0);
  if (remaining.length) window.requestIdleCallback((later) => layOutAhead(later, remaining));
}

function layOutWhole(fold) {
  const closed = [...nodesIn(fold)].filter((node) => !node.isOpen);
  closed.forEach((node) => (node.isOpen = true));
  for (const side of ["forward", "backward"]) measure(fold, side);
  closed.forEach((node) => (node.isOpen = false));
}

function* nodesIn(fold) {
  yield fold;
  for (const part of fold.parts) {
    if (part.isFold) yield* nodesIn(part);
    else yield part;
  }
}

// ---- Places ----

/** The layout of what is open: for each side boxes, by the ids of nodes, and routes. */
function layOut() {
  const right = layOutSide("backward");
  const isAlike = ![...units.values()].some((unit) => unit.isOpen);
  const left = isAlike ? right : layOutSide("forward");
  const offset = left.width + GAP;
  return { forward: left, backward: right, offset, width: offset + right.width, height: right.height };
}

function layOutSide(side) {
  const size = measure(root, side);
  const found = { boxes: new Map(), routes: [], width: size.width, height: size.height };
  place(root, size, { x: 0, y: 0 }, found);
  return found;
}

function place(node, size, corner, found) {
  const { width, height, graph } = size;
  const box = { ...corner, width, height, node };
  found.boxes.set(node.id, box);
  if (!graph) return;
  const at = ({ x, y }) => ({ x: corner.x + size.shift + x, y: corner.y + PADDING.top + y });
  if (!node.isFold) {
    box.steps = new Map(graph.nodes().map((id) => [Number(id), at(graph.node(id))]));
    box.inner = graph.edges().map((edge) => graph.edge(edge).points.map(at));
    return;
  }
  for (const part of node.parts) {
    const { x, y } = at(graph.node(part.id));
    const inner = size.sizes.get(part.id);
    place(part, inner, { x: x - inner.width / 2, y: y - inner.height / 2 }, found);
  }
  box.ports = PORTS.map((id) => (graph.hasNode(id) ? at(graph.node(id)) : null));
  for (const { from, to, flows } of links.get(node).values()) {
    const points = graph.edge(from, to).points.slice(1, -1).map(at);
    found.routes.push({ from, to, fold: node, points, flows });
  }
}

// ---- What is open at first ----

const VISIBLE = 60; // parts that a reader can take in
const UNFOLDED = 60; // operations of derivatives that are drawn one by one from the start

/** Opens folds from the outside in, as long as not more is seen than can be read. */
function openAtFirst(width) {
  const few = backward.operations.filter((o) => !isData(o)).length <= UNFOLDED;
  units.forEach((unit) => (unit.isOpen = few));
  if (few && layOut().width > width) units.forEach((unit) => (unit.isOpen = false));
  let visible = root.parts.length;
  for (let depth = 1; ; depth += 1) {
    const level = folds.filter((fold) => fold.depth === depth && fold.parent.isOpen);
    visible += level.reduce((total, fold) => total + fold.parts.length, 0);
    if (!level.length || visible > VISIBLE) return;
    level.forEach((fold) => (fold.isOpen = true));
    if (layOut().width > width) {
      level.forEach((fold) => (fold.isOpen = false));
      return;
    }
  }
}
