"""AlexNet, VGG-19 and ResNet-50 as Khronos publishes them for NNEF: the same statements, names and
labels as in the files of its model zoo, written layer by layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

ALL = "[(0, 0), (0, 0), (0, 0), (0, 0)]"


class Layers:
    """The statements of a graph, while they are written; kinds are numbered."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.lines = ["input = external(shape = [1, 3, 224, 224]);"]
        self.counts: Counter[str] = Counter()

    def let(self, kind: str, value: str, name: str = "") -> str:
        """Writes an assignment, and returns its left side."""
        self.counts[kind] += 1
        name = name or f"{kind}{self.counts[kind]}"
        self.lines.append(f"{name} = {value};")
        return name

    def variable(self, kind: str, label: str, *shape: int) -> str:
        value = f"variable(shape = {[*shape]}, label = '{self.prefix}/{label}')"
        return self.let(kind, value)

    def conv(
        self, x: str, label: str, kernel: tuple[int, ...],
        padding: str = "[]", stride: int = 1, name: str = "",
    ) -> str:  # fmt: skip
        """A convolution with a kernel [out, in, height, width] and a bias."""
        w = self.variable("kernel", f"{label}/kernel", *kernel)
        b = self.variable("bias", f"{label}/bias", 1, kernel[0])
        settings = (
            f"padding = {padding}, border = 'constant',"
            f" stride = {[stride] * 2}, dilation = [1, 1]"
        )
        return self.let("conv", f"conv({x}, {w}, {b}, {settings})", name)

    def relu(self, x: str) -> str:
        return self.let("relu", f"relu({x})")

    def pool(self, x: str, size: int) -> str:
        settings = (
            f"size = [1, 1, {size}, {size}], padding = {ALL}, border = 'ignore',"
            " stride = [1, 1, 2, 2]"
        )
        return self.let("pool", f"max_pool({x}, {settings})")

    def norm(self, x: str, label: str, channels: int) -> str:
        """A batch normalization without a scale, and what follows it."""
        kinds = ("beta", "moving_mean", "moving_variance")
        beta, mean, variance = (
            self.variable(kind, f"{label}/{kind}", 1, channels) for kind in kinds
        )
        settings = f"mean = {mean}, variance = {variance}, offset = {beta}, scale = 1.0"
        made = f"batch_normalization({x}, {settings}, epsilon = 0.001)"
        return self.relu(self.let("norm", made))

    def text(self, name: str) -> str:
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"version 1.0;\n\ngraph {name}( input ) -> ( output )\n{{\n{body}\n}}\n"


def classifier(layers: Layers, x: str, channels: int, size: int) -> None:
    """Three layers that are convolutions, the first of which covers the image."""
    kernel = (4096, channels, size, size)
    x = layers.relu(layers.conv(x, "fc6", kernel, "[(0, 0), (0, 0)]"))
    x = layers.relu(layers.conv(x, "fc7", (4096, 4096, 1, 1)))
    layers.conv(x, "fc8", (1000, 4096, 1, 1), name="output")


def alexnet() -> str:
    layers = Layers("alexnet_v2")
    x = layers.conv("input", "conv1", (64, 3, 11, 11), "[(0, 0), (0, 0)]", stride=4)
    x = layers.pool(layers.relu(x), 3)
    x = layers.pool(layers.relu(layers.conv(x, "conv2", (192, 64, 5, 5))), 3)
    for label, to, of in (
        ("conv3", 384, 192),
        ("conv4", 384, 384),
        ("conv5", 256, 384),
    ):
        x = layers.relu(layers.conv(x, label, (to, of, 3, 3)))
    classifier(layers, layers.pool(x, 3), 256, 5)
    return layers.text("alexnet")


def vgg() -> str:
    layers, x, of = Layers("vgg_19"), "input", 3
    for block, (count, to) in enumerate(
        ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512)), start=1
    ):
        for layer in range(1, count + 1):
            label = f"conv{block}/conv{block}_{layer}"
            x, of = layers.relu(layers.conv(x, label, (to, of, 3, 3))), to
        x = layers.pool(x, 2)
    classifier(layers, x, 512, 7)
    return layers.text("vgg_19")


def resnet() -> str:
    layers = Layers("resnet_v2_50")
    x = layers.conv("input", "conv1", (64, 3, 7, 7), "[(3, 3), (3, 3)]", stride=2)
    x, of = layers.pool(x, 3), 64
    for block, count in enumerate((3, 4, 6, 3), start=1):
        width = 32 * 2**block
        for unit in range(1, count + 1):
            label = f"block{block}/unit_{unit}/bottleneck_v2"
            is_last = unit == count and block < 4
            x, of = _unit(layers, x, label, of, width, is_last), 4 * width
    x = layers.norm(x, "postnorm", of)
    x = layers.let("reduce", f"mean_reduce({x}, axes = [2, 3])")
    layers.conv(x, "logits", (1000, of, 1, 1), name="output")
    return layers.text("resnet_v2_50")


def _unit(
    layers: Layers, x: str, label: str, of: int, width: int, is_strided: bool
) -> str:
    """A residual unit: three convolutions beside a shortcut."""
    h = layers.norm(x, f"{label}/preact", of)
    if of != 4 * width:
        shortcut = layers.conv(h, f"{label}/shortcut", (4 * width, of, 1, 1))
    else:
        shortcut = layers.pool(x, 1) if is_strided else x
    h = layers.relu(layers.conv(h, f"{label}/conv1", (width, of, 1, 1)))
    padding, stride = ("[(1, 1), (1, 1)]", 2) if is_strided else ("[]", 1)
    kernel = (width, width, 3, 3)
    h = layers.relu(layers.conv(h, f"{label}/conv2", kernel, padding, stride))
    h = layers.conv(h, f"{label}/conv3", (4 * width, width, 1, 1))
    return layers.let("add", f"add({shortcut}, {h})")


PUBLISHED: dict[str, Callable[[], str]] = {
    "alexnet": alexnet,
    "vgg": vgg,
    "resnet": resnet,
}
