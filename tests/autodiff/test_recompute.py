"""Tensors that are computed again instead of kept: the same results to the last bit, in
less memory, and not much more work than the least.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import Command
from click.testing import CliRunner
from support.all_models import all_models
from support.networks import SMALL, small_network
from support.random_graphs.generate import make_graph
from support.runtimes import Case, compare, consumers_of, needs, run

import nnef_grad
from nnef_grad.autodiff import recompute
from nnef_grad.autodiff.recompute import is_delay
from nnef_grad.commandline.cli import main
from nnef_grad.commandline.step_cli import main as step_main
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.symbols import symbols
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.ops.costs import byte_size, multiply_adds, views_of

CHAIN = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [1, 4, 16, 16]);
    f1 = variable(shape = [4, 4, 3, 3], label = 'f1');
    f2 = variable(shape = [4, 4, 3, 3], label = 'f2');
    f3 = variable(shape = [4, 4, 3, 3], label = 'f3');
    f4 = variable(shape = [4, 4, 3, 3], label = 'f4');
    a = tanh(conv(x, f1));
    b = tanh(conv(a, f2));
    c = tanh(conv(b, f3));
    y = tanh(conv(c, f4));
}
"""


ALL = {
    name: read
    for name, read in all_models().items()
    if not name.startswith("published")
}

# The larger ones take seconds.
NETWORKS = [
    pytest.param(name, marks=pytest.mark.thorough)
    if name in ("resnet", "vgg")
    else name
    for name in SMALL
]


def same(graph: Graph, again: Graph, known: Mapping[str, Any] | None = None) -> bool:
    """Whether two graphs have the same results to the last bit, on random values or on
    known ones, by names and labels.
    """
    values = random_values(graph, 3)
    inputs, variables = (
        {name: (known or {}).get(name, array) for name, array in arrays.items()}
        for arrays in (values.inputs, values.variables)
    )
    with np.errstate(all="ignore"):
        wanted = nnef_grad.evaluate(graph, inputs, variables)
        found = nnef_grad.evaluate(again, inputs, variables)
    assert list(found) == list(wanted)
    return all(np.array_equal(found[n], wanted[n], equal_nan=True) for n in wanted)


def test_a_chain() -> None:
    graph = nnef_grad.differentiate(nnef_grad.loads(CHAIN)).graph
    spared = nnef_grad.recompute(graph, 0.7)
    assert spared.peak_bytes <= spared.limit_bytes < spared.peak_bytes_before
    assert spared.multiply_adds > 0
    assert same(graph, spared.graph)
    text = nnef_grad.dumps(spared.graph)
    assert "_again = " in text
    assert nnef_grad.loads(text) == spared.graph


def test_what_fits_is_left_alone() -> None:
    graph = nnef_grad.differentiate(nnef_grad.loads(CHAIN)).graph
    spared = nnef_grad.recompute(graph, 2**30)
    assert spared.graph is graph
    assert spared.multiply_adds == 0


def test_a_limit_that_cannot_be_kept() -> None:
    backward = nnef_grad.differentiate(nnef_grad.loads(CHAIN), recompute=1000)
    (warning,) = backward.warnings
    assert "and not 1000 B" in warning


def test_large_graphs_are_searched_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found until then is returned, and each trial is told."""
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(recompute, "EFFORT", 10)
    graph = nnef_grad.differentiate(nnef_grad.loads(CHAIN)).graph
    spared = nnef_grad.recompute(graph, 1, report=lambda *trial: told.append(trial))
    assert told == [(done, 8) for done in range(8)]
    assert spared.warnings
    assert spared.peak_bytes < spared.peak_bytes_before


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_limit_that_is_none(limit: float) -> None:
    with pytest.raises(nnef_grad.UsageError, match="is positive"):
        nnef_grad.recompute(nnef_grad.loads(CHAIN), limit)


@pytest.mark.parametrize("name", ALL)
def test_all_models(name: str) -> None:
    """Loops and branches too; those whose extents are symbols have no numbers to compare."""
    graph = ALL[name]()
    try:
        backward = nnef_grad.differentiate(graph)
    except nnef_grad.NnefGradError:
        pytest.skip("no derivative")
    spared = nnef_grad.recompute(backward.graph, 0.5)
    assert spared.peak_bytes <= spared.peak_bytes_before
    if not symbols(graph):
        assert same(backward.graph, spared.graph)


@pytest.mark.parametrize("share", [0.5, 0.25])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, share: float) -> None:
    backward = nnef_grad.differentiate(nnef_grad.loads(small_network(name)))
    spared = nnef_grad.recompute(backward.graph, share)
    assert spared.peak_bytes <= spared.peak_bytes_before
    assert same(backward.graph, spared.graph)


@pytest.mark.parametrize(
    "number",
    [
        *range(40),
        *(pytest.param(n, marks=pytest.mark.thorough) for n in range(40, 200)),
    ],
)
def test_random_graphs(number: int) -> None:
    drawn = make_graph(23, number)
    try:
        backward = nnef_grad.differentiate(nnef_grad.loads(drawn.text), **drawn.options)
    except nnef_grad.NoDerivativeError:
        pytest.skip("no derivative")
    spared = nnef_grad.recompute(backward.graph, 0.5)
    assert spared.peak_bytes <= spared.peak_bytes_before
    known = {**drawn.feeds, **{k.lower(): v for k, v in drawn.variables.items()}}
    assert same(backward.graph, spared.graph, {k: v.numpy() for k, v in known.items()})


# ---- How far from the least ----


def least_work(graph: Graph, limit: int) -> int | None:
    """The fewest multiply-adds that keep a limit, in any order, by Dijkstra's algorithm
    over what is alive; None if nothing keeps it.
    """
    views = views_of(graph)
    operations = [
        op for op in graph.operations if op.name not in ("external", "variable")
    ]
    made = [frozenset(t for t in op.outputs if t not in views) for op in operations]
    read = [frozenset(views.get(t, t) for t in op.inputs) for op in operations]
    fed = {
        t
        for op in graph.operations
        if op.name in ("external", "variable")
        for t in op.outputs
    }
    results = frozenset(views.get(t, t) for t in graph.outputs)

    def size(alive: frozenset[Tensor]) -> int:
        return sum(byte_size(t) for t in alive - results)

    start: frozenset[Tensor] = frozenset()
    ties, best = count(), {start: 0}
    queue = [(0, next(ties), start)]
    while queue:
        work, _, alive = heappop(queue)
        if work > best[alive]:
            continue
        if results <= alive:
            return work
        after = [(work, alive - {t}) for t in alive - results]
        for op, new, needed in zip(operations, made, read, strict=True):
            whole = alive | new
            if whole != alive and needed - fed <= alive and size(whole) <= limit:
                after.append((work + multiply_adds(op), whole))
        for cost, state in after:
            if cost < best.get(state, cost + 1):
                best[state] = cost
                heappush(queue, (cost, next(ties), state))
    return None


def layers(widths: list[int], batch: int) -> str:
    """Products and sines, of some widths."""
    pairs = [*pairwise(widths)]
    variables = "\n".join(
        f"    w{i} = variable(shape = [{n}, {m}], label = 'w{i}');"
        for i, (n, m) in enumerate(pairs)
    )
    steps = "\n".join(
        f"    p{i} = matmul(h{i}, w{i}); h{i + 1} = sin(p{i});"
        for i in range(len(pairs))
    )
    return f"""version 1.0;
graph net( h0 ) -> ( h{len(pairs)} )
{{
    h0 = external(shape = [{batch}, {widths[0]}]);
{variables}
{steps}
}}
"""


@pytest.mark.parametrize("seed", range(6))
def test_the_work_is_near_the_least(seed: int) -> None:
    """Dijkstra may choose any order, and computes operations that cost nothing as often
    as it wants.
    """
    random = np.random.default_rng(seed)
    widths = [int(n) for n in random.choice([8, 16, 24, 32], 4)]
    graph = nnef_grad.differentiate(
        nnef_grad.loads(layers(widths, 16)), wrt="variables"
    ).graph
    once = sum(map(multiply_adds, graph.operations))
    for share in (0.9, 0.8, 0.7, 0.6, 0.5):
        spared = nnef_grad.recompute(graph, share)
        least = least_work(graph, spared.limit_bytes)
        if spared.peak_bytes <= spared.limit_bytes:
            assert least is not None
            assert once + spared.multiply_adds <= 1.8 * least


# ---- Where it is offered ----


def test_in_halves() -> None:
    """What is computed again is not saved."""
    graph = nnef_grad.loads(CHAIN)
    backward = nnef_grad.differentiate(graph)
    spared = nnef_grad.differentiate(graph, recompute=0.7)
    whole, halves = (nnef_grad.split(graph, b) for b in (backward, spared))
    assert len(halves.saved) < len(whole.saved)
    assert any(map(is_delay, halves.backward.operations))
    assert not any(map(is_delay, halves.forward.operations))
    values = random_values(backward.graph, 3)
    wanted = nnef_grad.evaluate(backward, values.inputs, values.variables)
    known = nnef_grad.evaluate(
        halves.forward, {"x": values.inputs["x"]}, values.variables
    )
    fed = {n: {**values.inputs, **known}[n] for n in halves.backward.input_names}
    found = nnef_grad.evaluate(halves.backward, fed, values.variables)
    assert all(np.array_equal(found[n], array) for n, array in wanted.items())


def test_a_training_step() -> None:
    """No variable is updated twice, and each new value is the same."""
    settings: dict[str, Any] = {
        "loss": "huber",
        "optimizer": "adam",
        "learning_rate": 0.1,
    }
    graph = nnef_grad.loads(CHAIN)
    step = nnef_grad.training_step(graph, **settings)
    spared = nnef_grad.training_step(graph, **settings, recompute=0.7)
    updated = [op.operands[0] for op in spared.graph.operations if op.name == "update"]
    assert len(updated) == len({*updated}) == len(step.state)
    # A runtime may change a variable at once: nothing reads it after that.
    names = [op.name for op in spared.graph.operations]
    assert "update" not in names[: -len(updated)]
    assert any(name.endswith("_again") for name in spared.graph.tensors)
    assert same(step.graph, spared.graph)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.nnef"
    path.write_text(CHAIN)
    return path


def test_the_option(model: Path) -> None:
    out = model.with_name("out.nnef")
    words = [str(model), "-o", str(out), "--recompute", "0.7", "--stats", "--check"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0
    assert "alive besides results: " in result.stderr
    assert "_again = conv(" in out.read_text()


def test_the_costs_for_programs(model: Path) -> None:
    words = [str(model), "--recompute", "20K", "--stats", "--format", "json"]
    result = CliRunner().invoke(main, words)
    costs = json.loads(result.stderr.splitlines()[0])["statistics"]["recompute"]
    assert costs["limit_bytes"] == 20 * 1024
    assert costs["peak_bytes"] <= costs["limit_bytes"]


@pytest.mark.parametrize("limit", ["half", "0", "-1", "inf", "nan", "5X", ""])
@pytest.mark.parametrize("command", [main, step_main])
def test_a_limit_that_is_not_understood(
    command: Command, limit: str, model: Path
) -> None:
    words = [str(model), "--recompute", limit]
    words += ["--loss", "huber"] if command is step_main else []
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 2
    assert f"bytes such as 512M, and got '{limit}'" in result.stderr


@pytest.mark.parametrize("target", ["khronos", "tract", "onnx", "portable"])
def test_what_runtimes_compute(target: str) -> None:
    """They do not see through what makes an operand later, and neither do we."""
    needs(*consumers_of(target))
    graph = nnef_grad.differentiate(nnef_grad.loads(CHAIN), recompute=0.7).graph
    lowered = nnef_grad.lower(graph, target)
    delays = [op for op in lowered.graph.operations if is_delay(op)]
    assert delays
    values = random_values(graph, 3)
    case = Case(
        nnef_grad.dumps(lowered.graph),
        values.inputs,
        {**values.variables, **lowered.data},
    )
    expected = nnef_grad.evaluate(graph, values.inputs, values.variables)
    for consumer in consumers_of(target):
        (outcome,) = run(consumer, [case])
        assert compare(outcome, expected).word == "ok"


def test_a_module_saves_less() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    from nnef_grad.torch import Module

    graph = nnef_grad.loads(CHAIN)
    values = random_values(graph, 3)
    data = {name: array.astype("f4") for name, array in values.variables.items()}
    modules = [
        Module(graph, data=data, recompute=recompute) for recompute in (None, 0.7)
    ]
    x = torch.tensor(values.inputs["x"], dtype=torch.float32)
    gradients, saved = [], []
    for module in modules:
        kept: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, kept=kept: kept.append(t.numel()) or t, lambda t: t
        ):
            loss = module(x).sum()
        loss.backward()
        gradients.append([p.grad for p in module.parameters()])
        saved.append(sum(kept))
    assert saved[1] < saved[0]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf")])
def test_a_limit_is_a_positive_number(limit: float) -> None:
    graph = nnef_grad.loads(
        "version 1.0;\ngraph net( x ) -> ( y ) { x = external(shape = [2]); y = exp(x); }"
    )
    with pytest.raises(nnef_grad.UsageError, match=f"and not {limit}"):
        nnef_grad.recompute(graph, limit)
