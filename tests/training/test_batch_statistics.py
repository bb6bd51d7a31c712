"""Batch normalization in training against torch's, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support.training_steps import Evaluated, assert_near, random_data

import nnef_grad

Array = Any
EPSILON = 1e-3
SHAPES = [(6, 3), (4, 3, 5), (2, 3, 4, 3), (2, 3, 2, 2, 2)]
LABELS = ("slope", "norm/mean", "norm/variance", "norm/offset", "norm/scale")


def text_of(shape: tuple[int, ...], body: str | None = None) -> str:
    """A network whose normalization is not undone by the slope before it."""
    body = body or (
        "y = batch_normalization("
        f"bent, mean, variance, offset, scale, epsilon = {EPSILON});"
    )
    variables = "".join(
        f"    {label.rpartition('/')[2]} = variable(shape = [1, 3], label = '{label}');\n"
        for label in LABELS
    )
    return (
        "version 1.0;\ngraph net( x ) -> ( y )\n{\n"
        f"    x = external(shape = {list(shape)});\n{variables}"
        f"    bent = tanh(mul(x, slope));\n    {body}\n}}\n"
    )


def data_of(graph: nnef_grad.Graph) -> dict[str, Array]:
    data = random_data(graph)
    if "norm/variance" in data:
        positive = np.abs(data["norm/variance"]) + 0.5
        data["norm/variance"] = positive.astype(np.float32).astype(float)
    return data


class Peer:
    """The network in torch.

    Attributes:
        values: the variables, by label, of which the running statistics are no parameters.
    """

    def __init__(self, data: Mapping[str, Array], momentum: float) -> None:
        self.values = {k: torch.tensor(v.copy()) for k, v in data.items()}
        self.momentum = momentum
        for label in ("slope", "norm/offset", "norm/scale"):
            self.values[label].requires_grad_()

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [value for value in self.values.values() if value.requires_grad]

    def normalized(self, x: torch.Tensor, training: bool = True) -> torch.Tensor:
        flat = {k: v.flatten() for k, v in self.values.items()}
        return F.batch_norm(
            x,
            flat["norm/mean"],
            flat["norm/variance"],
            flat["norm/scale"],
            flat["norm/offset"],
            training,
            self.momentum,
            EPSILON,
        )

    def bent(self, x: torch.Tensor) -> torch.Tensor:
        slope = self.values["slope"]
        return torch.tanh(x * slope.reshape(1, 3, *[1] * (x.dim() - 2)))


def batches(shape: tuple[int, ...], count: int = 10) -> list[dict[str, Array]]:
    generator = np.random.default_rng(5)
    return [
        {
            "x": 1.0 + generator.standard_normal(shape),
            "target_y": generator.standard_normal(shape),
        }
        for _ in range(count)
    ]


def trained(graph: nnef_grad.Graph, **options: Any) -> nnef_grad.Step:
    return nnef_grad.training_step(
        graph,
        loss="mean_squared_error",
        optimizer="momentum",
        learning_rate=0.1,
        **{"data": data_of(graph), **options},
    )


def compare(step: nnef_grad.Step, peer: Peer, forward: Any, shape: Any) -> Evaluated:
    evaluated = Evaluated(step)
    optimizer = torch.optim.SGD(peer.parameters, lr=0.1, momentum=0.9)
    for feeds in batches(shape):
        optimizer.zero_grad()
        found = forward(torch.tensor(feeds["x"]))
        loss = F.mse_loss(found, torch.tensor(feeds["target_y"]))
        loss.backward()
        optimizer.step()
        reported = float(evaluated(feeds)["loss"])
        assert reported == pytest.approx(loss.item(), rel=1e-12)
        assert_near(evaluated.values, peer.values)
    return evaluated


@pytest.mark.parametrize("state", ["variables", "inputs"])
@pytest.mark.parametrize("momentum", [0.1, 0.75, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=len)
def test_a_network_with_a_normalization(
    shape: tuple[int, ...], momentum: float, state: Any
) -> None:
    graph = nnef_grad.loads(text_of(shape))
    step = trained(graph, batch_statistics=momentum, state=state)
    peer = Peer(data_of(graph), momentum)
    compare(step, peer, lambda x: peer.normalized(peer.bent(x)), shape)
    assert step.warnings == ()


def test_statistics_come_after_the_state_of_the_optimizer() -> None:
    graph = nnef_grad.loads(text_of((6, 3)))
    step = trained(graph, batch_statistics=0.1, state="inputs")
    assert list(step.state) == [
        *("slope", "offset", "scale"),
        *("slope_velocity", "offset_velocity", "scale_velocity"),
        *("mean", "variance"),
    ]
    assert step.inputs == ("x", "target_y", *step.state)
    assert step.outputs == ("loss", *step.state.values())


def test_without_them_the_graphs_own_are_taken_and_a_note_says_so() -> None:
    shape = (2, 3, 4, 3)
    graph = nnef_grad.loads(text_of(shape))
    step, peer = trained(graph), Peer(data_of(graph), 0.1)
    evaluated = compare(
        step, peer, lambda x: peer.normalized(peer.bent(x), training=False), shape
    )
    for label in ("norm/mean", "norm/variance"):
        assert (evaluated.values[label] == data_of(graph)[label]).all()
    (warning,) = step.warnings
    assert "as in evaluation" in warning


@pytest.mark.parametrize("momentum", [None, 0.1])
def test_running_statistics_are_not_trained_by_a_pattern(
    momentum: float | None,
) -> None:
    """They are no parameters: a gradient could make a variance negative."""
    step = trained(
        nnef_grad.loads(text_of((6, 3))), train=["norm/*"], batch_statistics=momentum
    )
    assert list(step.state)[:2] == ["offset", "scale"]
    assert not [name for name in step.graph.tensors if name.startswith("mean_veloc")]
    assert not [w for w in step.warnings if "does not depend" in w]


def test_a_normalization_that_is_used_twice_moves_its_statistics_twice() -> None:
    body = (
        "first = batch_normalization("
        f"bent, mean, variance, offset, scale, epsilon = {EPSILON});\n"
        f"    y = batch_normalization("
        f"tanh(first), mean, variance, offset, scale, epsilon = {EPSILON});"
    )
    shape = (4, 3, 5)
    graph = nnef_grad.loads(text_of(shape, body))
    step, peer = trained(graph, batch_statistics=0.2), Peer(data_of(graph), 0.2)

    def forward(x: torch.Tensor) -> torch.Tensor:
        return peer.normalized(torch.tanh(peer.normalized(peer.bent(x))))

    compare(step, peer, forward, shape)


def test_a_normalization_by_numbers_stays_as_it_is() -> None:
    body = "y = batch_normalization(bent, 0.5, 2.0, offset, scale, epsilon = 0.001);"
    graph = nnef_grad.loads(text_of((6, 3), body))
    steps = [trained(graph, batch_statistics=m) for m in (None, 0.1)]
    assert nnef_grad.dumps(steps[0].graph) == nnef_grad.dumps(steps[1].graph)
    assert not steps[0].warnings
    (warning,) = steps[1].warnings
    assert warning == "there is no batch normalization with running statistics"


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1), (1, 3, 1, 1)])
def test_a_channel_of_one_element_has_no_variance(shape: tuple[int, ...]) -> None:
    graph = nnef_grad.loads(text_of(shape))
    with pytest.raises(nnef_grad.UsageError, match="one element in a channel") as found:
        trained(graph, batch_statistics=0.1)
    assert found.value.problems[0].span is not None
    trained(graph)


def test_gradients_that_are_accumulated_and_scaled() -> None:
    """Each batch moves the statistics, unless its gradients are no numbers."""
    shape = (6, 3)
    graph = nnef_grad.loads(text_of(shape))
    step = trained(graph, batch_statistics=0.1, accumulate=2, loss_scale=True)
    evaluated, peer = Evaluated(step), Peer(data_of(graph), 0.1)
    good, bad = batches(shape, 2)
    bad["target_y"][0, 0] = np.inf
    for feeds in (good, bad):
        with np.errstate(all="ignore"):
            evaluated(feeds, loss_scale=8.0)
    with torch.no_grad():
        peer.normalized(peer.bent(torch.tensor(good["x"])))
    running = {k: peer.values[k] for k in ("norm/mean", "norm/variance")}
    assert_near(evaluated.values, running)
