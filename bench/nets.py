"""The networks, as forward graphs with random weights.

AlexNet, VGG-19 and ResNet-50 are those that Khronos publishes (published.py). The others are
written here: compositional NNEF, whose fragments say what a layer is, while
Python counts the layers and declares their variables.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt

import numpy as np
import numpy.typing as npt

import nnef_grad
from bench.published import PUBLISHED
from nnef_grad import Graph
from nnef_grad.graph.extents import as_numbers
from nnef_grad.model import declared_variables

HEAD = "version 1.0;"
EXTENSIONS = """
extension KHR_enable_fragment_definitions;
extension KHR_enable_operator_expressions;
"""


class Body:
    """The statements of a graph, while they are written."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def external(self, name: str, *shape: int) -> str:
        return self.let(name, f"external(shape = {list(shape)})")

    def variable(self, name: str, *shape: int) -> str:
        return self.let(name, f"variable(shape = {list(shape)}, label = '{name}')")

    def let(self, name: str, value: str) -> str:
        """Writes an assignment, and returns its left side."""
        self.lines.append(f"    {name} = {value};")
        return name

    def affine(self, name: str, *shape: int) -> str:
        """A kernel or matrix, and the bias of its output channels, as arguments."""
        kernel = self.variable(f"{name}_weight", *shape)
        return f"{kernel}, {self.variable(f'{name}_bias', 1, shape[0])}"

    def text(self, name: str, fragments: str = "") -> str:
        """The document, with x for input and y for output."""
        head = [HEAD, EXTENSIONS, fragments] if fragments else [HEAD]
        return "\n".join([*head, f"graph {name}( x ) -> ( y )\n{{", *self.lines, "}"])

    def graph(self, name: str, fragments: str = "") -> Graph:
        return nnef_grad.loads(self.text(name, fragments), name=f"{name}.nnef")


# ---- Depthwise convolutions ----

NORMALIZED = """
fragment activate( x: tensor<scalar>, norm: tensor<scalar>[] ) -> ( y: tensor<scalar> )
{
    y = relu(batch_normalization(x, norm[0], norm[1], norm[2], norm[3], epsilon = 0.001));
}

fragment separable(
    x: tensor<scalar>,
    depthwise: tensor<scalar>, norm1: tensor<scalar>[],
    pointwise: tensor<scalar>, norm2: tensor<scalar>[],
    stride: integer[] )
-> ( y: tensor<scalar> )
{
    filtered = activate(conv(x, depthwise, stride = stride, groups = 0), norm1);
    y = activate(conv(filtered, pointwise), norm2);
}
"""
# The output channels and the stride of each separable convolution.
SEPARABLE = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)


def mobilenet(batch: int, image: int = 224) -> Graph:
    """After MobileNet: a depthwise convolution, then one of the size 1 x 1, each with
    batch normalization.
    """
    body = Body()
    body.external("x", batch, 3, image, image)
    kernel, norm = body.variable("stem", 32, 3, 3, 3), _norm(body, "norm", 32)
    h = body.let("h", f"activate(conv(x, {kernel}, stride = [2, 2]), {norm})")
    channels = 32
    for i, (wider, stride) in enumerate(SEPARABLE):
        depthwise = body.variable(f"depthwise{i}", channels, 1, 3, 3)
        norm1 = _norm(body, f"norm{i}_1", channels)
        pointwise = body.variable(f"pointwise{i}", wider, channels, 1, 1)
        norm2 = _norm(body, f"norm{i}_2", wider)
        arguments = f"{h}, {depthwise}, {norm1}, {pointwise}, {norm2}"
        h = body.let(f"h{i}", f"separable({arguments}, stride = [{stride}, {stride}])")
        channels = wider
    body.let("mean", f"squeeze(mean_reduce({h}, axes = [2, 3]), axes = [2, 3])")
    body.let("y", f"linear(mean, {body.affine('dense', 1000, channels)})")
    return body.graph("mobilenet", NORMALIZED)


def _norm(body: Body, name: str, channels: int) -> str:
    """The parameters of a batch normalization, as an array."""
    kinds = ("mean", "variance", "offset", "scale")
    names = [body.variable(f"{name}_{kind}", 1, channels) for kind in kinds]
    return f"[{', '.join(names)}]"


# ---- Upsampling ----

TWICE = """
fragment twice(
    x: tensor<scalar>,
    kernel1: tensor<scalar>, bias1: tensor<scalar>,
    kernel2: tensor<scalar>, bias2: tensor<scalar> )
-> ( y: tensor<scalar> )
{
    y = relu(conv(relu(conv(x, kernel1, bias1)), kernel2, bias2));
}

fragment halve( x: tensor<scalar> ) -> ( y: tensor<scalar> )
{
    y = max_pool(x, size = [1, 1, 2, 2], stride = [1, 1, 2, 2], border = 'ignore');
}
"""
# What doubles the extents on the way up, from the bottom: {h} is the input, {weights} are
# the kernel and the bias of a transposed convolution.
DOUBLE = (
    "deconv({h}, {weights}, stride = [2, 2], padding = [(0, 0), (0, 0)])",
    "nearest_upsample({h}, factor = [2, 2])",
    "multilinear_upsample({h}, factor = [2, 2], method = 'symmetric', border = 'replicate')",
)


def unet(batch: int, image: int = 224) -> Graph:
    """After U-Net: convolutions on the way down and up, with each of the ways of
    upsampling, and the features of the way down beside those of the way up.
    """
    body = Body()
    h, channels = body.external("x", batch, 3, image, image), 3
    skipped: list[tuple[str, int]] = []
    for i in range(len(DOUBLE)):
        wider = 16 << i
        h = body.let(f"down{i}", _twice(body, f"encoder{i}", h, channels, wider))
        skipped.append((h, wider))
        h, channels = body.let(f"half{i}", f"halve({h})"), wider
    h, wider = _twice(body, "bottom", h, channels, 2 * channels), 2 * channels
    h, channels = body.let("low", h), wider
    for i, double in enumerate(DOUBLE):
        weights = ""
        if "weights" in double:
            kernel = body.variable(f"deconv{i}_weight", channels, channels, 2, 2)
            weights = f"{kernel}, {body.variable(f'deconv{i}_bias', 1, channels)}"
        up = body.let(f"up{i}", double.format(h=h, weights=weights))
        beside, narrow = skipped.pop()
        joined = body.let(f"joined{i}", f"concat([{up}, {beside}], axis = 1)")
        h = _twice(body, f"decoder{i}", joined, channels + narrow, narrow)
        h, channels = body.let(f"level{i}", h), narrow
    body.let("y", f"conv({h}, {body.affine('head', 2, channels, 1, 1)})")
    return body.graph("unet", TWICE)


def _twice(body: Body, name: str, h: str, channels: int, wider: int) -> str:
    first = body.affine(f"{name}_1", wider, channels, 3, 3)
    second = body.affine(f"{name}_2", wider, wider, 3, 3)
    return f"twice({h}, {first}, {second})"


# ---- Attention ----

ATTENTION = """
fragment normalize( x: tensor<scalar>, norm: tensor<scalar>[] ) -> ( y: tensor<scalar> )
{
    mean, variance = moments(x, axes = [1]);
    y = (x - mean) * rsqrt(variance + 0.00001) * norm[0] + norm[1];
}

fragment heads( x: tensor<scalar>, split: integer[] ) -> ( y: tensor<scalar> )
{
    y = transpose(reshape(x, shape = split), axes = [0, 2, 1, 3]);
}

fragment attend(
    q: tensor<scalar>, k: tensor<scalar>, v: tensor<scalar>,
    split: integer[], tokens: integer[], scale: scalar )
-> ( y: tensor<scalar> )
{
    products = matmul(heads(q, split = split), heads(k, split = split), transposeB = true);
    mixed = matmul(softmax(products * scale, axes = [3]), heads(v, split = split));
    y = reshape(transpose(mixed, axes = [0, 2, 1, 3]), shape = tokens);
}
"""


def transformer(
    batch: int, tokens: int = 128, width: int = 256, heads: int = 4, layers: int = 4
) -> Graph:
    """An encoder of a transformer, with normalization before each layer."""
    body = Body()
    body.external("x", batch, tokens, width)
    h = body.let("h", f"reshape(x, shape = {[batch * tokens, width]})")
    split = [batch, tokens, heads, width // heads]
    rest = f"split = {split}, tokens = {[batch * tokens, width]}"
    scale = 1 / sqrt(width // heads)
    for i in range(layers):
        n = body.let(f"n{i}_1", f"normalize({h}, {_gains(body, f'norm{i}_1', width)})")
        qkv = [
            body.let(f"{q}{i}", f"linear({n}, {body.affine(f'{q}{i}', width, width)})")
            for q in ("q", "k", "v")
        ]
        a = body.let(f"a{i}", f"attend({', '.join(qkv)}, {rest}, scale = {scale})")
        mixed = f"linear({a}, {body.affine(f'mix{i}', width, width)})"
        h = body.let(f"h{i}_1", f"{h} + {mixed}")
        n = body.let(f"n{i}_2", f"normalize({h}, {_gains(body, f'norm{i}_2', width)})")
        wide = f"gelu(linear({n}, {body.affine(f'wide{i}', 4 * width, width)}))"
        g = body.let(f"g{i}", wide)
        narrow = f"linear({g}, {body.affine(f'narrow{i}', width, 4 * width)})"
        h = body.let(f"h{i}_2", f"{h} + {narrow}")
    body.let("y", f"reshape({h}, shape = {[batch, tokens, width]})")
    return body.graph("transformer", ATTENTION)


def _gains(body: Body, name: str, width: int) -> str:
    names = [body.variable(f"{name}_{kind}", 1, width) for kind in ("scale", "offset")]
    return f"[{', '.join(names)}]"


# ---- Recurrence ----

CELL = """
fragment cell(
    x: tensor<scalar>, h: tensor<scalar>, c: tensor<scalar>,
    weight: tensor<scalar>, bias: tensor<scalar> )
-> ( next_h: tensor<scalar>, next_c: tensor<scalar> )
{
    gates = linear(concat([x, h], axis = 1), weight, bias);
    [i, f, g, o] = split(gates, axis = 1, ratios = [1, 1, 1, 1]);
    next_c = sigmoid(f) * c + sigmoid(i) * tanh(g);
    next_h = sigmoid(o) * tanh(next_c);
}
"""


def lstm(batch: int, steps: int = 32, inputs: int = 128, width: int = 256) -> Graph:
    """A long short-term memory, unrolled."""
    body = Body()
    body.external("x", batch, steps, inputs)
    weights = body.affine("gates", 4 * width, inputs + width)
    xs = [f"x{i}" for i in range(steps)]
    body.let(f"[{', '.join(xs)}]", "unstack(x, axis = 1)")
    zeros = f"constant(shape = {[batch, width]}, value = [0.0])"
    h, c = body.let("h", zeros), body.let("c", zeros)
    for i, x in enumerate(xs):
        body.let(f"h{i}, c{i}", f"cell({x}, {h}, {c}, {weights})")
        h, c = f"h{i}", f"c{i}"
    body.let("y", f"linear({h}, {body.affine('dense', 10, width)})")
    return body.graph("lstm", CELL)


# ---- A chain, for the compiler ----

STEPS = (
    "matmul({h}, w{i})",
    "add({h}, b{i})",
    "tanh({h})",
    "mul({h}, s{i})",
    "add({h}, x0)",
)


def chain(repetitions: int) -> str:
    """A flat text: steps with a matrix, a bias and a scale of their own, repeated, and a
    copy before and after them.
    """
    body = Body()
    body.external("x", 4, 16)
    for i in range(repetitions):
        body.variable(f"w{i}", 16, 16)
        body.variable(f"b{i}", 1, 16)
        body.variable(f"s{i}", 1, 16)
    h = body.let("x0", "copy(x)")
    for i in range(repetitions):
        for j, step in enumerate(STEPS):
            h = body.let(f"h{i}_{j}", step.format(h=h, i=i))
    body.let("y", f"copy({h})")
    return body.text("chain")


# ---- All of them ----


def khronos(name: str) -> Callable[[int], Graph]:
    return lambda batch: nnef_grad.loads(PUBLISHED[name](), batch=batch)


# Each network, for an extent of the batch.
NETS: dict[str, Callable[[int], Graph]] = {
    "alexnet": khronos("alexnet"),
    "vgg": khronos("vgg"),
    "resnet": khronos("resnet"),
    "mobilenet": mobilenet,
    "unet": unet,
    "transformer": transformer,
    "lstm": lstm,
}


def random_data(graph: Graph) -> dict[str, npt.NDArray[np.float32]]:
    """Data for the variables, by label, of a size that neither vanishes nor explodes
    through many layers: by the fan-in.
    """
    generator = np.random.default_rng(0)
    return {
        v.label: _weights(generator, v.label, as_numbers(v.shape))
        for v in declared_variables(graph)
    }


def _weights(
    generator: np.random.Generator, label: str, shape: tuple[int, ...]
) -> npt.NDArray[np.float32]:
    values = generator.standard_normal(shape, np.float32)
    if "variance" in label:
        return (np.abs(values) / 2 + 1).astype(np.float32)
    return values / np.float32(sqrt(max(1, prod(shape[1:]))))
