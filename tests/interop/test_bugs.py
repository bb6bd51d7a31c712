"""Exceptions that nobody foresaw: a bug says that it is one, and where; what the user's file
is the reason for is no bug.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import InternalError, bugs_at, is_bug
from nnef_grad.commandline import console
from nnef_grad.commandline.cli import main
from nnef_grad.frontends.tract.evaluation import EXPANSIONS

onnx = pytest.importorskip("onnx")

ERRORS = [TypeError("oh"), IndexError("oh"), ValueError("oh"), RuntimeError("oh")]


def raising(error: Exception) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise error

    return function


def ours(error: Exception) -> Any:
    """What raises an error as if it were in a file of the package."""
    function = raising(error)
    function.__code__ = function.__code__.replace(co_filename=nnef_grad.__file__)
    return function


def operations() -> dict[str, Any]:
    """What reads the operations of ONNX."""
    from nnef_grad.frontends.onnx import graph, node

    assert graph
    return node.OPERATIONS


def onnx_file(folder: Path, kind: str, *operands: str, **attributes: Any) -> Path:
    node = onnx.helper.make_node(kind, operands, ["y"], name="n", **attributes)
    x, y = (onnx.helper.make_tensor_value_info(n, 1, s) for n, s in VALUES.items())
    weight = onnx.numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    graph = onnx.helper.make_graph([node], "net", [x], [y], [weight])
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


VALUES = {"x": [2, 3], "y": None}

# ---- ONNX ----


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_bug_in_reading_a_node(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(operations(), "MatMul", raising(error))
    path, kind = onnx_file(tmp_path, "MatMul", "x", "w"), type(error).__name__
    bug = f"this is a bug in nnef-grad, at 'MatMul' (node 'n'): {kind}: oh"
    with pytest.raises(InternalError) as caught:
        interop.from_onnx(path)
    assert str(caught.value) == bug
    result = CliRunner().invoke(main, [str(path), "-o", str(tmp_path / "x.onnx")])
    assert result.exit_code == console.INTERNAL_ERROR
    assert result.stderr.startswith(f"error: {bug}; set NNEF_GRAD_TRACEBACK=1")


@pytest.mark.parametrize(
    ("kind", "operands", "attributes"),
    [
        ("Transpose", ["x"], {"perm": [0, 7]}),
        ("MatMul", ["w", "x"], {}),
        ("Relu", ["x", "w"], {}),
    ],
)
def test_a_file_that_is_not_valid_is_no_bug(
    kind: str,
    operands: list[str],
    attributes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(operations(), kind, raising(IndexError("oh")))
    path = onnx_file(tmp_path, kind, *operands, **attributes)
    with pytest.raises(nnef_grad.NnefGradError, match="not valid"):
        interop.from_onnx(path)


@pytest.mark.parametrize("function", ["evaluate", "work_of"])
def test_a_bug_in_computing_a_node(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What onnx itself raises there is the file's."""
    from nnef_grad.frontends.onnx import reading

    path = onnx_file(tmp_path, "Constant", value_floats=[1.0])
    monkeypatch.setattr(reading, function, ours(TypeError("oh")))
    with pytest.raises(InternalError, match=r"'Constant' \(node 'n'\): TypeError: oh"):
        interop.from_onnx(path)
    monkeypatch.setattr(reading, function, raising(TypeError("oh")))
    with pytest.raises(nnef_grad.UnsupportedError, match="onnx cannot evaluate"):
        interop.from_onnx(path)


# ---- Other formats ----

TRACT = """version 1.0;
extension tract_registry tract_core;
graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    y = %s;
}
"""


def test_a_bug_in_reading_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPANSIONS, "tract_core_softmax", raising(TypeError("oh")))
    with pytest.raises(InternalError, match="at 'tract_core_softmax': TypeError: oh"):
        nnef_grad.loads(TRACT % "tract_core_softmax(x, axes = [1])")
    for mistake in ("tract_core_softmax(x, axes = 'a')", "[1, 2] * 0.5", "x[0]"):
        with pytest.raises(nnef_grad.InvalidGraphError):
            nnef_grad.loads(TRACT % mistake)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_bug_in_reading_a_program(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from nnef_grad.frontends.torch.call import Call

    monkeypatch.setattr(Call, "run", raising(error))
    with pytest.raises(InternalError, match=r"nnef-grad, at aten\.relu.* oh"):
        interop.from_torch(torch.nn.ReLU(), [torch.ones(2)])


def test_a_bug_while_a_runtime_computes() -> None:
    from nnef_grad import runtimes

    graph = nnef_grad.loads(
        "version 1.0; graph g( x ) -> ( y ) { x = external(shape = [2]); y = exp(x); }"
    )
    with (
        pytest.raises(nnef_grad.UnsupportedError, match="X cannot run 'g': oh"),
        runtimes.refusals("X", "run", graph),
    ):
        raise TypeError("oh")
    with pytest.raises(TypeError), runtimes.refusals("X", "run", graph):
        ours(TypeError("oh"))()


# ---- Whose an exception is ----


def test_a_bug_is_a_mistake_in_our_code() -> None:
    def raised(function: Any) -> Exception:
        with pytest.raises((TypeError, ValueError), match=r"of|in") as caught:
            function()
        return caught.value

    assert is_bug(raised(ours(TypeError("in a line"))))
    assert not is_bug(raised(ours(ValueError("of the user"))))
    assert not is_bug(raised(raising(TypeError("of a library"))))


def test_what_was_foreseen_stays_what_it_is() -> None:
    for error in (nnef_grad.UsageError("oh"), MemoryError(), KeyError("expected")):
        with pytest.raises(type(error)), bugs_at("here", KeyError):
            raise error
    inner = InternalError("inside", TypeError("oh"))
    with pytest.raises(InternalError) as caught, bugs_at("here"):
        raise inner
    assert caught.value is inner
