"""Modules of torch, exported to ONNX files and read: the gradients of all parameters, here
and in ONNX Runtime, are those of torch in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.onnx_files import run

import nnef_grad
from nnef_grad import interop

Array = npt.NDArray[Any]

torch: Any = import_module("torch") if find_spec("torch") else None
onnx: Any = import_module("onnx") if find_spec("onnx") else None
onnxruntime: Any = import_module("onnxruntime") if find_spec("onnxruntime") else None
pytestmark = [
    pytest.mark.skipif(
        not (torch and onnx and onnxruntime), reason="the tests of modules run them"
    ),
    # Of the exporter, about itself.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def module_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    """A module that passes its inputs, then parameters of these shapes, to a function."""

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            made = [torch.nn.Parameter(torch.randn(*shape)) for shape in shapes]
            self.w = torch.nn.ParameterList(made)

        def forward(self, *inputs: Any) -> Any:
            return function(*inputs, *self.w)

    return Module()


def agrees(module: Any, inputs: list[Any], path: Path, opset: int = 17) -> None:
    """The results and gradients of a module, exported and read, are those of torch."""
    module.eval()
    names = [f"x{i}" for i in range(len(inputs))]
    torch.onnx.export(
        module,
        tuple(inputs),
        path / "model.onnx",
        dynamo=False,
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        input_names=names,
        output_names=["y"],
        opset_version=opset,
    )
    graph, data = interop.from_onnx(path / "model.onnx")
    result, seed, gradients = oracle(module, inputs)
    feeds = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
    close(nnef_grad.evaluate(graph, feeds, data)["y"], result)
    backward = nnef_grad.differentiate(graph, wrt="variables")
    feeds["grad_y"] = seed
    found = nnef_grad.evaluate(backward, feeds, data)
    interop.to_onnx(backward.graph, path / "backward.onnx", data)
    there = run(path / "backward.onnx", feeds)
    assert len(gradients) == len(backward.gradients)
    for name, expected in gradients.items():
        made = backward.gradients[name.replace(".", "_")]
        # Vectors of channels get a leading axis, as NNEF wants them.
        close(found[made].reshape(expected.shape), expected)
        close(there[made].reshape(expected.shape), expected)


def oracle(module: Any, inputs: list[Any]) -> tuple[Array, Array, dict[str, Array]]:
    """The result in double precision, a random gradient of it, and the gradients of the
    parameters.
    """
    exact = module.double()
    result = exact(*(x.double() if x.is_floating_point() else x for x in inputs))
    seed = torch.randn(result.shape)
    result.backward(seed.double())
    gradients = {name: p.grad.numpy() for name, p in exact.named_parameters()}
    return result.detach().numpy(), seed.numpy(), gradients


def close(found: Array, expected: Array) -> None:
    assert found.shape == expected.shape
    largest = float(np.abs(expected).max(initial=1.0))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * largest)


def put(x: Any) -> Any:
    """Assignments to slices, one with a step."""
    y = x.clone()
    y[:, 1] = x[:, 0] * 3
    y[2:4, ::2] = 0
    return y


def put_at(x: Any, places: Any) -> Any:
    """A number at indices, two of which are equal."""
    y = x.clone()
    y[:, places] = 2.5
    return y * x


MASK = [[1, 1, 0], [0, 0, 0], [1, 0, 1], [0, 1, 0]]
OPEN = [[1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0]]


def cases() -> Iterator[Any]:
    """A name, a function of inputs and parameters, inputs, and shapes of parameters."""
    if not (torch and onnx):
        return
    nn = torch.nn.functional

    def case(name: str, function: Any, inputs: list[Any], *shapes: Any) -> Any:
        return pytest.param(function, inputs, shapes, id=name)

    x = torch.linspace(-2.0, 2.0, 20).reshape(5, 4).sin()
    image = torch.linspace(0.0, 9.0, 120).reshape(2, 3, 5, 4).cos()
    rows = torch.tensor([[0, 5, 2], [1, 1, 1], [3, 4, 5], [5, 0, 0], [2, 3, 1]])
    apart = torch.tensor([[0, 5, 2], [1, 2, 3], [3, 4, 5], [5, 0, 1], [2, 3, 1]])
    classes = torch.tensor([0, 2, 3, 2, 1])
    ids = torch.tensor([[0, 5, 2], [1, 0, 0]])
    points = torch.linspace(-1.2, 1.2, 36).reshape(2, 3, 3, 2).sin()
    product = [(4, 6)]

    for name, rows_of in (("all-masked", MASK), ("open", OPEN)):
        mask = torch.tensor(rows_of, dtype=torch.bool)
        yield case(
            f"attention-{name}",
            lambda q, k, w, mask=mask: nn.scaled_dot_product_attention(
                q, k, k @ w, attn_mask=mask
            ),
            [image[..., :4, :4], image[..., 1:4, :4]],
            (4, 4),
        )
        yield case(
            f"attention-{name}-fed",
            lambda q, k, m, w: nn.scaled_dot_product_attention(
                q @ w, k, k @ w, attn_mask=m
            ),
            [image[..., :4, :4], image[..., 1:4, :4], mask],
            (4, 4),
        )
    yield case(
        "not-a-number", lambda x, w: torch.where((x * w).isnan(), x, x * w), [x], (4,)
    )
    yield case(
        "padding", lambda i, w: w[i] * (i != 0).float()[..., None], [ids], (6, 4)
    )
    yield case(
        "positions",
        lambda i, w: w[torch.cumsum((i != 0).long(), 1) * (i != 0).long() + 1],
        [ids],
        (6, 4),
    )
    yield case(
        "integers",
        lambda i, w: w[(i * 3 - 1).abs().clamp(max=4) // 2 + i % 2 + (i > 1).long()],
        [ids],
        (9, 2),
    )
    yield case(
        "first-maximum",
        lambda i, x, w: (x @ w)[torch.arange(2), i.argmax(1)],
        [ids, image[0, :2]],
        (4, 4),
    )
    yield case("gather", lambda x, i, w: torch.gather(x @ w, 1, i), [x, rows], *product)
    yield case(
        "gather-rows",
        lambda x, i, w: torch.gather(x @ w, 0, i % 5),
        [x, rows],
        *product,
    )
    yield case(
        "scatter",
        lambda x, i, w: torch.scatter(x @ w, 1, i, 2 * (x @ w)[:, :3]),
        [x, apart],
        *product,
    )
    yield case(
        "scatter-add",
        lambda x, i, w: torch.scatter_add(x @ w, 1, i, 2 * (x @ w)[:, :3]),
        [x, rows],
        *product,
    )
    yield case("assignments", lambda x, w: put(x @ w), [x], *product)
    again = torch.tensor([2, 1, 2])
    yield case("numbers-again", lambda x, i, w: put_at(x @ w, i), [x, again], *product)
    yield case(
        "filled-again",
        lambda x, i, w: (x @ w).index_fill(1, i, 2.5) * x.sum(),
        [x, again],
        *product,
    )
    yield case("largest", lambda x, w: torch.topk(x @ w, 3)[0], [x], *product)
    yield case(
        "smallest",
        lambda x, w: torch.topk(x @ w, 2, 0, largest=False)[0],
        [x],
        *product,
    )
    yield case(
        "top-places",
        lambda x, w: torch.gather(x @ w, 1, torch.topk(x @ w, 3)[1]) ** 2,
        [x],
        *product,
    )
    yield case(
        "own-moments",
        lambda x, w, v: nn.batch_norm(x * w, None, None, v, v, training=True),
        [image],
        (1, 3, 1, 1),
        (3,),
    )
    yield case("one-hot", lambda i, w: nn.one_hot(i, 6).to(w.dtype) @ w, [rows], (6, 4))
    yield case("cumulative", lambda x, w: torch.cumsum(x @ w, 1), [x], *product)
    yield case(
        "einsum", lambda q, k: torch.einsum("bchw,cdw->bdhc", q, k), [image], (3, 2, 4)
    )
    for mode in ("bicubic", "bilinear", "nearest"):
        yield case(
            f"resize-{mode}",
            lambda x, w, mode=mode: nn.interpolate(x * w, size=(7, 9), mode=mode),
            [image],
            (1, 3, 1, 1),
        )
    yield case(
        "grid",
        lambda x, g, w, v: nn.grid_sample(x * w, g + v, align_corners=False),
        [image, points],
        (1, 3, 1, 1),
        (2,),
    )
    yield case(
        "cross-entropy",
        lambda x, t, w: nn.cross_entropy(x @ w, t, ignore_index=2)[None],
        [x, classes],
        *product,
    )
    yield case(
        "likelihood",
        lambda x, t, v, w: nn.nll_loss(
            nn.log_softmax(x @ w, -1), t, v, reduction="sum"
        )[None],
        [x, classes, torch.linspace(0.5, 2.0, 6)],
        *product,
    )
    for mode in ("sum", "mean", "max"):
        yield case(
            f"bag-{mode}",
            lambda i, w, mode=mode: nn.embedding_bag(i, w, mode=mode),
            [rows],
            (6, 4),
        )


@pytest.mark.parametrize(("function", "inputs", "shapes"), list(cases()))
def test_functions(function: Any, inputs: Any, shapes: Any, tmp_path: Path) -> None:
    agrees(module_of(function, *shapes), inputs, tmp_path)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_both_directions(kind: str, tmp_path: Path) -> None:
    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            cell = getattr(torch.nn, kind)
            self.r = cell(5, 4, bidirectional=True, num_layers=2)

        def forward(self, x: Any) -> Any:
            steps, last = self.r(x)
            state = last[0] if kind == "LSTM" else last
            return torch.cat([steps.flatten(), state.flatten()])

    agrees_by_value(Network(), torch.randn(3, 2, 5), tmp_path)


def agrees_by_value(module: Any, x: Any, path: Path) -> None:
    """The exporter arranges the parameters of recurrent networks in variables of its own
    by operations: it is the gradient of the input that tells.
    """

    class Fed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.randn(x.shape))
            self.inner = module

        def forward(self, given: Any) -> Any:
            return self.inner(given * self.scale)

    agrees(Fed(), [x], path)


def test_affine_grids(tmp_path: Path) -> None:
    def transformed(x: Any, theta: Any) -> Any:
        nn = torch.nn.functional
        grid = nn.affine_grid(theta, (2, 3, 4, 4), align_corners=False)
        return nn.grid_sample(x, grid, align_corners=False)

    agrees(module_of(transformed, (2, 2, 3)), [torch.randn(2, 3, 5, 4)], tmp_path, 20)
