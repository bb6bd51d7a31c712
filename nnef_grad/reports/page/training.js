"use strict";
// The losses of a training over its steps. Of many steps, neighbours are put together: a band
// from the least to the largest of them, and a line through their means.

const CURVE = { height: 300, points: 400 };
const losses = contents.losses;

/** Offers the view of the losses. */
function showTraining(runs) {
  document.getElementById("tab-training").hidden = false;
  drawTraining(runs);
}

/** Draws the losses of runs: that of this report, and that of another one. */
function drawTraining(runs, isLogarithmic = false) {
  const isShown = (loss) => (isLogarithmic ? loss > 0 : Number.isFinite(loss));
  const curves = runs.map((run) => neighbours(run.filter(([, loss]) => isShown(loss))));
  const button = html("button", { type: "button", "aria-pressed": String(isLogarithmic) }, "Logarithmic");
  button.addEventListener("click", () => {
    drawTraining(runs, !isLogarithmic);
    document.querySelector("#training button").focus();
  });
  const chart = curves.flat().length ? trainingChart(curves, isLogarithmic) : null;
  const words = runs.map((run, index) => html("figcaption", { class: `run${index}` }, aboutRun(run, isShown)));
  document.getElementById("training").replaceChildren(html("figure", {}, html("h2", {}, "Loss over steps"), button, ...words, chart));
}

/** Steps with their losses, put together where they are many. */
function neighbours(run) {
  const size = Math.ceil(run.length / CURVE.points);
  return Array.from({ length: Math.ceil(run.length / size || 0) }, (_, index) => {
    const part = run.slice(index * size, (index + 1) * size);
    const found = part.map(([, loss]) => loss);
    const mean = found.reduce((total, loss) => total + loss / found.length, 0);
    return { first: part[0][0], last: part[part.length - 1][0], least: Math.min(...found), largest: Math.max(...found), mean };
  });
}

function trainingChart(curves, isLogarithmic) {
  const all = curves.flat();
  const ends = (key) => all.map((point) => point[key]);
  const [least, largest] = [Math.min(...ends("least")), Math.max(...ends("largest"))];
  const x = linear(Math.min(...ends("first")), Math.max(...ends("last")), COUNTS);
  const y = isLogarithmic ? logarithmic(least, largest) : linear(Math.min(least, 0), largest, NUMBERS);
  const way = (points, key) => points.map((point) => `${round(WIDE * x.at((point.first + point.last) / 2))},${round(CURVE.height * (1 - y.at(point[key])))}`);
  const shapes = curves.filter((points) => points.length).flatMap((points) => [
    svg("path", { d: `M${[...way(points, "largest"), ...way(points, "least").reverse()].join("L")}z`, class: `spread run${curves.indexOf(points)}` }),
    svg("path", { d: `M${way(points, "mean").join("L")}`, class: `curve run${curves.indexOf(points)}` }),
  ]);
  return plot({ height: CURVE.height, name: `Loss over ${all.length} points`, x, y, unit: "step" }, ...shapes);
}

/** A run in words; what has no place on the axis is counted. */
function aboutRun(run, isShown) {
  if (!run.length) return "no losses";
  const [step, loss] = run[run.length - 1];
  const hidden = run.filter(([, value]) => !isShown(value));
  const gaps = hidden.length ? `; not shown: the losses of ${counted(hidden.length, "step")}, first ${numberText(hidden[0][1])} at step ${hidden[0][0]}` : "";
  return `${counted(run.length, "step")}, from a loss of ${numberText(run[0][1])} at step ${run[0][0]} to ${numberText(loss)} at step ${step}${gaps}`;
}
