"""Each form of each gradient, whichever the cost model would choose, against torch; and
the choice among them.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from support import reference
from support.checks import document

import nnef_grad
from nnef_grad.emit.rewriting import inline
from nnef_grad.graph.ir import Graph, Operation
from nnef_grad.graph.passes import prune
from nnef_grad.ops import conv
from nnef_grad.targets import forms, matrix
from nnef_grad.targets.costs import SPEEDS
from nnef_grad.targets.forms import FORMS, Form
from nnef_grad.targets.matrix import join_products


class Setting(NamedTuple):
    """A convolution, with the same extents along each spatial axis but the last, which
    has some elements more.
    """

    batch: int = 1
    channels: int = 2
    filters: int = 3
    groups: int = 1
    extent: int = 5
    size: int = 3
    stride: int = 1
    dilation: int = 1
    padding: tuple[int, int] = (0, 0)
    more: int = 1

    def text(self, name: str, axes: int) -> str:
        """The graph: the input of a `deconv` has as many elements as the output of the
        `conv` has.
        """
        extents = [self.extent] * (axes - 1) + [self.extent + self.more]
        reach = (self.size - 1) * self.dilation + 1
        padded = [n + sum(self.padding) for n in extents]
        down = [(n - reach) // self.stride + 1 for n in padded]
        up = [self.batch, self.channels, *extents]
        shape = up if name == "conv" else [self.batch, self.filters, *down]
        weights = [self.filters, self.channels // self.groups, *[self.size] * axes]
        attributes = {
            "padding": [self.padding] * axes,
            "stride": [self.stride] * axes,
            "dilation": [self.dilation] * axes,
            "groups": self.groups,
            **({"output_shape": up} if name == "deconv" else {}),
        }
        written = ", ".join(f"{key} = {value}" for key, value in attributes.items())
        return document(
            f"x = external(shape = {shape});\n"
            f"w = variable(shape = {weights}, label = 'w');\n"
            f"y = {name}(x, w, 0.0, {written});"
        )


SETTINGS = {
    "plain": Setting(),
    "batch": Setting(batch=3),
    "stride": Setting(stride=2, padding=(1, 1)),
    "remainder": Setting(batch=3, extent=6, stride=3, padding=(1, 0)),
    "dilation": Setting(dilation=2, extent=6, padding=(2, 1)),
    "stride and dilation": Setting(stride=2, dilation=2, extent=7, padding=(0, 3)),
    "stride beyond the filter": Setting(extent=8, size=2, stride=3, padding=(2, 0)),
    "phases outside": Setting(extent=4, size=1, stride=3, padding=(0, 5)),
    "tiles": Setting(extent=4, size=2, stride=2, more=2),
    "tiles of a batch": Setting(batch=3, extent=6, size=3, stride=3, more=3),
    "cropped": Setting(extent=7, padding=(-1, -1)),
    "groups": Setting(batch=3, channels=4, filters=6, groups=2, padding=(1, 1)),
    "groups of small images": Setting(1, 24, 4, 2, 2, 2, padding=(1, 0)),
    "depthwise": Setting(channels=3, filters=3, groups=3, padding=(1, 0)),
    "depthwise batch": Setting(batch=3, channels=3, filters=6, groups=3, stride=2),
    "depthwise stride": Setting(3, 3, 3, 3, stride=2, padding=(1, 1)),
    "depthwise dilation": Setting(2, 4, 4, 4, 7, dilation=2, padding=(2, 1)),
    "depthwise both": Setting(2, 3, 3, 3, 8, stride=2, dilation=2, padding=(0, 3)),
    "pointwise": Setting(size=1),
    "pointwise batch": Setting(batch=3, size=1),
    "pointwise groups": Setting(batch=3, channels=4, filters=2, groups=2, size=1),
    "pointwise stride": Setting(batch=3, size=1, stride=2),
    "pointwise padded": Setting(size=1, padding=(1, 2)),
}

# Those of a single window, of all of a square, in which nothing slides.
WHOLE = {
    batch: document(
        f"x = external(shape = [{batch}, 2, 3, 2]);\n"
        "w = variable(shape = [4, 2, 3, 2], label = 'w');\n"
        "y = conv(x, w, 0.0, padding = [(0, 0), (0, 0)]);"
    )
    for batch in (1, 3)
}


TEXTS = {
    f"{operation} {axes} {name}": setting.text(operation, axes)
    for operation in ("conv", "deconv")
    for axes in (1, 2, 3)
    for name, setting in SETTINGS.items()
} | {f"whole {batch}": text for batch, text in WHOLE.items()}

# Sums over batches of products of matrices, whichever of them is transposed.
PRODUCTS = {
    f"{a} {b} {batch}": document(
        f"x = external(shape = {[*batch, *((2, 4) if a else (4, 2))]});\n"
        f"w = variable(shape = {[1] * len(batch) + ([3, 2] if b else [2, 3])}, label = 'w');\n"
        f"y = matmul(x, w, transposeA = {str(a).lower()}, transposeB = {str(b).lower()});"
    )
    for a in (False, True)
    for b in (False, True)
    for batch in ([3], [3, 2])
}

# Outer products over several axes.
OUTER = {
    f"outer {x} {w}": document(
        f"x = external(shape = {x}); w = variable(shape = {w}, label = 'w');"
        "p = mul(x, w); y = mul(p, p);"
    )
    for x, w in (
        ([4], [1, 2, 3]),
        ([1, 2, 3], [4]),
        ([2, 3, 1, 1], [1, 1, 4, 2]),
        ([1, 1, 1, 3], [2, 5, 1]),
        ([5, 1, 1], [1, 3]),
        # With nothing but M and N: either of them has a divisor, or none.
        ([6, 1, 1, 1], [1, 5, 1, 1]),
        ([5, 1, 1], [1, 9, 1]),
        ([5, 1, 1], [1, 3, 1]),
    )
}

# Products of a column and a row, whichever of them is transposed, and gradients of matrices
# for a batch of one.
COLUMNS = {
    f"column {x} {w}": document(
        f"x = external(shape = {x}); w = variable(shape = {w}, label = 'w');"
        f"p = matmul(x, w, transposeA = {str(a).lower()}, transposeB = {str(b).lower()}); y = mul(p, p);"
    )
    for x, a in (([3, 1], False), ([1, 3], True))
    for w, b in (([1, 70], False), ([70, 1], True))
} | {
    f"layer {filters}": document(
        f"x = external(shape = [1, 70]); w = variable(shape = [{filters}, 70], label = 'w');"
        f"y = linear(x, w, 0.0);"
    )
    for filters in (1, 5)
}

# Products with many rows and columns, whichever operand is transposed.
TALL = {
    f"tall {rows} {a} {b}": document(
        f"x = external(shape = {[3, rows] if a else [rows, 3]});"
        f"w = variable(shape = {[256, 3] if b else [3, 256]}, label = 'w');"
        f"p = matmul(x, w, transposeA = {str(a).lower()}, transposeB = {str(b).lower()}); y = mul(p, p);"
    )
    for rows, a, b in (
        (256, False, False),
        (300, False, True),
        (257, True, False),
        (520, True, True),
        (512, False, False),
    )
}

ALL_FORMS = [(name, form) for name, found in FORMS.items() for form in found]
IDS = [form.build.__name__ for _, form in ALL_FORMS]


def error_of(text: str, graph: Graph, backward: nnef_grad.Backward) -> float:
    """The largest error of the gradients that a graph in place of the backward graph
    gives, against torch, relative to the largest number.
    """
    generator = torch.Generator().manual_seed(1)
    fed, labelled = reference.random_feeds(text, generator)
    outputs = reference.evaluate(text, fed, labelled)
    seeds = {
        output: torch.randn(outputs[output].shape, generator=generator).double()
        for output in backward.seeds
    }
    cotangents = {name: seeds[output] for output, name in backward.seeds.items()}
    names = list(backward.gradients)
    expected = reference.gradients(text, fed, labelled, names, seeds)
    found = reference.evaluate(nnef_grad.dumps(graph), {**fed, **cotangents}, labelled)
    pairs = zip((found[backward.gradients[n]] for n in names), expected, strict=True)
    return max(float((x - y).abs().max() / y.abs().max()) for x, y in pairs)


def forced(graph: Graph, name: str, form: Form) -> Graph:
    """The graph with the form of each operation that it applies to; the same one, if
    there is none.
    """
    made = {t: op for op in graph.operations for t in op.outputs}

    def which(op: Operation) -> Any:
        is_one = op.name == name and form.applies(op)
        return (
            form.build
            if is_one and form.source in (None, made[op.inputs[0]].name)
            else None
        )

    return inline(graph, which)


@pytest.mark.parametrize(("name", "form"), ALL_FORMS, ids=IDS)
def test_each_form(name: str, form: Form) -> None:
    """Wherever it can stand: with stride, dilation, padding, groups, batches, remainders
    of strides, and one to three axes.
    """
    tried = set()
    for setting, text in {**TEXTS, **PRODUCTS, **OUTER, **COLUMNS, **TALL}.items():
        backward = nnef_grad.differentiate(nnef_grad.loads(text))
        graph = forced(backward.graph, name, form)
        if graph is not backward.graph:
            tried.add(setting)
            assert error_of(text, graph, backward) < 1e-12, setting
    assert len(tried) > 4


@pytest.mark.parametrize("setting", TEXTS)
def test_the_correlation(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves every filter, also those that have a shorter form."""
    monkeypatch.setattr(conv, "filter_gradient", conv._correlation)
    text = TEXTS[setting]
    backward = nnef_grad.differentiate(nnef_grad.loads(text))
    assert error_of(text, backward.graph, backward) < 1e-12


@pytest.mark.parametrize("setting", TEXTS)
def test_the_form_by_default(setting: str) -> None:
    backward = nnef_grad.differentiate(nnef_grad.loads(TEXTS[setting]))
    assert error_of(TEXTS[setting], backward.graph, backward) < 1e-12
    names = {op.name for op in backward.graph.operations if op.origin is not None}
    is_product = (
        "pointwise" in setting and "padded" not in setting
    ) or "whole" in setting
    assert ("transpose" in names and "conv" in names) != is_product


# ---- Sums of products ----

STEPS = """\
    x = external(shape = [6, 1, 3]);
    w = variable(shape = [3, 8], label = 'w');
    v = variable(shape = [8, 3], label = 'v');
    {};
    y = add_n([{}]);
"""


def steps(count: int) -> str:
    """A network that uses a matrix at each step, as rows and as columns."""
    lines = "".join(
        f"x{i} = slice(x, axes = [0], begin = [{i}], end = [{i + 1}]);"
        f"s{i} = squeeze(x{i}, axes = [0]); p{i} = matmul(s{i}, w); t{i} = tanh(p{i});"
        f"q{i} = matmul(t{i}, v, transposeB = false); h{i} = sin(q{i});"
        for i in range(count)
    )
    return document(
        STEPS.format(lines.rstrip(";"), ", ".join(f"h{i}" for i in range(count)))
    )


def test_a_sum_of_products_is_one_product() -> None:
    text = steps(6)
    backward = nnef_grad.differentiate(nnef_grad.loads(text))
    joined = prune(join_products(backward.graph))
    assert error_of(text, joined, backward) < 1e-12
    before, after = (
        Counter(op.name for op in graph.operations)
        for graph in (backward.graph, joined)
    )
    assert before["matmul"] - after["matmul"] == 2 * 5
    assert before["add"] - after["add"] == 2 * 5


def test_products_of_several_kinds_in_a_sum() -> None:
    """Those that are transposed alike are joined, the others added."""
    text = document(
        "x = external(shape = [1, 8]); w = external(shape = [1, 8]); z = external(shape = [8, 8]);"
        "a = matmul(x, w, transposeA = true); b = matmul(w, x, transposeA = true);"
        "c = matmul(z, z); d = matmul(w, w, transposeA = true); s = add(d, z); t = add(s, b); u = add(c, t); y = add(u, a);",
        inputs="x, w, z",
    )
    graph = nnef_grad.loads(text)
    arrays = {
        name: np.random.default_rng(1).normal(size=t.shape)
        for name, t in zip(graph.input_names, graph.inputs, strict=True)
    }
    expected = nnef_grad.evaluate(graph, arrays)["y"]
    joined = prune(join_products(graph))
    assert [op.name for op in joined.operations].count("matmul") == 2
    assert np.allclose(nnef_grad.evaluate(joined, arrays)["y"], expected, rtol=1e-12)


def test_small_sums_of_large_products_stay() -> None:
    """Joining the operands would move more than it saves."""
    text = document(
        "x = external(shape = [2, 100]); w = external(shape = [100, 2]);"
        "a = matmul(x, w); b = sin(x); c = matmul(b, w); y = add(a, c);",
        inputs="x, w",
    )
    graph = nnef_grad.loads(text)
    assert join_products(graph) is graph


# ---- The choice ----

LAYER = document(
    "x = external(shape = [1, 256, 14, 14]);"
    "w = variable(shape = [256, 256, 3, 3], label = 'w');"
    "y = conv(x, w, 0.0, padding = [(1, 1), (1, 1)]);"
)


@pytest.mark.parametrize(("channels", "extent"), [(64, 56), (128, 28), (512, 7)])
def test_nothing_larger_than_images_waits_for_gradients(
    channels: int, extent: int
) -> None:
    """A runtime may make what the images alone give long before the gradient is there."""
    backward = nnef_grad.differentiate(
        nnef_grad.loads(
            document(
                f"x = external(shape = [16, {channels}, {extent}, {extent}]);"
                f"w = variable(shape = [{channels}, {channels}, 3, 3], label = 'w');"
                "y = conv(x, w, 0.0, padding = [(1, 1), (1, 1)]);"
            )
        ),
        wrt="variables",
        per_example=True,
    )
    graph = nnef_grad.lower(backward.graph, "onnx").graph
    (x, _), early = graph.inputs, {*graph.inputs[:1]}
    for op in graph.operations:
        if op.inputs and early.issuperset(op.inputs):
            early.update(op.outputs)
    assert max(prod(tensor.shape) for tensor in early) == prod(x.shape)


def lowered_names(text: str, target: str, **options: Any) -> Counter[str]:
    backward = nnef_grad.differentiate(nnef_grad.loads(text), **options)
    return Counter(
        op.name for op in nnef_grad.lower(backward.graph, target).graph.operations
    )


def test_each_runtime_has_the_form_that_it_is_fast_at() -> None:
    """The gradient of a filter, in runtimes that are fast at products or convolutions."""
    counts = {
        t: lowered_names(LAYER, t, wrt=["w"]) for t in ("onnx", "tract", "khronos")
    }
    assert counts["onnx"]["conv"] == counts["tract"]["conv"] == 0
    assert counts["khronos"]["conv"] == 1
    assert counts["khronos"]["matmul"] == 0


@pytest.mark.parametrize(
    ("channels", "filters", "groups"), [(64, 64, 1), (64, 16, 1), (32, 32, 4)]
)
def test_one_convolution_collects_the_windows_of_all_images(
    channels: int, filters: int, groups: int
) -> None:
    """The gradient of a filter in ONNX Runtime: the images, or the filters, come last."""
    text = Setting(8, channels, filters, groups, 28, padding=(1, 1)).text("conv", 2)
    counts = lowered_names(text, "onnx", wrt=["w"])
    assert counts["conv"] == 1
    assert counts["matmul"] == counts["concat"] == counts["pad"] == 0
    # Other engines unroll such a filter, or wait for a kernel that is as large as an image.
    for target in ("onnx-portable", "khronos", "portable"):
        others = lowered_names(text, target, wrt=["w"])
        assert others["matmul"] or others["conv"] == 1


# A fully connected layer, for a batch.
CONNECTED = """\
x = external(shape = [{0}, 500]);
w = variable(shape = [1000, 500], label = 'w');
y = linear(x, w, 0.0);"""


@pytest.mark.parametrize(
    ("target", "batch", "multiplications"),
    [("tract", 1, 1), ("tract-standard", 1, 1), ("tract", 2, 0), ("onnx", 1, 0)],
)
def test_a_column_times_a_row(target: str, batch: int, multiplications: int) -> None:
    """It is no product of matrices where that takes longer."""
    names = lowered_names(document(CONNECTED.format(batch)), target)
    assert (names["mul"], names["matmul"]) == (multiplications, 2 - multiplications)


def test_a_batch_that_is_open_is_no_column() -> None:
    text = document(CONNECTED.format("B")).replace(
        "version 1.0;",
        "version 1.0;\nextension tract_registry tract_core;\nextension tract_symbol B;",
    )
    assert lowered_names(text, "tract")["mul"] == 0


def test_a_column_times_a_row_is_exact() -> None:
    """With numbers that are none, too."""
    graph = nnef_grad.loads(COLUMNS["column [3, 1] [1, 70]"])
    (form,) = (f for n, f in ALL_FORMS if f.build is matrix.column_times_row)
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0]
    row = np.random.default_rng(0).normal(size=(1, 70))
    row[0, :5] = special
    feeds = {"x": np.array([[np.inf], [-0.0], [0.1]])}, {"w": row}
    with np.errstate(invalid="ignore"):
        expected = nnef_grad.evaluate(graph, *feeds)["y"]
        found = nnef_grad.evaluate(forced(graph, "matmul", form), *feeds)["y"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("target", "rows", "columns", "products"),
    [
        ("tract", 512, 512, 2),
        ("tract", 1024, 256, 8),
        ("tract", 256, 1024, 1),
        ("tract", 512, 500, 1),
        ("tract", 9000, 256, 1),
        ("onnx", 512, 512, 1),
    ],
)
def test_many_rows_are_multiplied_by_blocks(
    target: str, rows: int, columns: int, products: int
) -> None:
    """Where a product with more rows than columns takes longer."""
    text = document(
        f"x = external(shape = [{rows}, 4]);"
        f"w = variable(shape = [{columns}, 4], label = 'w');"
        "y = matmul(x, w, transposeB = true);"
    )
    lowered = nnef_grad.lower(nnef_grad.loads(text), target).graph
    assert sum(op.name == "matmul" for op in lowered.operations) == products


def test_small_matrices_take_their_time_to_begin() -> None:
    """The gradient of a small depthwise filter has none in tract."""
    text = Setting(1, 64, 64, 64, extent=10, padding=(1, 1)).text("conv", 2)
    assert lowered_names(text, "tract", wrt=["w"])["matmul"] == 0


def test_outer_products_have_long_runs() -> None:
    """A last axis of one element is a run of one."""
    text = document(
        "x = external(shape = [1, 52, 1, 1]);"
        "w = variable(shape = [208, 52, 1, 1], label = 'w');"
        "y = conv(x, w, 0.0);"
    )
    backward = nnef_grad.differentiate(nnef_grad.loads(text), wrt=["w"]).graph
    for target, extent in (("tract", 52), ("onnx", 1)):
        made = nnef_grad.lower(backward, target).graph.operations
        (product,) = (op for op in made if op.name == "mul")
        assert product.outputs[0].shape[-1] == extent


def test_the_speeds_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    free = SPEEDS["onnx"]._replace(correlation=0.0)
    monkeypatch.setitem(SPEEDS, "onnx", free)
    assert lowered_names(LAYER, "onnx", wrt=["w"])["conv"] == 1


def test_a_choice_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next graph with the same operation takes the form that was chosen."""
    lowered_names(LAYER, "onnx", wrt=["w"])
    monkeypatch.setattr(forms, "cost", None)
    assert lowered_names(LAYER, "onnx", wrt=["w"])["conv"] == 0


def test_what_a_runtime_folds_costs_nothing() -> None:
    """A filter that is a variable is turned when the model is loaded."""
    assert lowered_names(LAYER, "onnx", wrt=["x"])["deconv"] == 0
