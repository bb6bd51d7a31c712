"""A network of inception modules, after GoogLeNet: its operations and its proportions."""

from __future__ import annotations

from collections.abc import Iterator

# For each module: how many channels the 1x1 convolution has, the 3x3 one and the 5x5 one,
# each with the 1x1 one before it, and the one after the pool. Or a pool stands there.
POOL = ()
MODULES = (
    *((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), POOL),
    *((192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64)),
    *((128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64)),
    *((256, 160, 320, 32, 128, 128), POOL),
    *((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def googlenet(image: int = 224, batch: int = 1, thinner: int = 1) -> str:
    """The text of the network.

    Args:
        image: the extent of an image.
        batch: how many images there are.
        thinner: what the channels are divided by.
    """
    body = "\n".join(f"    {line};" for line in Lines(thinner).all(image, batch))
    return f"version 1.0;\n\ngraph googlenet( input ) -> ( output )\n{{\n{body}\n}}\n"


class Lines:
    """The statements, layer by layer. A layer is called with the name and the channels of
    its input, and returns its own.
    """

    def __init__(self, thinner: int) -> None:
        self.thinner = thinner
        self.lines: list[str] = []
        self.count = 0

    def all(self, image: int, batch: int) -> Iterator[str]:
        self.lines.append(f"input = external(shape = [{batch}, 3, {image}, {image}])")
        layer = self.pool(self.conv(("input", 3), 64, 7, stride=2))
        layer = self.conv(self.conv(self.normalized(layer), 64, 1), 192, 3)
        layer = self.pool(self.normalized(layer))
        for module in MODULES:
            layer = self.inception(layer, *module) if module else self.pool(layer)
        self.classified(layer, batch)
        return iter(self.lines)

    def put(self, operation: str, channels: int, name: str) -> tuple[str, int]:
        self.count += 1
        self.lines.append(f"{name}{self.count} = {operation}")
        return f"{name}{self.count}", channels

    def conv(
        self, layer: tuple[str, int], filters: int, size: int, stride: int = 1
    ) -> tuple[str, int]:
        name, channels = layer
        filters = filters // self.thinner
        shape = [filters, channels, size, size]
        kernel = self.variable(shape, "kernel")
        bias = self.variable([1, filters], "bias")
        call = f"conv({name}, {kernel}, {bias}, stride = [{stride}, {stride}])"
        summed, _ = self.put(call, filters, "conv")
        return self.put(f"relu({summed})", filters, "relu")

    def variable(self, shape: list[int], name: str) -> str:
        label = f"{name}{self.count + 1}"
        return self.put(f"variable(shape = {shape}, label = '{label}')", 0, name)[0]

    def pool(self, layer: tuple[str, int], stride: int = 2) -> tuple[str, int]:
        name, channels = layer
        windows = f"size = [1, 1, 3, 3], stride = [1, 1, {stride}, {stride}]"
        call = f"max_pool({name}, {windows}, border = 'ignore')"
        return self.put(call, channels, "pool")

    def normalized(self, layer: tuple[str, int]) -> tuple[str, int]:
        name, channels = layer
        settings = "size = [1, 5, 1, 1], alpha = 0.0005, beta = 0.75, bias = 1.0"
        call = f"local_response_normalization({name}, {settings})"
        return self.put(call, channels, "norm")

    def inception(self, layer: tuple[str, int], *filters: int) -> tuple[str, int]:
        one, before3, three, before5, five, after = filters
        branches = [
            self.conv(layer, one, 1),
            self.conv(self.conv(layer, before3, 1), three, 3),
            self.conv(self.conv(layer, before5, 1), five, 5),
            self.conv(self.pool(layer, stride=1), after, 1),
        ]
        names = ", ".join(name for name, _ in branches)
        channels = sum(channels for _, channels in branches)
        return self.put(f"concat([{names}], axis = 1)", channels, "module")

    def classified(self, layer: tuple[str, int], batch: int) -> None:
        """The mean of what is left of the image, then a matrix, in the end what is
        likely.
        """
        name, channels = layer
        windows = "size = [1, 1, 7, 7], stride = [1, 1, 7, 7]"
        mean, _ = self.put(f"avg_pool({name}, {windows}, border = 'ignore')", 0, "mean")
        row, _ = self.put(f"reshape({mean}, shape = [{batch}, {channels}])", 0, "row")
        classes = 1000 // self.thinner
        weight = self.variable([classes, channels], "weight")
        bias = self.variable([1, classes], "bias")
        logits, _ = self.put(f"linear({row}, {weight}, {bias})", 0, "logits")
        self.lines.append(f"output = softmax({logits})")
