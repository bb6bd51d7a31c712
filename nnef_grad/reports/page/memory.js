"use strict";
// The bars of memory: how much is alive while each operation runs, in the order of both
// graphs, on one scale.

const BARS = 72; // the height of the highest
const most = Math.max(forward.totals.peak_bytes, backward.totals.peak_bytes, 1);

function drawMemory() {
  const charts = [forward, backward].map(memoryChart);
  document.getElementById("memory").replaceChildren(...charts);
}

function memoryChart(graph) {
  const run = graph.operations.filter((o) => o.bytesAlive !== null);
  const width = WIDE / Math.max(run.length, 1);
  const high = (operation) => (BARS * operation.bytesAlive) / most;
  const bar = (operation, index) => `M${round(index * width * 10) / 10},${BARS}v${-round(high(operation))}h${Math.max(width * 0.92, width - 1)}V${BARS}z`;
  const name = `${graph.side === "forward" ? "Forward" : "Backward"} memory`;
  const peak = run.length ? `peak ${byteText(graph.totals.peak_bytes)} at ${graph.peak.results[0]}` : "nothing is computed";
  const at = run.indexOf(graph.peak) * width;
  const whole = plot(
    {
      height: BARS,
      name: `${name} over ${run.length} operations: ${peak}`,
      x: linear(0.5, Math.max(run.length, 1) + 0.5, COUNTS),
      y: linear(0, most, BYTES),
      unit: "operation",
    },
    svg("path", { d: run.map(bar).join(""), class: `bars ${graph.side}` }),
    svg("path", { class: "marked", id: `marked-${graph.side}` }),
    svg("path", { d: run.length ? `M0,${round(BARS - high(graph.peak))}H${WIDE}` : "", class: "peak" }),
    svg("rect", { x: at, y: round(BARS - high(graph.peak)), width: Math.max(width, 3), height: round(high(graph.peak)), class: "peak" })
  );
  const chart = whole.firstChild;
  const text = html("span", {}, peak);
  const pointed = (event) => run[Math.min(Math.floor(partAt(event, chart) * run.length), run.length - 1)];
  const told = ({ bytesAlive, results, kind }) => `${byteText(bytesAlive)} at ${results[0]} = ${kind}; ${peak}`;
  if (run.length) {
    chart.addEventListener("pointermove", (event) => (text.textContent = told(pointed(event))));
    chart.addEventListener("pointerleave", () => (text.textContent = peak));
    chart.addEventListener("click", (event) => goTo(pointed(event)));
  }
  graph.bars = { run, bar };
  return html("figure", {}, html("figcaption", {}, html("b", {}, name), " ", text), whole);
}

/** Marks the bars of what is selected. */
function showBars(what) {
  for (const graph of [forward, backward]) {
    const chosen = what ? new Set(what.operation && graph === backward ? [what.operation] : sideOperations(what.node, graph.side)) : new Set();
    const ways = graph.bars.run.map((o, index) => (chosen.has(o) ? graph.bars.bar(o, index) : ""));
    document.getElementById(`marked-${graph.side}`).setAttribute("d", ways.join(""));
  }
}
