// The page: training, a chart of the loss, drawings, what the network sees in them, and the tuned model.
import { Training, batchOf } from "./training.mjs";

const provider = location.search === "?webgpu" ? "webgpu" : "wasm";
const ort = await import(`./node_modules/onnxruntime-web/dist/ort.${provider}.bundle.min.mjs`);
const find = (id) => document.getElementById(id);
const [drawing, saliency, chart] = ["drawing", "saliency", "chart"].map((id) => find(id).getContext("2d"));
const read = async (file) => new Uint8Array(await (await fetch(file)).arrayBuffer());
const training = await Training.open(ort, read, { executionProviders: [provider] });
const [digits, losses] = [await read("digits.bin"), []];

find("train").addEventListener("click", async () => {
  find("train").disabled = true;
  for (let end = losses.length + 50; losses.length < end; plot()) {
    losses.push(await training.step(batchOf(ort, digits, losses.length), Number(find("rate").value)));
    await new Promise(requestAnimationFrame);
  }
  find("train").disabled = false;
  await look();
});

function plot() {
  chart.reset();
  losses.forEach((loss, i) => chart.lineTo((i / Math.max(losses.length - 1, 1)) * 320, 160 * (1 - loss / Math.max(...losses))));
  chart.stroke();
  find("loss").value = `loss ${losses.at(-1).toFixed(6)} after ${losses.length} steps`;
}

Object.assign(drawing, { lineWidth: 24, lineCap: "round", lineJoin: "round" });
drawing.canvas.addEventListener("pointerdown", () => drawing.beginPath());
drawing.canvas.addEventListener("pointermove", (event) => {
  drawing.lineTo(event.offsetX, event.offsetY);
  if (event.buttons) drawing.stroke();
});
drawing.canvas.addEventListener("pointerup", look);
find("clear").addEventListener("click", () => {
  drawing.clearRect(0, 0, 160, 160);
  look();
});

/** What the network as it is now makes of the drawing, and which of its pixels matter. */
async function look() {
  const small = new OffscreenCanvas(8, 8).getContext("2d");
  small.drawImage(drawing.canvas, 0, 0, 8, 8);
  const alphas = small.getImageData(0, 0, 8, 8).data.filter((_, i) => i % 4 === 3);
  const pixels = Float32Array.from(alphas, (alpha) => alpha / 255);
  const input = new ort.Tensor("float32", pixels, [1, 1, 8, 8]);
  const run = async (file) => {
    const session = await training.load(await training.tuned(file));
    const [result] = Object.values(await session.run({ input }));
    await session.release();
    return result.data;
  };
  const [scores, moves] = [await run("digits.onnx"), await run("saliency.onnx")];
  find("seen").value = scores.indexOf(Math.max(...scores));
  saliency.clearRect(0, 0, 160, 160);
  moves.forEach((value, i) => {
    saliency.fillStyle = `rgb(40 110 220 / ${value / (Math.max(...moves) || 1)})`;
    saliency.fillRect(20 * (i % 8), 20 * Math.floor(i / 8), 20, 20);
  });
}

find("save").addEventListener("click", async () => {
  const file = new Blob([await training.tuned("digits.onnx")]);
  Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: "tuned.onnx" }).click();
});

find("train").disabled = find("save").disabled = false;
