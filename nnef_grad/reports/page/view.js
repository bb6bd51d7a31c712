"use strict";
// What is seen of the drawing: pan and zoom.

const canvas = document.getElementById("canvas");
const view = { x: 0, y: 0, zoom: 1 };
const ZOOM = { least: 0.02, beside: 0.3, first: 0.56, most: 3, step: 1.25 };
const SMALLEST = 9; // pixels of a label
const READABLE = SMALLEST / 11; // the least zoom at which everything that is written is read
// Further out, cards have their kinds alone, in larger letters; below the last, no words.
const SCALES = [READABLE, 0.55, 0.37, 0.25];
const MARGIN = 28;
const HEADINGS = 34; // of the two graphs, above them

function showView() {
  if (canvas.hasAttribute("viewBox")) return; // on paper
  world.setAttribute("transform", `translate(${view.x},${view.y}) scale(${view.zoom})`);
  for (const heading of document.getElementById("headings").children) {
    heading.style.left = `${view.x + heading.dataset.x * view.zoom}px`;
  }
  paintInSight();
}

/** The part of the drawing that the canvas shows. */
function inSight() {
  const { clientWidth, clientHeight } = canvas;
  return { x: -view.x / view.zoom, y: -view.y / view.zoom, width: clientWidth / view.zoom, height: clientHeight / view.zoom };
}

/** Where a point of the window is in the drawing. */
function inDrawing({ clientX, clientY }) {
  const { left, top } = canvas.getBoundingClientRect();
  return { x: (clientX - left - view.x) / view.zoom, y: (clientY - top - view.y) / view.zoom };
}

function zoomBy(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const zoom = Math.min(Math.max(view.zoom * factor, ZOOM.least), ZOOM.most);
  view.x = x - ((x - view.x) * zoom) / view.zoom;
  view.y = y - ((y - view.y) * zoom) / view.zoom;
  view.zoom = zoom;
  showView();
}

/** The least zoom at which labels are as they are now: 0 if there are none. */
const scaleOf = (zoom) => SCALES.find((least) => zoom >= least) || 0;

/** The zoom at which both graphs have the width of the canvas. */
function zoomToWidth() {
  return (canvas.clientWidth - 2 * MARGIN) / layout.width;
}

/** Shows both graphs side by side from their top, if at least the kinds can be read; with `isWhole`,
 * all of them. */
function fitView(isWhole) {
  const wide = zoomToWidth();
  const high = (canvas.clientHeight - HEADINGS - MARGIN) / layout.height;
  const zoom = Math.min(wide, isWhole || high > READABLE ? high : wide);
  const isReadable = layout.width * READABLE <= canvas.clientWidth; // both graphs, without margins
  const least = isWhole ? ZOOM.least : isReadable ? READABLE : ZOOM.first;
  view.zoom = Math.min(Math.max(zoom, least), 1.15);
  view.x = Math.max((canvas.clientWidth - layout.width * view.zoom) / 2, isWhole ? -Infinity : MARGIN / 2);
  const room = canvas.clientHeight - HEADINGS - layout.height * view.zoom;
  view.y = HEADINGS + Math.max(room / 2, 8);
  showView();
}

/** Moves a place of the drawing into sight, if it is not. */
function bringIntoSight(place) {
  const sight = inSight();
  const heading = HEADINGS / view.zoom;
  if (covers({ ...sight, y: sight.y + heading, height: sight.height - heading }, place)) return;
  view.x = canvas.clientWidth / 2 - (place.x + place.width / 2) * view.zoom;
  view.y = canvas.clientHeight / 2 - (place.y + place.height / 2) * view.zoom;
  keepGraphsInSight();
  showView();
}

/** Where a graph is narrower than the canvas, sideways nothing needs to move. */
function keepGraphsInSight() {
  if (layout.width * view.zoom <= canvas.clientWidth) view.x = (canvas.clientWidth - layout.width * view.zoom) / 2;
}

canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) {
      const { left, top } = canvas.getBoundingClientRect();
      zoomBy(Math.exp(-event.deltaY / 300), event.clientX - left, event.clientY - top);
      return;
    }
    view.x -= event.shiftKey ? event.deltaY : event.deltaX;
    view.y -= event.shiftKey ? 0 : event.deltaY;
    showView();
  },
  { passive: false }
);

canvas.addEventListener("pointerdown", (down) => {
  if (down.button !== 0) return;
  let before = down;
  const move = (event) => {
    if (Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) > 4) canvas.classList.add("dragged");
    view.x += event.clientX - before.clientX;
    view.y += event.clientY - before.clientY;
    before = event;
    showView();
  };
  const stop = () => {
    window.removeEventListener("pointermove", move);
    // The click that ends a drag comes after this.
    setTimeout(() => canvas.classList.remove("dragged"));
  };
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", stop, { once: true });
});

/** Draws everything, whatever is in sight: on paper, and for a file. */
function showWhole() {
  world.removeAttribute("transform");
  paint({ area: EVERYTHING, isPlain: false });
  canvas.setAttribute("viewBox", `-24 -12 ${layout.width + 48} ${layout.height + 24}`);
}

/** Draws again what is in sight. */
function showPart() {
  // First nothing: the size of the canvas would be that with all of it.
  paint({ area: { x: 0, y: 0, width: 0, height: 0 }, isPlain: false });
  canvas.removeAttribute("viewBox");
  painted = null;
  showView();
}

window.addEventListener("beforeprint", showWhole);
window.addEventListener("afterprint", showPart);
