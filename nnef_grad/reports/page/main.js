"use strict";
// What the reader does: pointing, clicking, typing.

/** Draws again after something was opened or closed; what is at a key stays where it is, and
 * both graphs in sight. */
function redraw(key) {
  const before = scene.items.get(key)?.place;
  const zoom = view.zoom;
  draw();
  view.zoom = Math.min(view.zoom, Math.max(zoomToWidth(), ZOOM.beside));
  const after = scene.items.get(key)?.place;
  if (before && after) {
    view.x += before.x * zoom - after.x * view.zoom;
    view.y += before.y * zoom - after.y * view.zoom;
  }
  keepGraphsInSight();
  markHits();
  showView();
}

/** Opens a closed fold or derivative, or closes an open one. */
function toggle(key) {
  const { node, side } = subject(key);
  if (!node.isFold && (side === "forward" || !hasInside(node))) return;
  node.isOpen = !node.isOpen;
  const shown = keyOf(side, node);
  redraw(shown);
  select(shown);
  focusOn(shown);
  announce(`${node.isFold ? foldName(node) : derivativeName(node)}: ${node.isOpen ? "unfolded" : "folded"}`);
}

/** Shows an operation, wherever it is, and selects it. */
function goTo(operation, takesFocus = true) {
  showTab("graph");
  if (!scene.items.has(operation.side === "backward" ? stepKey(operation) : keyOf("forward", unitOf(operation)))) {
    reveal(operation);
    redraw(null);
  }
  const key = shownKey(operation);
  select(key);
  bringIntoSight(scene.items.get(key).place);
  if (takesFocus) focusOn(key);
  if (isData(operation)) describe({ side: operation.side, node: unitOf(operation), operation });
}

/** Goes to the operation that the address names. */
function followAddress(address = location.hash) {
  const name = address.slice(1);
  const operation = forward.makers.get(name) || backward.makers.get(name);
  if (operation) goTo(operation);
}
window.addEventListener("hashchange", () => followAddress());

function focusOn(key) {
  focused = key;
  if (elements.has(key)) showMarks();
  else paint(painted);
  elements.get(key).focus({ preventScroll: true });
}

function announce(text) {
  document.getElementById("status").textContent = text;
}

function keyAt(event) {
  const drawn = event.target.closest?.("[data-key]");
  if (drawn || !painted.isPlain) return drawn?.dataset.key;
  const { x, y } = inDrawing(event);
  return keyOfPoint(x, y);
}

canvas.addEventListener("click", (event) => {
  if (canvas.classList.contains("dragged")) return;
  const key = keyAt(event);
  if (key && event.target.closest(".toggle")) toggle(key);
  else {
    select(key);
    if (key) focusOn(key);
  }
});
canvas.addEventListener("dblclick", (event) => {
  const key = keyAt(event);
  if (key) toggle(key);
});
canvas.addEventListener("pointerover", (event) => {
  const key = keyAt(event);
  if (!key) return;
  markBand(subject(key).node);
  describe(subject(key));
});
canvas.addEventListener("pointerout", (event) => {
  if (!keyAt(event)) return;
  markBand(selected?.node);
  describe(selected);
});

// ---- Keys ----

/** Moves along a graph by some items. */
function moveBy(step) {
  const from = keyInFocus();
  const side = from ? scene.items.get(from).side : "forward";
  const keys = [...scene.items.values()].filter((item) => item.side === side).map(({ key }) => key);
  const at = from ? keys.indexOf(from) : -1;
  arriveAt(keys[Math.min(Math.max(at + step, 0), keys.length - 1)]);
}

/** Moves to the other graph, to what stands beside. */
function cross(side) {
  const from = keyInFocus();
  if (!from) return;
  const key = keyOf(side, subject(from).node);
  if (scene.items.has(key)) arriveAt(key);
}

/** What the keys are at: what has the focus; after a click on a button, what had it. */
function keyInFocus() {
  const key = document.activeElement?.dataset?.key;
  return key || (document.activeElement?.closest("button") && focused);
}

function arriveAt(key) {
  bringIntoSight(scene.items.get(key).place);
  focusOn(key);
  markBand(subject(key).node);
  describe(subject(key));
}

const onItem = (action) => () => {
  const key = keyInFocus();
  if (key) action(key);
};

const KEYS = {
  ArrowDown: () => moveBy(1),
  ArrowUp: () => moveBy(-1),
  ArrowLeft: () => cross("forward"),
  ArrowRight: () => cross("backward"),
  Enter: onItem(select),
  " ": onItem(toggle),
  Escape: () => select(null),
  "/": () => query.focus(),
  "+": () => zoomBy(ZOOM.step),
  "-": () => zoomBy(1 / ZOOM.step),
  0: () => fitView(true),
};

/** Whether a key is for what has the focus: text and tables have all, buttons those that
 * press them, and tabs the arrows. */
function isTaken({ target, key }) {
  if (document.getElementById("graph").hidden && !["/", "Escape"].includes(key)) return true;
  const isPressed = target.closest?.("button") && ["Enter", " "].includes(key);
  const isTab = target.role === "tab" && ["ArrowLeft", "ArrowRight"].includes(key);
  return isPressed || isTab || (target.closest?.("input, aside") && key !== "Escape");
}

document.addEventListener("keydown", (event) => {
  if (event.target === query && event.key === "Escape") query.blur();
  if (isTaken(event) || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});

// ---- Buttons ----

const BUTTONS = {
  unfold: () => foldAll(true),
  fold: () => foldAll(false),
  in: () => zoomBy(ZOOM.step),
  out: () => zoomBy(1 / ZOOM.step),
  fit: () => fitView(true),
  theme: changeTheme,
  save: saveDrawing,
  compare: () => other.click(),
};

for (const [id, action] of Object.entries(BUTTONS)) document.getElementById(id).addEventListener("click", action);

function foldAll(isOpen) {
  openAll(isOpen);
  redraw(null);
  select(null);
  fitView(false);
}

function changeTheme() {
  const page = document.documentElement;
  const isDark = getComputedStyle(page).colorScheme === "dark" || (!page.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  page.dataset.theme = isDark ? "light" : "dark";
}

const other = document.getElementById("other");
other.addEventListener("change", () => other.files.length && compareWith(other.files[0]));

const tabs = [...document.querySelectorAll("[role=tab]")];
for (const tab of tabs) {
  tab.addEventListener("click", () => showTab(tab.id.slice(4)));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const shown = tabs.filter(({ hidden }) => !hidden);
    const next = shown[(shown.indexOf(tab) + step + shown.length) % shown.length];
    showTab(next.id.slice(4));
    next.focus();
  });
}

// ---- The beginning ----

document.getElementById("title").textContent = contents.title;
document.getElementById("summary").textContent = contents.summary;
document.getElementById("left-heading").textContent = "forward \u2193";
document.getElementById("right-heading").textContent = contents.step ? "\u2191 backward, optimizer" : "\u2191 backward";
openAtFirst(canvas.clientWidth / READABLE);
draw();
drawMemory();
if (losses.length) showTraining([losses]);
showTab("graph");
fitView(false);
const address = location.hash;
select(null);
followAddress(address);
window.requestIdleCallback?.((time) => layOutAhead(time));
// What a reader may look at in the browser's console.
window.report = Object.freeze({
  ...{ contents, forward, backward, units, scene, elements, canvas, view },
  ...{ zoomBy, inSight, meets, covers, shownKey, stepKey },
  ...{ selected: () => selected, painted: () => painted },
});
window.addEventListener("resize", () => {
  keepGraphsInSight();
  showView();
});
