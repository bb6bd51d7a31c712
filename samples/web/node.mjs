// The training of the page in Node.js: node node.mjs [steps] [package], with onnxruntime-node or onnxruntime-web.
import { readFile } from "node:fs/promises";
import { Training, batchOf } from "./training.mjs";

const [steps = 50, name = "onnxruntime-node"] = process.argv.slice(2);
const ort = await import(name);
const training = await Training.open(ort.default ?? ort, (file) => readFile(new URL(file, import.meta.url)));
const digits = await training.read("digits.bin");
for (let number = 0; number < steps; number++) console.log(await training.step(batchOf(training.ort, digits, number), 0.01));
