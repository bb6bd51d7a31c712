"use strict";
// What there is to draw, and where; and what of it is drawn: that which is in sight, and some
// way around it. Where too much is in sight to be read, cards are drawn as plain areas.

const MOST_DRAWN = 800; // cards that are drawn with their words
const AROUND = 0.5; // of the canvas, on each side
const EVERYTHING = { x: -1e9, y: -1e9, width: 2e9, height: 2e9 };
const SIDES = ["forward", "backward"];

/** What can be drawn: items by their keys, in the order of the graphs, frames and links. */
const scene = { items: new Map(), frames: [], links: [] };
/** The part that is drawn: its area, its zoom, whether as plain areas; nothing at first. */
let painted = null;
/** The elements of the items that are drawn, by their keys. */
const elements = new Map();
/** The items that are marked, by the class of their mark. */
const marks = { lit: new Set(), hit: new Set(), chosen: new Set() };
/** The key of what the keyboard is at. */
let focused = null;

// ---- All of it ----

/** Lays out what is open. It is drawn when it comes into sight. */
function draw() {
  layout = layOut();
  scene.items.clear();
  elements.clear();
  scene.frames = [];
  for (const side of SIDES) addParts(root, side, 1);
  scene.links = Object.keys(FLOWS).flatMap((flow) => routesOf(flow).filter(({ flows }) => flows.has(flow)).map((route) => linkOf(route, flow)));
  painted = null;
  const panes = SIDES.map((side) => svg("g", { id: `pane-${side}`, role: "tree", "aria-label": side === "forward" ? "Forward graph" : "Backward graph", class: `pane ${side}` }));
  world.replaceChildren(
    svg("rect", { id: "band", x: -20, width: layout.width + 40, height: 0, rx: 10 }),
    ...["frames", "links", "areas", "lit-links"].map((id) => svg("g", { id, class: id })),
    ...panes
  );
  for (const [id, side] of [["left-heading", "forward"], ["right-heading", "backward"]]) {
    document.getElementById(id).dataset.x = offsetOf(side) + layout[side].width / 2;
  }
}

function addItem(key, side, place, type, drawn) {
  scene.items.set(key, { key, side, place, type, drawn });
}

function addParts(fold, side, level) {
  for (const part of fold.parts) {
    const box = boxOf(part, side);
    if (part.isFold) addFold(part, side, box, level);
    else addUnit(part, side, box, level);
  }
}

function addFold(fold, side, box, level) {
  const place = fold.isOpen ? { ...box, height: HEADING } : box;
  addItem(keyOf(side, fold), side, place, "fold", () => drawFold(fold, side, place, level));
  if (!fold.isOpen) return;
  scene.frames.push({ place: box, drawn: () => foldFrame(box, level) });
  addParts(fold, side, level + 1);
}

function addUnit(unit, side, box, level) {
  const isInside = side === "backward" && unit.isOpen && hasInside(unit);
  if (isInside) addInside(unit, box, level);
  else {
    const place = centered(box, cardOf(unit, side));
    const drawCard = side === "forward" ? drawForward : drawDerivative;
    addItem(keyOf(side, unit), side, place, `family-${unit.operation.family}`, () => drawCard(unit, place, level));
  }
}

function addInside(unit, box, level) {
  const place = { ...box, height: HEADING };
  scene.frames.push({ place: box, drawn: () => insideFrame(box) });
  addItem(keyOf("backward", unit), "backward", place, "inside", () => drawInside(unit, place, level));
  for (const operation of unit.steps) {
    const { x, y } = box.steps.get(operation.index);
    const middle = { x: x - STEP.width / 2 + layout.offset, y: y - STEP.height / 2, ...STEP };
    addItem(stepKey(operation), "backward", middle, `family-${operation.family}`, () => drawStep(operation, middle, level + 1));
  }
}

function boxOf(node, side) {
  const box = layout[side].boxes.get(node.id);
  return { ...box, x: box.x + offsetOf(side) };
}

function linkOf(route, flow) {
  const way = wayOf(route, flow);
  const [xs, ys] = [way.map(({ x }) => x), way.map(({ y }) => y)];
  const [x, y] = [Math.min(...xs), Math.min(...ys)];
  return { flow, route, way, place: { x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y } };
}

// ---- What is drawn of it ----

const meets = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
const covers = (a, b) => a.x <= b.x && a.y <= b.y && a.x + a.width >= b.x + b.width && a.y + a.height >= b.y + b.height;

function widened({ x, y, width, height }, part) {
  return { x: x - part * width, y: y - part * height, width: (1 + 2 * part) * width, height: (1 + 2 * part) * height };
}

/** Draws what has come into sight. */
function paintInSight() {
  const sight = inSight();
  const isNear = painted && scaleOf(view.zoom) === painted.scale && Math.abs(Math.log(view.zoom / painted.zoom)) < 0.4;
  if (!isNear || !covers(painted.area, sight)) paint(areaAround(sight));
}

/** An area around what is in sight, with as many items as can be drawn. */
function areaAround(sight) {
  const all = [...scene.items.values()];
  if (!scaleOf(view.zoom)) return { area: widened(sight, AROUND), isPlain: true };
  for (const part of [AROUND, 0.1]) {
    const area = widened(sight, part);
    if (all.filter(({ place }) => meets(place, area)).length <= MOST_DRAWN) return { area, isPlain: false };
  }
  return { area: widened(sight, AROUND), isPlain: true };
}

/** Draws an area; what the keyboard is at, and what is chosen, wherever it is. */
function paint({ area, isPlain }) {
  const hadFocus = elements.has(focused) && elements.get(focused) === document.activeElement;
  const scale = area === EVERYTHING ? READABLE : scaleOf(view.zoom);
  if (painted?.scale !== scale) elements.clear();
  painted = { area, isPlain, zoom: view.zoom, scale };
  world.style.setProperty("--letters", `${letters()}px`);
  world.classList.toggle("coarse", scale < READABLE);
  world.classList.toggle("wordless", !scale);
  if (!scene.items.has(focused)) focused = scene.items.keys().next().value;
  const shown = [...scene.items.values()].filter(({ place }) => meets(place, area));
  const drawn = new Set([...(isPlain ? [] : shown).map(({ key }) => key), focused, ...marks.chosen]);
  paintItems([...scene.items.values()].filter(({ key }) => drawn.has(key)));
  paintGroup("frames", scene.frames.filter(({ place }) => meets(place, area)).flatMap(({ drawn }) => drawn()));
  paintGroup("links", linkPaths(scene.links.filter(({ place }) => meets(place, area))));
  paintGroup("areas", isPlain ? plainAreas(shown) : []);
  showMarks();
  if (hadFocus) elements.get(focused).focus({ preventScroll: true });
}

function paintGroup(id, children) {
  document.getElementById(id).replaceChildren(...children);
}

/** Draws items; those that are drawn already stay. */
function paintItems(items) {
  const known = new Map(elements);
  elements.clear();
  for (const { key, drawn } of items) elements.set(key, known.get(key) || drawn());
  for (const side of SIDES) paintGroup(`pane-${side}`, items.filter((item) => item.side === side).map(({ key }) => elements.get(key)));
  for (const [key, element] of elements) element.dataset.key = key;
}

/** Items as plain areas: one path for all of a type. */
function plainAreas(items) {
  const types = new Map();
  for (const { type, place } of items) {
    if (type !== "inside") types.set(type, [...(types.get(type) || []), place]);
  }
  return [...types].map(([type, places]) => areaPath(places, type));
}

function areaPath(places, name) {
  const d = places.map(({ x, y, width, height }) => `M${round(x)},${round(y)}h${width}v${height}h${-width}z`).join("");
  return svg("path", { d, class: `area ${name}` });
}

/** Shows what is lit, found, chosen, and where the keyboard is. */
function showMarks() {
  for (const [key, element] of elements) {
    for (const [mark, keys] of Object.entries(marks)) element.classList.toggle(mark, keys.has(key));
    element.setAttribute("aria-selected", marks.chosen.has(key));
    element.setAttribute("tabindex", key === focused ? 0 : -1);
  }
  world.classList.toggle("has-choice", marks.chosen.size > 0);
  document.querySelectorAll(".area.lit, .area.hit").forEach((area) => area.remove());
  if (!painted?.isPlain) return;
  for (const mark of ["hit", "lit"]) {
    const places = [...marks[mark]].filter((key) => scene.items.has(key)).map((key) => scene.items.get(key).place);
    document.getElementById("areas").append(areaPath(places, mark));
  }
}

/** The key of what is at a point of the drawing: the innermost of what is there. */
function keyOfPoint(x, y) {
  const found = [...scene.items.values()].filter(({ place }) => meets(place, { x, y, width: 0, height: 0 }));
  return found.pop()?.key;
}
