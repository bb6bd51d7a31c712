"use strict";
// Where everything is drawn. Each open fold is laid out by itself, by dagre, and is then one
// box in the layout of the fold around it: the time is that of many small graphs, and what is
// opened or closed leaves the rest as it is. A box has room for what stands on either side of
// it: the forward operation, and its derivative. So the two graphs have the same layout, and
// what belongs together stands at the same height.

const CARD = { width: 214, height: 46 };
const STEP = { width: 214, height: 38 };
const PADDING = { x: 14, top: 34, bottom: 14 };
const GAP = 110; // between the two graphs
const PORTS = ["in", "out"]; // where links enter and leave an open fold

/** The parts of a fold that lead from one of its units to another, or out of it. */
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
        // Gradients flow against the values: a link has the direction of the values.
        addPath(add, ...(flow === "gradient" ? ends.reverse() : ends), flow);
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

/** The size of a node, with the places of what is in it. */
function measure(node) {
  if (!node.isFold) return measureUnit(node);
  if (!node.isOpen) return { width: CARD.width, height: CARD.height };
  const sizes = new Map(node.parts.map((part) => [part.id, measure(part)]));
  const graph = newGraph({ nodesep: 26, ranksep: 30 });
  sizes.forEach(({ width, height }, id) => graph.setNode(id, { width, height }));
  for (const { from, to } of links.get(node).values()) {
    for (const id of [from, to]) if (PORTS.includes(id)) graph.setNode(id, { width: 1, height: 1 });
    graph.setEdge(from, to);
  }
  dagre.layout(graph);
  const { width, height } = graph.graph();
  return {
    width: Math.max(width, CARD.width) + 2 * PADDING.x,
    height: height + PADDING.top + PADDING.bottom,
    shift: Math.max(0, (CARD.width - width) / 2),
    graph,
    sizes,
  };
}

function measureUnit(unit) {
  if (!unit.isOpen || unit.beside.length === 0) return { ...CARD };
  const graph = newGraph({ nodesep: 16, ranksep: 18, rankdir: "BT" });
  unit.beside.forEach((o) => graph.setNode(String(o.index), { ...STEP }));
  for (const operation of unit.beside) {
    for (const name of operation.inputs) {
      const maker = backward.makers.get(name);
      if (unit.beside.includes(maker)) graph.setEdge(String(maker.index), String(operation.index));
    }
  }
  dagre.layout(graph);
  const { width, height } = graph.graph();
  return { width: width + 2 * PADDING.x, height: height + PADDING.top + PADDING.bottom, graph };
}

function newGraph(settings) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ marginx: 0, marginy: 0, ...settings });
  graph.setDefaultEdgeLabel(() => ({}));
  return graph;
}

/** The layout of what is open: boxes by the nodes' ids, and routes. */
function layOut() {
  const size = measure(root);
  const boxes = new Map();
  const routes = [];
  place(root, size, { x: 0, y: 0 }, boxes, routes);
  const [width, height] = [size.width, size.height];
  return { boxes, routes, paneWidth: width, offset: width + GAP, width: 2 * width + GAP, height };
}

function place(node, size, corner, boxes, routes) {
  const box = { ...corner, width: size.width, height: size.height, node, steps: new Map(), inner: [] };
  boxes.set(node.id, box);
  if (!size.graph) return;
  const at = ({ x, y }) => ({ x: corner.x + PADDING.x + (size.shift || 0) + x, y: corner.y + PADDING.top + y });
  if (!node.isFold) {
    size.graph.nodes().forEach((id) => box.steps.set(Number(id), at(size.graph.node(id))));
    box.inner = size.graph.edges().map((edge) => size.graph.edge(edge).points.map(at));
    return;
  }
  for (const part of node.parts) {
    const { x, y } = at(size.graph.node(part.id));
    const inner = size.sizes.get(part.id);
    place(part, inner, { x: x - inner.width / 2, y: y - inner.height / 2 }, boxes, routes);
  }
  box.ports = PORTS.map((id) => (size.graph.hasNode(id) ? at(size.graph.node(id)) : null));
  for (const { from, to, flows } of links.get(node).values()) {
    const points = size.graph.edge(from, to).points.slice(1, -1).map(at);
    routes.push({ from, to, fold: node, points, flows });
  }
}
