// A training by a step in ONNX, in any build of ONNX Runtime for JavaScript.

export class Training {
  /** `read` gives the bytes of a file beside train.json; the options are those of sessions. */
  static async open(ort, read, options) {
    const training = Object.assign(new Training(), { ort, read, options });
    training.told = JSON.parse(new TextDecoder().decode(await read("train.json")));
    training.session = await training.load(training.told.step);
    const start = await training.load(training.told.start);
    training.state = await start.run({});
    return training;
  }

  /** Trains on a batch of pixels from 0 to 1 and their labels, and returns the loss before. */
  async step({ images, labels }, rate) {
    const { Tensor } = this.ort;
    const results = await this.session.run({
      input: images,
      target_output: new Tensor("int64", BigInt64Array.from(labels, BigInt), [labels.length]),
      learning_rate: new Tensor("float32", [rate], []),
      ...this.state,
    });
    this.state = Object.fromEntries(Object.entries(this.told.state).map(([old, next]) => [old, results[next]]));
    return results[this.told.loss].data[0];
  }

  /** The bytes of a model, with the values that have been trained in place of its own. */
  async tuned(name) {
    const bytes = Uint8Array.from(await this.read(name));
    for (const [label, place] of initializers(bytes)) {
      const trained = this.state[label]?.data;
      if (trained) bytes.set(new Uint8Array(trained.buffer, trained.byteOffset, trained.byteLength), place);
    }
    return bytes;
  }

  /** A session of a file, or of bytes. */
  async load(model) {
    const bytes = typeof model === "string" ? await this.read(model) : model;
    return this.ort.InferenceSession.create(bytes, this.options);
  }
}

/** The batch of a number, of digits.bin: 64 pixels from 0 to 16 and a label, for each image. */
export function batchOf(ort, digits, number, size = 32) {
  const count = digits.length / 65;
  const rows = Array.from({ length: size }, (_, i) => 65 * ((number * size + i) % count));
  const pixels = rows.flatMap((row) => Array.from(digits.subarray(row, row + 64), (value) => value / 16));
  return { images: new ort.Tensor("float32", pixels, [size, 1, 8, 8]), labels: rows.map((row) => digits[row + 64]) };
}

// Of ONNX in the encoding of protocol buffers: the graph of a model, its initializers, a name, and raw data.
const [GRAPH, INITIALIZER, NAME, DATA] = [7, 5, 8, 9];

/** The name of each initializer, and where its data are. */
function* initializers(bytes) {
  for (const graph of fields(bytes, GRAPH, 0, bytes.length)) {
    for (const tensor of fields(bytes, INITIALIZER, ...graph)) {
      const [[name], [data]] = [NAME, DATA].map((field) => [...fields(bytes, field, ...tensor)]);
      if (data) yield [new TextDecoder().decode(bytes.subarray(...name)), data[0]];
    }
  }
}

/** Where the contents of a field begin and end, each time that it is there. */
function* fields(bytes, wanted, place, end) {
  const varint = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = bytes[place++];
      value += (byte % 128) * scale;
      if (byte < 128) return value;
    }
  };
  const lengths = { 0: () => void varint(), 1: () => 8, 2: varint, 5: () => 4 };
  while (place < end) {
    const key = varint();
    const length = lengths[key % 8]() ?? 0;
    if (key >> 3 === wanted) yield [place, place + length];
    place += length;
  }
}
