"""The verifier: a pass that breaks a graph is caught, by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nnef_grad
from nnef_grad import Graph
from nnef_grad.commandline import command
from nnef_grad.commandline.cli import main
from nnef_grad.emit.verifier import BrokenGraphError, verify
from nnef_grad.graph import pipeline
from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.graph.passes import prune
from nnef_grad.targets import passes

TEXT = """version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    w = variable(shape = [4, 3], label = 'w');
    z = matmul(x, w, transposeB = true);
    [a, b] = split(z, axis = 1, ratios = [1, 3]);
    y = sum_reduce(b, axes = [1]);
}
"""


def with_tensors(change: Callable[[Tensor, str], Tensor], graph: Graph) -> Graph:
    """The graph with other tensors in the place of its own."""
    named = {x: change(x, name) for x, name in graph.names.items()}

    def other(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(other, value))
        return named.get(value, value) if isinstance(value, Tensor) else value

    operations = [
        replace(op, operands=other(op.operands), results=other(op.results))
        for op in graph.operations
    ]
    ends = {"inputs": other(graph.inputs), "outputs": other(graph.outputs)}
    names = {named[x]: name for x, name in graph.names.items()}
    return replace(graph, operations=tuple(operations), names=names, **ends)


def wider(tensor: Tensor, name: str) -> Tensor:
    return Tensor(tensor.dtype, (*tensor.shape[:-1], 9)) if name == "z" else tensor


def whole(tensor: Tensor, name: str) -> Tensor:
    return Tensor("integer", tensor.shape) if name == "y" else tensor


def second(tensor: Tensor, name: str) -> Tensor:
    return Tensor(tensor.dtype, (2, 2)) if name == "b" else tensor


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (wider, r"z, of 'matmul', is scalar \[2, 9\], and should be scalar \[2, 4\]"),
        (whole, r"y, of 'sum_reduce', is integer \[2, 1\], and should be scalar"),
        (second, r"b, of 'split', is scalar \[2, 2\], and should be scalar \[2, 3\]"),
    ],
)
def test_a_tensor_is_what_its_operation_makes(change: Any, message: str) -> None:
    graph = nnef_grad.loads(TEXT)
    verify(with_tensors(lambda tensor, name: tensor, graph))
    with pytest.raises(BrokenGraphError, match=message):
        verify(with_tensors(change, graph))


def reversed_operations(graph: Graph) -> Graph:
    return replace(graph, operations=graph.operations[::-1])


def without_the_last(graph: Graph) -> Graph:
    return replace(graph, operations=graph.operations[:-1])


def twice(graph: Graph) -> Graph:
    again: tuple[Operation, ...] = (*graph.operations, graph.operations[-1])
    return replace(graph, operations=again)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            reversed_operations,
            "'sum_reduce' reads what is defined later, or nowhere, for y",
        ),
        (without_the_last, "an output is not defined"),
        (twice, "two tensors have one name"),
    ],
)
def test_the_order_is_checked(change: Callable[[Graph], Graph], message: str) -> None:
    with pytest.raises(BrokenGraphError, match=message):
        verify(change(nnef_grad.loads(TEXT)))


def test_a_planted_pass_is_caught_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests watch each pass, of each target."""

    def compute_literals(graph: Graph) -> Graph:
        return with_tensors(wider, graph)

    monkeypatch.setattr(passes, "compute_literals", compute_literals)
    with pytest.raises(
        BrokenGraphError, match="after compute-literals: z, of 'matmul'"
    ):
        nnef_grad.lower(nnef_grad.loads(TEXT), "onnx")


def test_what_watches_sees_the_passes_that_change_something() -> None:
    seen: list[str] = []
    graph = nnef_grad.loads(TEXT.replace("    y =", "    c = exp(a);\n    y ="))
    with pipeline.watching(lambda name, graph: seen.append(name)):
        pruned = pipeline.run(prune, graph)
        assert pipeline.run(prune, pruned) is pruned
    assert seen == ["prune"]


def test_the_command_prints_the_graph_after_a_pass(tmp_path: Path) -> None:
    path = tmp_path / "net.nnef"
    path.write_text(TEXT, "utf-8")

    def printed(name: str) -> str:
        words = [str(path), "--target", "khronos", "-q", "--print-after", name]
        return CliRunner().invoke(main, words).stderr

    every, one = printed("all"), printed("differentiate")
    assert one.startswith("# After differentiate:\nversion 1.0;\n")
    assert every.startswith(one)
    assert "# After inline:\n" in every
    missing = (
        "warning: no pass 'fuse' has changed the graph; these have: differentiate, "
    )
    assert printed("fuse").startswith(missing)


def test_nothing_broken_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = command._lower

    def broken(*given: Any) -> Any:
        made = whole(*given)
        return made._replace(graph=with_tensors(wider, made.graph))

    monkeypatch.setattr(command, "_lower", broken)
    (tmp_path / "net.nnef").write_text(TEXT, "utf-8")
    words = [str(tmp_path / "net.nnef"), "-o", str(tmp_path / "out.nnef")]
    result = CliRunner().invoke(main, [*words, "--with-outputs"])
    assert result.exit_code == 1
    message = "error: this is a bug in nnef-grad (BrokenGraphError: z, of 'matmul', is"
    assert message in result.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"net.nnef"}
