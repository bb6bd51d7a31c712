"""Training steps of documents in tract's dialect: run by tract alone, next to the evaluator
in double precision; and of an export of the project's own next to torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support.dialect_models import HEAD, write_model
from support.exports.exporting import export
from support.exports.layers import LAYERS
from support.exports.networks import NETWORKS
from support.runtimes import needs
from support.training_steps import Optimizer

import nnef_grad
from nnef_grad.targets.tensors import DTYPES
from nnef_grad.training import run, save_step

Array = Any
Batch = dict[str, Array]
ROOT = Path(__file__).parents[2]
TONES = ROOT / "samples" / "exported" / "tones"
# Of the modules that are exported here.
NAMES = (
    "mlp",
    "conv2d",
    "depthwise",
    "deconv2d",
    "layer_norm",
    "group_norm",
    "residual",
    "encoder",
)
STEPS, RATE = 3, 0.05
TOLERANCE = 1e-5

# Statements, the data of their variables, and the labels of those that are trained.
DOCUMENTS: dict[str, tuple[str, Mapping[str, Any], set[str]]] = {
    "a_number_in_a_variable": (
        """
    epsilon = variable<scalar>(label = 'epsilon', shape = []);
    w = variable<scalar>(label = 'fc.weight', shape = [3, 4]);
    h = linear(x, w, 0.0);
    y = tract_core_rms_norm(h, axis = 1, eps = epsilon);
""",
        {"epsilon": np.float32(1e-3), "fc.weight": (3, 4)},
        {"fc.weight"},
    ),
    "a_number_that_is_trained": (
        """
    slope = variable<scalar>(label = 'act.slope', shape = []);
    y = select(x < 0.0, slope * x, x);
""",
        {"act.slope": np.float32(0.25)},
        {"act.slope"},
    ),
    "integers_in_a_variable": (
        """
    rows = variable<scalar>(label = 'rows', shape = [2]);
    w = variable<scalar>(label = 'fc.weight', shape = [5, 4]);
    h = linear(x, tract_core_gather(w, rows, axis = 0), 0.0);
    y = tanh(h);
""",
        {"rows": np.array([3, 1]), "fc.weight": (5, 4)},
        {"fc.weight"},
    ),
    "truths_in_a_variable": (
        """
    mask = variable<scalar>(label = 'mask', shape = [1, 4]);
    w = variable<scalar>(label = 'scale', shape = [4]);
    y = select(mask, mul(x, unsqueeze(w, axes = [0])), 0.0);
""",
        {"mask": np.array([[True, False, True, True]]), "scale": (4,)},
        {"scale"},
    ),
    "half_precision": (
        """
    w = variable<scalar>(label = 'fc.weight', shape = [3, 4]);
    b = variable<scalar>(label = 'fc.bias', shape = [3]);
    y = linear(x, w, unsqueeze(b, axes = [0]));
""",
        {"fc.weight": np.float16(np.ones((3, 4)) / 3), "fc.bias": (3,)},
        {"fc.weight", "fc.bias"},
    ),
}


def document(name: str, folder: Path) -> Path:
    """A folder with a model of the list."""
    statements, data, _ = DOCUMENTS[name]
    random = np.random.default_rng(0)
    text = (
        f"{HEAD}extension tract_symbol B;\n\ngraph network(x) -> (y)\n{{\n"
        f"    x = tract_core_external(shape = [B, 4], datum_type = 'f32');{statements}}}\n"
    )
    values = {
        label: random.standard_normal(value).astype(np.float32)
        if isinstance(value, tuple)
        else value
        for label, value in data.items()
    }
    return write_model(folder, text, values)


def step_for_tract(
    folder: Path, symbols: Mapping[str, int] | None = None, **options: Any
) -> nnef_grad.Step:
    """A step whose loss is that of all outputs of an export."""
    graph = nnef_grad.load(folder, symbols=symbols)
    return nnef_grad.training_step(
        graph,
        data=nnef_grad.load_data(folder),
        loss=dict.fromkeys(graph.output_names, "mean_squared_error"),
        target="tract",
        **{"optimizer": "sgd", **options},
    )


def batches(step: nnef_grad.Step) -> Iterator[Batch]:
    """Random inputs and targets. Integers of the model may be scalars of the step."""
    random = np.random.default_rng(0)
    model = step.model
    inputs = zip(model.input_names, model.inputs, strict=True)
    integers = {name for name, t in inputs if t.dtype == "integer"}
    others = {"learning_rate", *step.labels}
    for _ in range(STEPS):
        yield {
            name: random.integers(0, 5, t.shape)
            if name in integers
            else random.standard_normal(t.shape)
            for name, t in zip(step.inputs, step.graph.inputs, strict=True)
            if name not in others
        }


def in_tract(
    step: nnef_grad.Step, folder: Path, feeds: Sequence[Batch]
) -> tuple[list[float], dict[str, Array]]:
    """The losses of some steps, and the values after them by label: tract and the files of
    a step are all that is used.
    """
    import tract

    save_step(step, folder)
    model = tract.nnef().load(str(folder))
    names = [model.input_name(i) for i in range(model.input_count())]
    inputs = zip(step.inputs, step.graph.inputs, strict=True)
    types = {name: DTYPES[t.dtype] for name, t in inputs}
    runnable = model.into_runnable()
    stored = nnef_grad.load_data(folder)
    state = {name: stored[name] for name in step.state}
    assert all(value.dtype == types[name] for name, value in state.items())
    losses = []
    for batch in feeds:
        fed = {**batch, "learning_rate": np.float32(RATE), **state}
        loss, *new = runnable.run([np.asarray(fed[n], types[n]) for n in names])
        losses.append(float(loss.to_numpy()))
        state = dict(zip(state, (tensor.to_numpy() for tensor in new), strict=True))
    return losses, {step.labels[name]: value for name, value in state.items()}


def assert_tract_trains_it(step: nnef_grad.Step, folder: Path) -> None:
    needs("tract")
    feeds = [*batches(step)]
    losses, values = in_tract(step, folder / "step", feeds)
    training = run(step, feeds, runtime="numpy", learning_rate=RATE, dtype=np.float64)
    np.testing.assert_allclose(losses, list(training), rtol=TOLERANCE)
    for label, value in values.items():
        wanted = training.data[label]
        np.testing.assert_allclose(
            value, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=label
        )


@pytest.mark.parametrize("name", NAMES)
def test_an_export(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch_to_nnef")
    (module,) = (m for m in (*LAYERS, *NETWORKS) if m.name == name)
    step = step_for_tract(export(module, tmp_path).folder)
    assert_tract_trains_it(step, tmp_path)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document(name: str, tmp_path: Path) -> None:
    step = step_for_tract(document(name, tmp_path / "model"), {"B": 2})
    _, _, trained = DOCUMENTS[name]
    assert {step.labels[name] for name in step.state} == trained
    assert_tract_trains_it(step, tmp_path)


# ---- The sample's network, next to torch ----


class Tones(torch.nn.Module):  # type: ignore[misc]
    """The network, with the values of the export under the names that these have there."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv1d(1, 8, 7, stride=2, padding=3)
        self.conv2 = torch.nn.Conv1d(8, 16, 5, stride=2, padding=2)
        self.head = torch.nn.Linear(16, 4)
        self.load_state_dict({k: torch.tensor(v) for k, v in values.items()})
        self.double()

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        hidden = self.conv1(sound).relu()
        return self.head(self.conv2(hidden).relu().mean(2))


def test_gradients_have_the_names_of_torch() -> None:
    graph, data = nnef_grad.load(TONES, batch=3), nnef_grad.load_data(TONES)
    module = Tones(data)
    backward = nnef_grad.differentiate(graph, wrt="variables")
    random = np.random.default_rng(0)
    inputs = zip(backward.graph.input_names, backward.graph.inputs, strict=True)
    feeds = {name: random.standard_normal(t.shape) for name, t in inputs}
    found = nnef_grad.evaluate(backward, feeds, data)
    module(torch.tensor(feeds["sound"])).backward(torch.tensor(feeds["grad_scores"]))
    named = {graph.labels[name]: found[g] for name, g in backward.gradients.items()}
    wanted = {name: p.grad for name, p in module.named_parameters()}
    assert {*named} == {*wanted}
    assert backward.gradients["head_weight"] == "grad_head_weight"
    for name, gradient in wanted.items():
        assert gradient is not None
        np.testing.assert_allclose(named[name], gradient, rtol=1e-9, atol=1e-12)


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": lambda p: torch.optim.SGD(p, RATE),
    "adam": lambda p: torch.optim.Adam(p, RATE),
    "adamw": lambda p: torch.optim.AdamW(p, RATE),
}


@pytest.mark.parametrize("recipe", OPTIMIZERS)
@pytest.mark.parametrize("names", ["", "head"])
def test_the_head_and_the_whole_network(
    recipe: str, names: str, tmp_path: Path
) -> None:
    needs("tract")
    step = step_for_tract(TONES, {"B": 4}, optimizer=recipe, train=f"{names}*")
    feeds = [*batches(step)]
    losses, values = in_tract(step, tmp_path / "step", feeds)
    module = Tones(nnef_grad.load_data(TONES))
    trained = {n: p for n, p in module.named_parameters() if n.startswith(names)}
    optimizer = OPTIMIZERS[recipe]([*trained.values()])
    for batch, loss in zip(feeds, losses, strict=True):
        optimizer.zero_grad()
        found = F.mse_loss(
            module(torch.tensor(batch["sound"])), torch.tensor(batch["target_scores"])
        )
        found.backward()
        optimizer.step()
        assert loss == pytest.approx(found.item(), rel=TOLERANCE)
    assert {*values}.intersection(module.state_dict()) == {*trained}
    for label, parameter in trained.items():
        wanted = parameter.detach()
        np.testing.assert_allclose(values[label], wanted, atol=TOLERANCE)


def test_the_statistics_of_a_batch(tmp_path: Path) -> None:
    """Exports have them in the shape [1, channels, 1, 1]."""
    needs("tract")
    random = np.random.default_rng(0)
    labels = ("mean", "variance", "offset", "scale")
    values = {k: random.random((1, 3, 1, 1)).astype("f4") + 0.5 for k in labels}
    declared = "".join(
        f"    {k} = variable<scalar>(label = 'bn.{k}', shape = [1, 3, 1, 1]);\n"
        for k in labels
    )
    text = (
        f"{HEAD}\ngraph network(x) -> (y)\n{{\n"
        "    x = tract_core_external(shape = [4, 3, 2, 2], datum_type = 'f32');\n"
        f"{declared}    y = batch_normalization(x, {', '.join(labels)}, epsilon = 1e-5);\n}}\n"
    )
    write_model(tmp_path / "model", text, {f"bn.{k}": v for k, v in values.items()})
    step = step_for_tract(tmp_path / "model", batch_statistics=0.1)
    feeds = [*batches(step)]
    losses, found = in_tract(step, tmp_path / "step", feeds)
    mean, variance, offset, scale = (
        torch.tensor(v.reshape(3), dtype=torch.float64) for v in values.values()
    )
    trained = [offset.requires_grad_(), scale.requires_grad_()]
    optimizer = torch.optim.SGD(trained, lr=RATE)
    for batch, loss in zip(feeds, losses, strict=True):
        optimizer.zero_grad()
        x, target = (torch.tensor(v) for v in batch.values())
        y = F.batch_norm(x, mean, variance, scale, offset, training=True)
        F.mse_loss(y, target).backward()
        assert loss == pytest.approx(F.mse_loss(y, target).item(), rel=TOLERANCE)
        optimizer.step()
    for label, wanted in zip(labels, (mean, variance, offset, scale), strict=True):
        value = found[f"bn.{label}"].reshape(3)
        np.testing.assert_allclose(value, wanted.detach(), rtol=TOLERANCE)
