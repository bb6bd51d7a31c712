"use strict";
// The bars of memory: how much is alive while each operation runs, in the order of both
// graphs, on one scale.

const BARS = { width: 1000, height: 72 };
const most = Math.max(forward.totals.peak_bytes, backward.totals.peak_bytes, 1);

function drawMemory() {
  const charts = [forward, backward].map(memoryChart);
  document.getElementById("memory").replaceChildren(...charts);
}

function memoryChart(graph) {
  const run = graph.operations.filter((o) => o.bytesAlive !== null);
  const width = BARS.width / Math.max(run.length, 1);
  const high = (operation) => (BARS.height * operation.bytesAlive) / most;
  const bar = (operation, index) => `M${round(index * width * 10) / 10},${BARS.height}v${-round(high(operation))}h${Math.max(width * 0.92, width - 1)}V${BARS.height}z`;
  const name = `${graph.side === "forward" ? "Forward" : "Backward"} memory`;
  const peak = run.length ? `peak ${byteText(graph.totals.peak_bytes)} at ${graph.peak.results[0]}` : "nothing is computed";
  const chart = svg("svg", { viewBox: `0 0 ${BARS.width} ${BARS.height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${name} over ${run.length} operations: ${peak}` });
  const at = run.indexOf(graph.peak) * width;
  chart.append(
    svg("path", { d: run.map(bar).join(""), class: `bars ${graph.side}` }),
    svg("path", { class: "marked", id: `marked-${graph.side}` }),
    svg("path", { d: run.length ? `M0,${round(BARS.height - high(graph.peak))}H${BARS.width}` : "", class: "peak" }),
    svg("rect", { x: at, y: round(BARS.height - high(graph.peak)), width: Math.max(width, 3), height: round(high(graph.peak)), class: "peak" })
  );
  const text = html("span", {}, peak);
  chart.addEventListener("pointermove", (event) => {
    const found = operationAt(event, chart, run);
    text.textContent = `${byteText(found.bytesAlive)} at ${found.results[0]} = ${found.kind}; ${peak}`;
  });
  chart.addEventListener("pointerleave", () => (text.textContent = peak));
  chart.addEventListener("click", (event) => goTo(operationAt(event, chart, run)));
  graph.bars = { run, bar };
  return html("figure", {}, html("figcaption", {}, html("b", {}, name), " ", text), chart);
}

function operationAt(event, chart, run) {
  const { left, width } = chart.getBoundingClientRect();
  const index = Math.floor(((event.clientX - left) / width) * run.length);
  return run[Math.min(Math.max(index, 0), run.length - 1)];
}

/** Marks the bars of what is selected. */
function showBars(what) {
  for (const graph of [forward, backward]) {
    const chosen = what ? new Set(what.operation && graph === backward ? [what.operation] : sideOperations(what.node, graph.side)) : new Set();
    const ways = graph.bars.run.map((o, index) => (chosen.has(o) ? graph.bars.bar(o, index) : ""));
    document.getElementById(`marked-${graph.side}`).setAttribute("d", ways.join(""));
  }
}
