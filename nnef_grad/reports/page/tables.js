"use strict";
// The tables: what each layer and each module costs in both passes, and the operations by kind. They are
// made when they are first seen.

const LAYER_COLUMNS = [
  ["layer", (unit) => unit.operation.results[0]],
  ["operation", (unit) => unit.operation.kind],
  ["shape", (unit) => shapeText(forward, unit.operation.results[0])],
  ["parameters", parametersOf, countText],
  ["multiply-adds forward", (unit) => unit.operation.multiplyAdds, countText],
  ["multiply-adds backward", (unit) => sum(unit.beside, "multiplyAdds"), countText],
  ["bytes forward", (unit) => unit.operation.bytesMoved, byteText],
  ["bytes backward", (unit) => sum(unit.beside, "bytesMoved"), byteText],
];

const MODULE_COLUMNS = [
  ["module", (module) => module.name],
  ["operations", (module) => module.units.length, String],
  ["parameters", (module) => total(module, parametersOf), countText],
  ["multiply-adds forward", (module) => total(module, (unit) => unit.operation.multiplyAdds), countText],
  ["multiply-adds backward", (module) => total(module, (unit) => sum(unit.beside, "multiplyAdds")), countText],
  ["bytes forward", (module) => total(module, (unit) => unit.operation.bytesMoved), byteText],
  ["bytes backward", (module) => total(module, (unit) => sum(unit.beside, "bytesMoved")), byteText],
];

const total = ({ units }, of) => units.reduce((all, unit) => all + of(unit), 0);

const KIND_COLUMNS = [
  ["operation", (kind) => kind.name],
  ["forward", (kind) => kind.forward.length, String],
  ["backward", (kind) => kind.backward.length, String],
  ["multiply-adds forward", (kind) => sum(kind.forward, "multiplyAdds"), countText],
  ["multiply-adds backward", (kind) => sum(kind.backward, "multiplyAdds"), countText],
  ["bytes forward", (kind) => sum(kind.forward, "bytesMoved"), byteText],
  ["bytes backward", (kind) => sum(kind.backward, "bytesMoved"), byteText],
];

/** How many elements the variables of a unit have. */
function parametersOf(unit) {
  const names = unit.variables.filter((o) => o.kind === "variable").flatMap((o) => o.results);
  return names.reduce((total, name) => total + forward.tensors.get(name).shape.reduce((a, b) => a * b, 1), 0);
}

/** The modules, each with the units that are in no module inside of it: no cost is counted twice. */
function modules() {
  const found = new Map();
  for (const unit of units.values()) {
    const name = foldsAround(unit).map((fold) => (fold.parent ? fold.name : "")).filter(Boolean).reverse().join("/") || contents.title;
    if (!found.has(name)) found.set(name, { name, units: [] });
    found.get(name).units.push(unit);
  }
  return [...found.values()];
}

function kinds() {
  const found = new Map();
  for (const graph of [forward, backward]) {
    for (const operation of graph.operations) {
      if (!found.has(operation.kind)) found.set(operation.kind, { name: operation.kind, forward: [], backward: [] });
      found.get(operation.kind)[graph.side].push(operation);
    }
  }
  return [...found.values()].sort((a, b) => b.forward.length + b.backward.length - a.forward.length - a.backward.length);
}

const TABLES = {
  layers: () => sortable("What each layer costs, in both passes", LAYER_COLUMNS, [...units.values()], (unit) => goTo(unit.operation)),
  modules: () => sortable("What each module costs, in both passes", MODULE_COLUMNS, modules(), (module) => goTo(module.units[0].operation)),
  kinds: () => sortable("Operations by kind", KIND_COLUMNS, kinds(), (kind) => searchFor(kind.name)),
};

/** A table whose headings sort it, with bars behind the numbers; a row leads to the graph. */
function sortable(caption, columns, rows, open) {
  const body = html("tbody");
  const most = columns.map(([, value, text]) => (text ? Math.max(...rows.map(value), 1) : 0));
  const fill = (ordered) => {
    body.replaceChildren();
    fillRows(body, ordered.map((row) => () => tableRow(columns, most, row, open)));
  };
  fill(rows);
  const heads = columns.map(([name, value, text]) => {
    const button = html("button", { type: "button" }, name);
    const head = html("th", { scope: "col", class: text ? "number" : null, "aria-sort": "none" }, button);
    button.addEventListener("click", () => {
      const isDown = head.getAttribute("aria-sort") !== "descending" && Boolean(text);
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      fill([...rows].sort((a, b) => compare(value(a), value(b)) * (isDown ? -1 : 1)));
    });
    return head;
  });
  const totals = columns.map(([, value, text], index) => {
    if (!text) return html("td", {}, index === 0 ? "all" : "");
    return html("td", { class: "number" }, text(rows.reduce((total, row) => total + value(row), 0)));
  });
  return html("table", { class: "wide" }, html("caption", {}, caption), html("thead", {}, html("tr", {}, ...heads)), body, html("tfoot", {}, html("tr", {}, ...totals)));
}

const ROWS = 200; // that are made at once
const unfilled = new Map(); // the rows that are still to be made, by the bodies of tables

/** Makes rows as far as they can be seen, and the others when nothing else is to be done. */
function fillRows(body, rows) {
  body.append(...rows.slice(0, ROWS).map((make) => make()));
  const rest = rows.slice(ROWS);
  unfilled.set(body, rest);
  if (rest.length) (window.requestIdleCallback || setTimeout)(() => unfilled.get(body) === rest && fillRows(body, rest));
}

/** Makes all of them at once, for paper. */
function fillWhole() {
  Object.keys(TABLES).forEach(fillTable);
  for (const [body, rest] of unfilled) {
    unfilled.delete(body);
    body.append(...rest.map((make) => make()));
  }
}

const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b));

function tableRow(columns, most, row, open) {
  const cells = columns.map(([, value, text], index) => {
    const found = value(row);
    if (index === 0) {
      const button = html("button", { type: "button" }, String(found));
      button.addEventListener("click", () => open(row));
      return html("th", { scope: "row" }, button);
    }
    const cell = html("td", { class: text ? "number" : null }, text ? (found ? text(found) : "") : String(found));
    if (text && found) cell.style.setProperty("--part", `${(100 * found) / most[index]}%`);
    return cell;
  });
  return html("tr", {}, ...cells);
}

/** Shows one of the views. */
function showTab(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const isShown = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", isShown);
    tab.tabIndex = isShown ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !isShown;
  }
  fillTable(name);
}

function fillTable(name) {
  const panel = document.getElementById(name);
  if (name in TABLES && !panel.hasChildNodes()) panel.append(TABLES[name]());
}

window.addEventListener("beforeprint", fillWhole);

// Of a graph without modules there is nothing to compare.
document.getElementById("tab-modules").hidden = modules().length < 2;
