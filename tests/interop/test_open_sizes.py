"""Modules of PyTorch with strides and windows along open axes: one backward document of each,
by way of ONNX and of torch.export, at four sizes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import NnefGradError
from nnef_grad.graph.symbols import with_numbers

onnx: Any = pytest.importorskip("onnx")
onnxruntime: Any = pytest.importorskip("onnxruntime")
torch: Any = pytest.importorskip("torch")

from support.open_modules import REFUSED_SIZES, ROWS, Row  # noqa: E402 - needs torch

# Of the exporter, about itself.
pytestmark = pytest.mark.filterwarnings("ignore")
# Single precision, relative to the largest element.
ROUGH, FINE = 1e-4, 1e-6
# Modules are read at the third of their sizes.
EXAMPLE = 2
Run = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Read(NamedTuple):
    """A module, its graph, and the names in the graph of its inputs, of its outputs and of
    its parameters, by their names in torch.
    """

    module: Any
    model: Any
    inputs: Sequence[str]
    outputs: Sequence[str]
    parameters: Mapping[str, str]


def created(row: Row) -> Any:
    torch.manual_seed(0)
    module = row.create().eval()
    # The exporter makes one initializer of tensors of equal values.
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            torch.nn.init.uniform_(tensor, 0.1, 0.6)
    return module


def from_onnx(row: Row, folder: Path) -> Read:
    module, given = created(row), row.draw(row.at(EXAMPLE))
    inputs = [f"x{place}" for place in range(len(given))]
    outputs = [f"y{place}" for place in range(len(listed(module(*given))))]
    torch.onnx.export(
        module,
        tuple(given),
        folder / "model.onnx",
        dynamo=False,
        opset_version=17,
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,
        input_names=inputs,
        output_names=outputs,
        dynamic_axes=dict(zip(inputs, row.open_axes(), strict=True)),
    )
    model = interop.from_onnx(folder / "model.onnx")
    parameters = {label: name for name, label in model.graph.labels.items()}
    return Read(module, model, inputs, outputs, parameters)


def from_torch(row: Row) -> Read:
    module, given = created(row), row.draw(row.at(EXAMPLE))
    axes = tuple(dict.fromkeys(each, torch.export.Dim.AUTO) for each in row.open_axes())
    # A function takes its inputs as one tuple.
    takes_all = type(module).__name__ == "Function"
    model = interop.from_torch(
        module, given, dynamic_shapes=(axes,) if takes_all else axes
    )
    names = {place: name for name, place in model.places.items()}
    inputs = [names[place] for place in range(len(given))]
    return Read(module, model, inputs, model.graph.output_names, model.parameters)


def listed(outputs: Any) -> list[Any]:
    return [*outputs] if isinstance(outputs, tuple) else [outputs]


def agrees(read: Read, backward: Any, given: Sequence[Any], runs: Any) -> None:
    """The outputs and all gradients are those of torch, in double precision."""
    exact = copy.deepcopy(read.module).double()
    xs = [x.double().requires_grad_() for x in given]
    ys, parameters = listed(exact(*xs)), dict(exact.named_parameters())
    seeds = [torch.randn_like(y) for y in ys]
    leaves = [*xs, *parameters.values()]
    wanted = torch.autograd.grad(ys, leaves, seeds, materialize_grads=True)
    made = [*read.inputs, *(read.parameters.get(name) for name in parameters)]
    gradients = [backward.gradients.get(name) for name in made]
    feeds = {n: x.detach().numpy() for n, x in zip(read.inputs, xs, strict=True)}
    names = [backward.seeds[y] for y in read.outputs]
    feeds |= {n: seed.numpy() for n, seed in zip(names, seeds, strict=True)}
    for run, most in runs:
        found = run(feeds)
        for name, y in zip(read.outputs, ys, strict=True):
            close(found[name], y.detach().numpy(), most)
        for name, gradient in zip(gradients, wanted, strict=True):
            # Weights of recurrent layers are joined in the file.
            if name is not None:
                close(found[name], gradient.numpy(), most)
    assert all(name is not None for name in gradients[: len(xs)])


def close(found: Any, wanted: Any, most: float) -> None:
    found = np.asarray(found).reshape(wanted.shape)
    assert np.abs(found - wanted).max() <= most * max(1.0, np.abs(wanted).max())


def in_interpreter(backward: Any, data: Any) -> Run:
    """The document as it is read from its text."""
    text = nnef_grad.loads(nnef_grad.dumps(backward.graph))

    def run(feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        needed = {name: feeds[name] for name in text.input_names}
        return nnef_grad.evaluate(text, needed, data, dtype=np.float64)

    return run


def in_onnx_runtime(backward: Any, data: Any, path: Path) -> Run:
    """One session for all sizes."""
    interop.to_onnx(backward, path, data)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options)
    outputs = [output.name for output in session.get_outputs()]

    def run(feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        names = [x.name for x in session.get_inputs()]
        needed = {name: np.asarray(feeds[name], np.float32) for name in names}
        return dict(zip(outputs, session.run(outputs, needed), strict=True))

    return run


def rows(way: str) -> list[str]:
    return [name for name, row in ROWS.items() if way in row.ways]


@pytest.mark.parametrize("name", rows("onnx"))
def test_onnx(name: str, tmp_path: Path) -> None:
    read, row = from_onnx(ROWS[name], tmp_path), ROWS[name]
    backward = nnef_grad.differentiate(read.model.graph, wrt="all", with_outputs=True)
    data = read.model.data
    runs = [
        (in_interpreter(backward, data), FINE),
        (in_onnx_runtime(backward, data, tmp_path / "backward.onnx"), ROUGH),
    ]
    for place in range(4):
        agrees(read, backward, row.draw(row.at(place)), runs)
    if name in REFUSED_SIZES:
        refuses(read, backward, row.at(EXAMPLE) | REFUSED_SIZES[name], row)


def refuses(read: Read, backward: Any, numbers: Mapping[str, int], row: Row) -> None:
    """Neither torch nor the document takes a size."""
    with pytest.raises(RuntimeError):
        read.module(*row.draw(numbers))
    with pytest.raises(NnefGradError, match=r"cannot be|must be|does not take"):
        with_numbers(backward.graph, numbers)


@pytest.mark.parametrize("name", rows("torch"))
def test_torch(name: str) -> None:
    read, row = from_torch(ROWS[name]), ROWS[name]
    backward = nnef_grad.differentiate(read.model.graph, wrt="all", with_outputs=True)
    runs = [(in_interpreter(backward, read.model.data), FINE)]
    for place in range(row.torch_from, 4):
        agrees(read, backward, row.draw(row.at(place)), runs)


# ---- What a network says of its sizes ----


def test_given_parts_are_all_of_an_axis(tmp_path: Path) -> None:
    """And not parts in this ratio, of any axis that has them."""
    path = saved(
        "T", "a, b = Split <axis = 0> (x, n)\n y = Mul (a, b)", tmp_path, n=[4, 4]
    )
    graph = interop.from_onnx(path).graph
    assert graph.inputs[0].shape == (8,)


def test_one_element_has_no_variance() -> None:
    module = torch.nn.Sequential(torch.nn.Conv1d(4, 3, 3, stride=2), Deviation())
    axes = ({0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO},)
    model = interop.from_torch(module, [torch.randn(2, 4, 9)], dynamic_shapes=axes)
    (x,) = model.graph.inputs
    name = str(x.shape[2])
    assert with_numbers(model.graph, {name: 5}).outputs[0].shape[1:] == (3,)
    with pytest.raises(NnefGradError, match=f"'{name}' cannot be 4: .* at least 5"):
        with_numbers(model.graph, {name: 4})


class Deviation(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x.std(-1)


def saved(shape: str, nodes: str, folder: Path, **stored: Any) -> Path:
    """The file of a model with an input x and an output y."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    net (float[{shape}] x) => (float[n] y) {{ {nodes} }}"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    arrays = {name: np.array(x) for name, x in stored.items()}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(x, name) for name, x in arrays.items()
    )
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


# ---- What cannot be known ----

# Nodes of a model with an input x, and what the message says.
REFUSED: Mapping[str, tuple[str, str, str]] = {
    "resize by a number that is rounded": (
        "N, 3, H, W",
        """scales = Constant <value_floats = [1.0, 1.0, 1.3, 1.3]> ()
        y = Resize <mode = "linear"> (x, , scales)""",
        r"'Resize' .*an extent of H times 1.29999995.* is not known",
    ),
    "a branch for each size": (
        "T",
        """s = Size (x)
        five = Constant <value_int = 5> ()
        is_long = Greater (s, five)
        y = If (is_long) <
            then_branch = a () => (float[T] p) { p = Sin (x) },
            else_branch = b () => (float[T] q) { q = Neg (x) }
        >""",
        r"'Greater' .*whether T is greater than 5 is not known",
    ),
    "a branch for even sizes": (
        "T",
        """s = Size (x)
        two = Constant <value_int = 2> ()
        rest = Mod (s, two)
        zero = Constant <value_int = 0> ()
        is_even = Equal (rest, zero)
        y = If (is_even) <
            then_branch = a () => (float[T] p) { p = Sin (x) },
            else_branch = b () => (float[T] q) { q = Neg (x) }
        >""",
        r"'Equal' .*whether T - 2\*\(T/2\) is 0 is not known",
    ),
    "a sequence of rows": (
        "T, 3",
        """s = SplitToSequence <axis = 0> (x)
        y = ConcatFromSequence <axis = 0> (s)""",
        "'SplitToSequence' .*whether T is",
    ),
    "a diagonal": ("T, T", "e = EyeLike (x)\n y = Mul (e, x)", "'EyeLike' .*number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_depends_on_the_number_is_refused(name: str, tmp_path: Path) -> None:
    """The remedy is a number for the symbol."""
    shape, nodes, message = REFUSED[name]
    path = saved(shape, nodes, tmp_path)
    with pytest.raises(NnefGradError, match=message) as caught:
        interop.from_onnx(path)
    assert {problem.remedy for problem in caught.value.problems} == {"symbol"}
