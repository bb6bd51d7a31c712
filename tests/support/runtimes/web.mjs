// Runs ONNX files in a package of npm, such as onnxruntime-web: a line of JSON for each, with arrays in base64.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [samples, name] = process.argv.slice(2);
const module = await import(pathToFileURL(createRequire(`${samples}/`).resolve(name)));
const ort = module.default ?? module;
const arrays = { float32: Float32Array, int64: BigInt64Array, bool: Uint8Array };

const tensor = ({ type, dims, data }) => {
  const bytes = Uint8Array.from(Buffer.from(data, "base64"));
  return new ort.Tensor(type, new arrays[type](bytes.buffer), dims);
};
const written = ({ type, dims, data }) => {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  return { type, dims, data: bytes.toString("base64") };
};
const map = (object, change) => Object.fromEntries(Object.entries(object).map(([name, x]) => [name, change(x)]));

for await (const line of createInterface({ input: process.stdin })) {
  const { path, fed } = JSON.parse(line);
  try {
    const session = await ort.InferenceSession.create(path);
    const made = await session.run(map(fed, tensor));
    await session.release();
    console.log(JSON.stringify({ made: map(made, written) }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
