"use strict";
// How things look: cards, frames of what is open, and links. Every name is set as text.

const HEADING = 26; // the height of those of frames
const STACK = 6; // how far the cards behind that of a closed fold stand out
const SVG = "http://www.w3.org/2000/svg";
const world = document.getElementById("world");
let layout = null;

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  return filled(element, attributes, children);
}

function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const pen = document.createElement("canvas").getContext("2d");
const family = getComputedStyle(document.documentElement).fontFamily;

/** How wide a text is: kinds are larger than names, and bold. */
function widthOf(text, size) {
  pen.font = `${size > 12 ? 620 : 400} ${size}px ${family}`;
  return pen.measureText(text).width;
}

/** A text that is not wider than the room for it: whole, or cut after some letters. */
function fitted(text, width, size, cut = (length) => `${text.slice(0, length)}\u2026`) {
  if (widthOf(text, size) <= width) return text;
  let length = Math.min(text.length, Math.ceil(width / 2));
  while (length > 1 && widthOf(cut(length), size) > width) length -= 1;
  return cut(length);
}

/** The height of the letters of kinds, in the drawing: at every zoom they are read. */
const letters = () => Math.max(13, SMALLEST / (painted.scale || 1));
const isCoarse = () => painted.scale < READABLE;

/** What a card or a heading is called, where it stands alone: in the middle of a height. */
function alone(text, place, height) {
  return label(text, place.x + 12, place.y + height / 2 + letters() * 0.35, "kind", place.width - 20, letters());
}

function label(text, x, y, name, width, size, anchor = "start") {
  return svg("text", { x, y, class: name, "text-anchor": anchor }, fitted(text, width, size));
}

const keyOf = (side, node) => `${side}-${node.id}`;
const stepKey = (operation) => `step-${shownAs(operation).index}`;
const offsetOf = (side) => (side === "backward" ? layout.offset : 0);

/** A rectangle of a size in the middle of a box. */
function centered(box, { width, height }) {
  return { x: box.x + (box.width - width) / 2, y: box.y + (box.height - height) / 2, width, height };
}

// ---- Folds ----

function drawFold(fold, side, place, level) {
  const operations = sideOperations(fold, side);
  const what = counted(operations.length, "operation");
  const item = treeItem("fold", level, `${foldName(fold)}, ${what}`);
  item.setAttribute("aria-expanded", fold.isOpen);
  const mark = svg("text", { x: place.x + 12, y: place.y + (fold.isOpen ? 19 : 28), class: "toggle" }, fold.isOpen ? "\u25be" : "\u25b8");
  if (fold.isOpen) {
    item.append(svg("rect", { ...rectangle(place), rx: 12, class: "heading" }), mark);
    item.append(isCoarse() ? alone(foldName(fold), place, PADDING.top) : label(foldName(fold), place.x + 28, place.y + 18, "kind", place.width - 40, 13));
    return item;
  }
  for (const depth of [STACK, STACK / 2]) item.append(svg("rect", { ...rectangle(place, depth), rx: 9, class: "behind" }));
  item.append(svg("rect", { ...rectangle(place), rx: 9, class: "card" }), mark);
  if (isCoarse()) {
    item.append(alone(foldName(fold), place, place.height));
    return item;
  }
  item.append(label(foldName(fold), place.x + 28, place.y + 20, "kind", place.width - 40, 13));
  item.append(label(`${operations.length} ops, ${costText(operations)}`, place.x + 28, place.y + 36, "name", place.width - 36, 11));
  return item;
}

/** What stands around an open fold. */
function foldFrame(box, level) {
  return [svg("rect", { ...rectangle(box), rx: 12, class: `frame level${Math.min(level, 3)}` })];
}

const rectangle = ({ x, y, width, height }, shift = 0) => ({ x: x + shift, y: y + shift, width, height });

/** The operations of a node on one side. */
function sideOperations(node, side) {
  const inside = node.isFold ? node.units : [node];
  return inside.flatMap((unit) => (side === "forward" ? [unit.operation] : unit.beside));
}

const costText = (operations) => `${countText(sum(operations, "multiplyAdds"))} mult-adds`;

// ---- Units ----

function drawForward(unit, place, level) {
  const { operation } = unit;
  const [result] = operation.results;
  const shape = shapeText(forward, result);
  const item = treeItem(`family-${operation.family}`, level, forwardName(unit));
  card(item, place, operation.kind, `${result}  ${shape}`, forwardBadge(unit), weightLines(unit));
  return item;
}

function forwardName(unit) {
  const { operation } = unit;
  const read = operation.inputs.length ? ` of ${operation.inputs.join(", ")}` : "";
  const beside = counted(derivativeOf(unit).length, "operation");
  const weights = unit.weights.map(({ operand, label }) => `, ${operand} ${label}`).join("");
  return `${operation.results.join(", ")}: ${operation.kind}${read}${weights}, shape ${shapeText(forward, operation.results[0])}. Derivative: ${beside}`;
}

/** A line for each weight. Of a long label the end is shown: the module around has a fold. */
function weightLines({ weights }) {
  const whole = weights.length <= MOST_WEIGHTS ? weights : weights.slice(0, MOST_WEIGHTS - 1);
  const cut = ({ operand, label }) => (length) => `${operand} \u2026${label.slice(-length)}`;
  const lines = whole.map((weight) => fitted(`${weight.operand} ${weight.label}`, CARD.width - 26, 11, cut(weight)));
  return whole.length === weights.length ? lines : [...lines, `and ${weights.length - whole.length} more`];
}

function forwardBadge(unit) {
  const { operation } = unit;
  if (operation.kind === "external") return "input";
  if (operation.results.some((name) => contents.forward.outputs.includes(name))) return "output";
  return operation.multiplyAdds ? countText(operation.multiplyAdds) : "";
}

function drawDerivative(unit, place, level) {
  const derivative = derivativeOf(unit);
  const shown = derivative.length ? derivative : others(unit);
  const kinds = kindsOf(shown).map(([kind, count]) => (count > 1 ? `${count} ${kind}` : kind));
  const name = derivativeName(unit);
  const type = `family-${unit.operation.family}${derivative.length ? " derivative" : " none"}${hasInside(unit) ? " foldable" : ""}`;
  const item = treeItem(type, level, `${name}: ${kinds.join(", ") || "nothing"}`);
  if (hasInside(unit)) item.setAttribute("aria-expanded", "false");
  const title = derivative.length ? `\u2202 ${unit.operation.kind}` : name;
  card(item, place, title, kinds.join(", "), verdictOf(shown) || (shown.length > 1 ? `${shown.length} ops` : ""));
  if (hasInside(unit)) item.append(svg("text", { x: place.x + 11, y: place.y + 20, class: "toggle" }, "\u25b8"));
  if (shown.some((o) => o.broadcast)) item.append(...sumMark(place));
  return item;
}

function derivativeName(unit) {
  if (derivativeOf(unit).length) return `Derivative of ${unit.operation.results[0]}`;
  if (passed.has(unit)) return "the gradient as it is";
  if (unit.operation.isActive) return "the gradient passes";
  if (!again(unit).length) return "no derivative";
  return unit.operation.kind === "external" ? "the same input" : "computed again";
}

/** The mark of an operation that sums a gradient down for a broadcast. */
function sumMark(place) {
  const [x, y] = [place.x + place.width - 4, place.y + 2];
  return [svg("circle", { cx: x, cy: y, r: 8, class: "sum" }), svg("text", { x, y: y + 4, class: "sum", "text-anchor": "middle" }, "\u03a3")];
}

/** The heading of a derivative whose operations are drawn one by one. */
function drawInside(unit, place, level) {
  const heading = treeItem("inside", level, derivativeName(unit));
  heading.setAttribute("aria-expanded", "true");
  const isDerivative = derivativeOf(unit).length > 0;
  const title = isDerivative ? `\u2202 ${unit.operation.results.join(", ")} = ${unit.operation.kind}` : derivativeName(unit);
  heading.append(
    svg("rect", { ...rectangle(place), rx: 12, class: "heading" }),
    svg("text", { x: place.x + 12, y: place.y + 19, class: "toggle" }, "\u25be"),
    isCoarse() ? alone(title, place, PADDING.top) : label(title, place.x + 28, place.y + 18, "kind", place.width - 40, 13)
  );
  return heading;
}

/** What stands around these, with their links. */
function insideFrame(box) {
  const ways = box.inner.map((points) => curve(points.map(({ x, y }) => ({ x: x + layout.offset, y }))));
  return [svg("rect", { ...rectangle(box), rx: 12, class: "frame steps" }), svg("path", { d: ways.join(""), class: "link gradient thin" })];
}

function drawStep(operation, place, level) {
  const [result] = operation.results;
  const type = operation.isDerivative ? "derivative" : seeds.has(result) ? "seed" : operation.update ? "update" : "again";
  const value = valueOf(operation);
  const read = operation.inputs.length ? ` of ${operation.inputs.join(", ")}` : "";
  const name = [`${operation.results.join(", ")}: ${operation.kind}${read}`, operation.broadcast, value?.verdict, value?.mark].filter(Boolean).join(". ");
  const item = treeItem(`step ${type} family-${operation.family}`, level, name);
  const isResult = gradients.has(result);
  const badge = operation.parts ? `${operation.parts.length} ops` : stepBadge(type, isResult, value);
  card(item, place, operation.kind, `${result}  ${shapeText(backward, result)}`, badge);
  if (value?.mark || ["FAILED", "not finite"].includes(value?.verdict)) item.classList.add("alarm");
  if (operation.broadcast) item.append(...sumMark(place));
  if (isResult) item.classList.add("result");
  return item;
}

function stepBadge(type, isResult, value) {
  if (isResult) return value?.mark || value?.verdict || "gradient";
  return { again: "again", seed: "seed", update: "update" }[type] || "";
}

// ---- Cards ----

function treeItem(type, level, name) {
  return svg("g", { role: "treeitem", class: `item ${type}`, tabindex: -1, "aria-level": level, "aria-label": name, "aria-selected": "false" });
}

function card(item, place, kind, name, badge, lines = []) {
  const isHigh = place.height >= CARD.height;
  const left = place.x + (item.classList.contains("foldable") ? 26 : 16);
  const room = place.width - (left - place.x) - 10;
  item.append(
    svg("rect", { ...rectangle(place), rx: 9, class: "card" }),
    svg("rect", { x: place.x, y: place.y + 8, width: 4, height: place.height - 16, rx: 2, class: "stripe" })
  );
  if (isCoarse()) {
    item.append(alone(kind, place, place.height));
    return;
  }
  item.append(
    label(kind, left, place.y + (isHigh ? 20 : 16), "kind", room - badge.length * 7 - 4, 13),
    label(name, left, place.y + (isHigh ? 36 : 30), "name", room, 11),
    ...lines.map((line, index) => label(line, left, place.y + 36 + LINE * (index + 1), "name", room, 11))
  );
  if (badge) item.append(label(badge, place.x + place.width - 10, place.y + (isHigh ? 20 : 16), "badge", 90, 11, "end"));
}

// ---- Links ----

const FLOWS = { value: ["forward", 0], gradient: ["backward", 7], again: ["backward", -7] };

const routesOf = (flow) => layout[FLOWS[flow][0]].routes;

/** For each flow a path for all its links, and one for their heads. */
function linkPaths(links) {
  return Object.keys(FLOWS).flatMap((flow) => {
    const ways = links.filter((link) => link.flow === flow).map(({ way }) => way);
    return [
      svg("path", { d: ways.map(curve).join(""), class: `link ${flow}` }),
      svg("path", { d: ways.map(arrow).join(""), class: `head ${flow}` }),
    ];
  });
}

/** The points of a link on its side, in the direction of the flow. */
function wayOf({ from, to, fold, points }, flow) {
  const [side, aside] = FLOWS[flow];
  const dx = offsetOf(side) + aside;
  const ends = [anchor(from, fold, side, 1), ...points, anchor(to, fold, side, 0)];
  const way = ends.map(({ x, y }) => ({ x: x + dx, y }));
  return flow === "gradient" ? way.reverse() : way;
}

/** Where a link leaves (1) or enters (0) a node, or a fold that it is inside of. */
function anchor(id, fold, side, end) {
  if (PORTS.includes(id)) {
    const outer = layout[side].boxes.get(fold.id);
    return { x: outer.ports[PORTS.indexOf(id)].x, y: id === "in" ? outer.y : outer.y + outer.height };
  }
  const box = layout[side].boxes.get(id);
  const port = box.ports?.[end];
  const isWhole = box.node.isFold || (side === "backward" && box.steps);
  const place = isWhole ? box : centered(box, cardOf(box.node, side));
  const stack = box.node.isFold && !box.node.isOpen ? end * STACK : 0;
  return { x: port ? port.x : place.x + place.width / 2, y: place.y + end * place.height + stack };
}

function curve(points) {
  const [start, ...others] = points;
  let before = start;
  const steps = others.map((point) => {
    const middle = (before.y + point.y) / 2;
    const step = `C${round(before.x)},${round(middle)} ${round(point.x)},${round(middle)} ${round(point.x)},${round(point.y)}`;
    before = point;
    return step;
  });
  return `M${round(start.x)},${round(start.y)}${steps.join("")}`;
}

function arrow(points) {
  const [before, end] = points.slice(-2);
  const size = end.y >= before.y ? -7 : 7;
  return `M${round(end.x)},${round(end.y)}l-4,${size}h8z`;
}

const round = (number) => Math.round(number * 10) / 10;
