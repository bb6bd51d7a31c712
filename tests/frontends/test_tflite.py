"""TFLite files. Each has one operation after a convolution, whose result the converter of
nnef_tools has in another order; all extents are 4, so that only values tell the orders apart.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from nnef_tools.model import Graph, Operation, Tensor
from torch.nn import functional

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import NnefGradError
from nnef_grad.commandline.cli import main

pytest.importorskip("flatbuffers")
from nnef_tools.io.tf.lite import Writer

SCHEMA = "nnef_tools.io.tf.lite.flatbuffers"
SHAPE = (1, 4, 4, 4)
draw = np.random.default_rng(3).uniform
FILTER = draw(-1, 1, (4, 3, 3, 4)).astype(np.float32)


class Case(NamedTuple):
    """An operation, its settings, its other operands, and what it computes."""

    type: str
    settings: dict[str, Any]
    others: tuple[Any, ...]
    compute: Callable[..., Any]
    first: int = 0


def numbers(*shape: int) -> Any:
    return draw(-1, 1, shape).astype(np.float32)


def whole(*values: int) -> Any:
    return np.array(values, np.int32)


def fused(name: str) -> dict[str, Any]:
    return {"fused_activation_function": name}


def channels_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch on arrays whose channels are last."""

    def computed(x: Any, *others: Any) -> Any:
        image = torch.tensor(x).permute(0, 3, 1, 2)
        result = function(image, *map(torch.tensor, others))
        return result.permute(0, 2, 3, 1).numpy()

    return computed


def deconvolved(_: Any, w: Any, x: Any, bias: Any) -> Any:
    image, row = torch.tensor(x).permute(0, 3, 1, 2), torch.tensor(bias)
    kernel = torch.tensor(w).permute(3, 0, 1, 2)
    y = functional.conv_transpose2d(image.double(), kernel.double(), row.double(), 2)
    return y.permute(0, 2, 3, 1).numpy()


POOL: dict[str, Any] = {"padding": "VALID", "stride_w": 2, "stride_h": 2}
POOL |= {"filter_width": 2, "filter_height": 2}
CONV: dict[str, Any] = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
CONV |= {"dilation_w_factor": 1, "dilation_h_factor": 1}
MASKS = dict.fromkeys(("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
LINEAR: dict[str, Any] = {"weights_format": "DEFAULT", "asymmetric_quantize_inputs": 0}
LRN = {"radius": 1, "bias": 0.5, "alpha": 0.3, "beta": 0.6}
CASES = {
    "sum with an activation": Case(
        "ADD",
        {**fused("RELU"), "pot_scale_int16": 0},
        (numbers(4),),
        lambda x, y: np.maximum(x + y, 0),
    ),
    "pool with an activation": Case(
        "MAX_POOL_2D",
        {**POOL, **fused("RELU_N1_TO_1")},
        (),
        channels_first(lambda x: functional.max_pool2d(x, 2).clip(-1, 1)),
    ),
    "groups": Case(
        "CONV_2D",
        {**CONV, **fused("NONE")},
        (numbers(4, 3, 3, 2), numbers(4)),
        channels_first(
            lambda x, w, b: functional.conv2d(
                x, w.permute(0, 3, 1, 2).double(), b.double(), padding=1, groups=2
            )
        ),
    ),
    "mean of rows": Case(
        "MEAN", {"keep_dims": False}, (whole(1),), lambda x, _: x.mean(1)
    ),
    "largest channel": Case(
        "ARG_MAX", {"output_type": np.int32}, (whole(3),), lambda x, _: x.argmax(3)
    ),
    "constant first": Case(
        "CONCATENATION",
        {"axis": 3, **fused("NONE")},
        (numbers(*SHAPE),),
        lambda y, x: np.concatenate([y, x], 3),
        first=1,
    ),
    "slice of every second": Case(
        "STRIDED_SLICE",
        {"begin_mask": 15, "end_mask": 15, **MASKS},
        (whole(0, 0, 0, 0), whole(4, 4, 4, 4), whole(1, 1, 2, 1)),
        lambda x, *_: x[:, :, ::2],
    ),
    "row": Case(
        "STRIDED_SLICE",
        {"begin_mask": 13, "end_mask": 13, **MASKS, "shrink_axis_mask": 2},
        (whole(0, 1, 0, 0), whole(0, 2, 0, 0), whole(1, 1, 1, 1)),
        lambda x, *_: x[:, 1],
    ),
    "gathered channel": Case(
        "GATHER", {"axis": 3}, (np.array(2, np.int32),), lambda x, _: x[..., 2]
    ),
    "product of matrices": Case(
        "BATCH_MATMUL",
        {"adj_x": False, "adj_y": True, "asymmetric_quantize_inputs": False},
        (numbers(*SHAPE),),
        lambda x, y: x @ y.swapaxes(2, 3),
    ),
    "layer of each pixel": Case(
        "FULLY_CONNECTED",
        {**LINEAR, "keep_num_dims": True, **fused("RELU")},
        (numbers(5, 4), numbers(5)),
        lambda x, w, b: np.maximum(x @ w.T + b, 0),
    ),
    "layer of all pixels": Case(
        "FULLY_CONNECTED",
        {**LINEAR, "keep_num_dims": False, **fused("NONE")},
        (numbers(5, 64), numbers(5)),
        lambda x, w, b: x.reshape(1, 64) @ w.T + b,
    ),
    "slopes": Case(
        "PRELU", {}, (numbers(1, 1, 4),), lambda x, a: np.where(x < 0, a * x, x)
    ),
    "lengths": Case(
        "L2_NORMALIZATION",
        fused("NONE"),
        (),
        lambda x: x / np.sqrt((x * x).sum(3, keepdims=True)),
    ),
    "neighbours": Case(
        "LOCAL_RESPONSE_NORMALIZATION",
        LRN,
        (),
        channels_first(lambda x: functional.local_response_norm(x, 3, 0.9, 0.6, 0.5)),
    ),
    "images grow": Case(
        "TRANSPOSE_CONV",
        {"padding": "VALID", "stride_w": 2, "stride_h": 2},
        (whole(1, 9, 9, 3), numbers(3, 3, 3, 4), numbers(3)),
        deconvolved,
        first=2,
    ),
    "whole numbers": Case(
        "CAST",
        {"in_data_type": np.float32, "out_data_type": np.int32},
        (),
        np.trunc,
    ),
    "choice": Case(
        "SELECT_V2",
        {},
        (np.arange(4) % 2 == 0, np.float32(0.5)),
        lambda m, x, y: np.where(m, x, y),
        first=1,
    ),
    "squares": Case(
        "SQUARED_DIFFERENCE", {}, (numbers(4),), lambda x, y: (x - y) ** 2
    ),
}  # fmt: skip


def convolved(x: Any) -> Any:
    w = torch.tensor(FILTER).double().permute(0, 3, 1, 2)
    return channels_first(lambda image: functional.conv2d(image, w, padding=1))(x)


def written(path: Path, case: Case) -> Any:
    """The operands of the case but for the first, in a file."""
    graph, wanted = Graph("net"), case.compute(*operands(case, np.ones(SHAPE)))
    dtype = np.int32 if case.type in ("ARG_MAX", "CAST") else np.float32

    def stored(name: str, data: Any) -> Tensor:
        return Tensor(graph, name, data.shape, data.dtype.type, data)

    x = Tensor(graph, "x", SHAPE, np.float32)
    y = Tensor(graph, "y", SHAPE, np.float32)
    z = Tensor(graph, "z", wanted.shape, dtype)
    constants = stored("w", FILTER), stored("b", np.zeros(4, np.float32))
    Operation(graph, "CONV_2D", "conv", {**CONV, **fused("NONE")}, (x, *constants), y)
    others = [stored(f"c{i}", np.asarray(c)) for i, c in enumerate(case.others)]
    others.insert(case.first, y)
    Operation(graph, case.type, "op", case.settings, tuple(others), z)
    graph.inputs, graph.outputs = (x,), (z,)
    Writer()(graph, str(path))


def operands(case: Case, y: Any) -> list[Any]:
    others = list(case.others)
    others.insert(case.first, y)
    return others


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_operations_after_a_convolution(case: Case, tmp_path: Path) -> None:
    written(tmp_path / "net.tflite", case)
    graph, data = interop.from_tflite(tmp_path / "net.tflite")
    x = np.random.default_rng(5).uniform(-1, 1, SHAPE)
    found = nnef_grad.evaluate(graph, {"x": x}, data, dtype=np.float64)["z"]
    wanted = case.compute(*operands(case, convolved(x)))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def younger(monkeypatch: pytest.MonkeyPatch, slot: int) -> None:
    """The writer writes a setting that its schema lacks: the activation RELU, if it is 3."""

    def start(builder: Any) -> None:
        builder.StartObject(slot + 1)

    def end(builder: Any) -> Any:
        builder.PrependInt8Slot(slot, 1, 0)
        return builder.EndObject()

    options = import_module(f"{SCHEMA}.TransposeConvOptions")
    monkeypatch.setattr(options, "TransposeConvOptionsStart", start)
    monkeypatch.setattr(options, "TransposeConvOptionsEnd", end)


def test_an_activation_that_is_younger_than_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["images grow"]
    with monkeypatch.context() as patched:
        younger(patched, 3)
        written(tmp_path / "net.tflite", case)
    graph, data = interop.from_tflite(tmp_path / "net.tflite")
    x = np.random.default_rng(5).uniform(-1, 1, SHAPE)
    found = nnef_grad.evaluate(graph, {"x": x}, data, dtype=np.float64)["z"]
    wanted = case.compute(*operands(case, convolved(x))).clip(0)
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def test_an_unknown_setting_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        younger(patched, 4)
        written(tmp_path / "net.tflite", CASES["images grow"])
    with pytest.raises(NnefGradError, match="setting of TRANSPOSE_CONV is unknown"):
        interop.from_tflite(tmp_path / "net.tflite")


def test_codes_are_refused(tmp_path: Path) -> None:
    graph = Graph("net")
    quantized = {"scale": 0.5, "zero_point": 3}
    x, y = (Tensor(graph, name, SHAPE, np.uint8, quant=quantized) for name in "xy")
    Operation(graph, "LOGISTIC", "op", {}, (x,), (y,))
    graph.inputs, graph.outputs = (x,), (y,)
    Writer()(graph, str(tmp_path / "net.tflite"))
    with pytest.raises(NnefGradError, match=r"'x' of .* is quantized"):
        interop.from_tflite(tmp_path / "net.tflite")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(bytes(64))
    with pytest.raises(NnefGradError, match=r"cannot read '.*' as a TFLite file"):
        interop.from_tflite(tmp_path / "net.tflite")


@pytest.mark.parametrize("extents", [1, 3])
def test_in_one_command(
    extents: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a bare name; the batch may be another, and the names are those of the file."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "net.tflite", CASES["layer of all pixels"])
    options = ["--batch", str(extents), "--check", "-o", "bwd"]
    result = CliRunner().invoke(main, ["net.tflite", *options])
    assert result.exit_code == 0, result.output
    assert "all agree" in result.stderr
    backward = nnef_grad.load("bwd")
    assert backward.tensors["grad_x"].shape == (extents, *SHAPE[1:])
    assert nnef_grad.load_data("bwd")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (AssertionError(), "an operation of another maker"),
        (AttributeError("'int' has no 'tobytes'"), "an operation of another maker"),
        (ValueError("cannot reshape array of size 96"), "those of sparse weights"),
        (KeyError(127), "younger than the reader"),
        (ValueError("something else"), "something else"),
    ],
)
def test_what_the_reader_does_not_read_is_said(
    error: Exception, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own errors are of any kind, and some say nothing."""

    def fail(*_: object) -> None:
        raise error

    written(tmp_path / "net.tflite", CASES["images grow"])
    monkeypatch.setattr("nnef_tools.io.tf.lite.Reader.__call__", fail)
    with pytest.raises(nnef_grad.UsageError, match=message):
        interop.from_tflite(tmp_path / "net.tflite")
