"use strict";
// Charts: a drawing that is stretched to the width of its place, between axes that are not.

const WIDE = 1000; // the width of a drawing in its own units

/** What the ticks of an axis are: steps of a base and its parts, not below the least. */
const BYTES = { base: 2, parts: [1], least: 1, text: byteText };
const COUNTS = { base: 10, parts: [1, 2, 5], least: 1, text: countText };
const NUMBERS = { base: 10, parts: [1, 2, 5], least: 0, text: (number) => String(Number(number.toPrecision(6))) };

/** A scale from a number to another: where a number is, from 0 to 1, and its ticks. */
function linear(from, to, kind) {
  const at = (number) => (number - from) / (to - from || 1);
  return { at, ticks: roundNumbers(from, to, kind).map((tick) => [at(tick), kind.text(tick)]) };
}

/** The same for logarithms: ticks at powers of ten, and between them where they are few. */
function logarithmic(from, to) {
  const [low, high] = [Math.log10(from), Math.log10(to)];
  const at = (number) => (Math.log10(number) - low) / (high - low || 1);
  const parts = high - low < 3 ? NUMBERS.parts : [1];
  const powers = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, index) => Math.floor(low) + index);
  const some = powers.filter((power) => power % Math.ceil((high - low) / 6 || 1) === 0);
  const found = some.flatMap((power) => parts.map((part) => Number(`${part}e${power}`)));
  const ticks = high - low < 1 ? roundNumbers(from, to, NUMBERS) : found.filter((tick) => tick >= from && tick <= to);
  return { at, ticks: ticks.map((tick) => [at(tick), NUMBERS.text(tick)]) };
}

/** From one number to another, two to five that are round. */
function roundNumbers(from, to, { base, parts, least }) {
  const half = (to - from || 1) / 2;
  const power = base ** Math.floor(Math.log2(half) / Math.log2(base));
  const step = Math.max(least, power * parts.findLast((part) => part === 1 || part * power <= half));
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, index) => (first + index) * step);
}

/** A drawing of a height and a name, between its axes. */
function plot({ height, name, x, y, unit }, ...shapes) {
  const grid = y.ticks.map(([at]) => `M0,${round(height * (1 - at))}H${WIDE}`).join("");
  const settings = { viewBox: `0 0 ${WIDE} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": name };
  const chart = svg("svg", settings, svg("path", { d: grid, class: "grid" }), ...shapes);
  const ticks = Object.entries({ x, y }).flatMap(([axis, scale]) => scale.ticks.map((tick) => tickOf(axis, tick)));
  return html("div", { class: "plot" }, chart, ...ticks, html("span", { class: "unit", "aria-hidden": "true" }, unit));
}

function tickOf(axis, [at, text]) {
  const tick = html("span", { class: `tick ${axis}`, "aria-hidden": "true" }, text);
  tick.style.setProperty("--at", `${100 * at}%`);
  return tick;
}

/** Where the pointer is on a chart, from 0 to 1. */
function partAt(event, chart) {
  const { left, width } = chart.getBoundingClientRect();
  return Math.min(Math.max((event.clientX - left) / width, 0), 1);
}
