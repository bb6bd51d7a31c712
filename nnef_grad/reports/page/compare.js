"use strict";
// Another report beside this one: what has changed between them. Tensors of one name are
// taken for the same.

/** Compares this report with that in a file. */
async function compareWith(file) {
  const panel = document.getElementById("compared");
  try {
    const page = new DOMParser().parseFromString(await file.text(), "text/html");
    const data = JSON.parse(page.getElementById("contents").textContent);
    const before = { ...data, graphs: [readGraph(data.forward, "forward"), readGraph(data.backward, "backward")] };
    panel.replaceChildren(...comparison(before, file.name));
    if (losses.length || data.losses.length) showTraining([losses, data.losses]);
  } catch {
    panel.replaceChildren(html("p", {}, `${file.name} is no report that this version of nnef-grad has written.`));
  }
  document.getElementById("tab-compared").hidden = false;
  showTab("compared");
}

function comparison(before, name) {
  const now = { ...contents, graphs: [forward, backward] };
  const changes = changedOperations(before, now);
  const shown = changes.filter(([, operation]) => operation).map(([, operation]) => operation);
  const button = html("button", { type: "button" }, `Show ${counted(shown.length, "operation")} in the graphs`);
  button.addEventListener("click", () => showFound(shown));
  return [
    html("h2", {}, "What has changed"),
    html("p", {}, `Before, ${name}: ${before.summary}`),
    html("p", {}, `Now: ${now.summary}`),
    changeTable("Costs", ["", "forward", "backward"], costChanges(before, now)),
    changeTable("Operations by kind", ["operation", "forward", "backward"], kindChanges(before, now)),
    changeTable("Verdicts of gradients", ["gradient", "before", "now"], valueChanges(before, now)),
    changeTable("Operations", ["result", "before", "now"], changes.map(([row]) => row)),
    shown.length ? button : null,
  ].filter(Boolean);
}

/** A table of changes; the first cell of each row is its heading. */
function changeTable(caption, heads, rows) {
  const body = html("tbody");
  fillRows(body, rows.map(([first, ...cells]) => () => html("tr", {}, html("th", { scope: "row" }, first), ...cells.map((cell) => html("td", {}, cell)))));
  const head = html("tr", {}, ...heads.map((name) => html("th", { scope: "col" }, name)));
  const nothing = rows.length ? null : html("tbody", {}, html("tr", {}, html("td", { colspan: heads.length }, "no change")));
  return html("table", { class: "wide changes" }, html("caption", {}, caption), html("thead", {}, head), nothing || body);
}

/** A number before and now, and by how much it has changed. */
function changeText([before, now], text) {
  if (before === now) return text(now);
  const percent = Number(((100 * Math.abs(now - before)) / before).toPrecision(3));
  const change = before ? `${now > before ? "+" : "\u2212"}${percent} %` : "new";
  return `${text(before)} \u2192 ${text(now)} (${change})`;
}

function costChanges(before, now) {
  return COSTS.map(([name, cost, text]) => {
    const pairs = [0, 1].map((side) => [before, now].map(({ graphs }) => cost(graphs[side])));
    return [name, ...pairs.map((pair) => changeText(pair, text))];
  });
}

function kindChanges(before, now) {
  const counts = [0, 1].map((side) => [before, now].map(({ graphs }) => new Map(kindsOf(graphs[side].operations))));
  const names = [...new Set(counts.flat().flatMap((kinds) => [...kinds.keys()]))];
  const rows = names.map((name) => [name, counts.map((pair) => pair.map((kinds) => kinds.get(name) || 0))]);
  const changed = rows.filter(([, pairs]) => pairs.some(([first, second]) => first !== second));
  return changed.map(([name, pairs]) => [name, ...pairs.map((pair) => changeText(pair, String))]);
}

function valueChanges(before, now) {
  const names = [...new Set([before, now].flatMap(({ values }) => Object.keys(values)))];
  const word = (value) => value && (value.mark || value.verdict);
  const text = (value) => (value ? [word(value), `norm ${numberText(value.norm)}`].filter(Boolean).join(", ") : "");
  const changed = names.filter((name) => word(before.values[name]) !== word(now.values[name]));
  return changed.map((name) => [name, text(before.values[name]), text(now.values[name])]);
}

/** The operations whose text is another, with the row of each; and those that are gone. */
function changedOperations(before, now) {
  return now.graphs.flatMap((graph, side) => {
    const [old, made] = [before.graphs[side].makers, graph.makers];
    const names = new Set([graph, before.graphs[side]].flatMap(({ operations }) => operations.map(({ results }) => results[0])));
    const changed = [...names].filter((name) => old.get(name)?.text !== made.get(name)?.text);
    return changed.map((name) => [[nameOf(made.get(name), name), ...[old, made].map((makers) => html("code", {}, makers.get(name)?.text || ""))], made.get(name)]);
  });
}

/** A name that leads to its operation, if that is still there. */
function nameOf(operation, name) {
  if (!operation) return name;
  const button = html("button", { type: "button" }, name);
  button.addEventListener("click", () => goTo(operation));
  return button;
}
