"""The two forms of state: texts, names, targets, folders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nnef
import numpy as np
import pytest
import torch
from support import reference
from support.training_steps import (
    MLP,
    Evaluated,
    batches,
    network,
    network_data,
    own,
    random_data,
)

import nnef_grad
from nnef_grad.interop import to_onnx
from nnef_grad.storage.tensor_file import write_array
from nnef_grad.targets import TARGETS
from nnef_grad.training import Step, save_step
from nnef_grad.training.forms import in_inputs

Array = Any
GRAPH = nnef_grad.loads(MLP)
DATA = random_data(GRAPH)
NAMES = ("weight1", "bias1", "weight2", "bias2")
MOMENTS = tuple(
    f"{name}_{moment}" for name in NAMES for moment in ("first_moment", "second_moment")
)
CORRECTIONS = ("adam_correction1", "adam_correction2")
# Steps of every kind, by what they are made with.
STEPS: Mapping[str, Mapping[str, Any]] = {
    "plain": {"optimizer": "sgd"},
    "a rate": {"optimizer": "momentum", "learning_rate": 0.1},
    "state": {"optimizer": "adam(amsgrad = true)", "l2": 0.1},
    "clipping": {"optimizer": "adagrad(lr_decay = 0.1)", "clip_norm": 1.0},
    "a scale": {"optimizer": "adamw", "loss_scale": True, "clip_value": 0.1},
    "a part": {"optimizer": "rmsprop", "freeze": ["layer1/*"]},
    "a sum": {"optimizer": "adam", "accumulate": 3, "loss_scale": True},
    "own": {"optimizer": own("by_rows"), "groups": {"bias?": "learning_rate = 0.5"}},
}


def trained(state: Any = None, **options: Any) -> Step:
    return nnef_grad.training_step(
        GRAPH, **{"loss": "mean_squared_error", "data": DATA, "state": state, **options}
    )


def trained_network(**options: Any) -> Step:
    return nnef_grad.training_step(
        network(batch=4),
        loss="softmax_cross_entropy_with_labels",
        optimizer="momentum",
        data=network_data(),
        batch_statistics=0.1,
        **options,
    )


def parts(step: Step) -> list[Step]:
    return [step] if step.apply is None else [step, step.apply]


# ---- The text ----


@pytest.mark.parametrize("state", ["variables", "inputs"])
@pytest.mark.parametrize("kind", STEPS)
def test_the_text_is_read_again(kind: str, state: Any) -> None:
    for part in parts(trained(state, **STEPS[kind])):
        text = nnef_grad.dumps(part.graph)
        again = nnef_grad.loads(text)
        assert without_comments(nnef_grad.dumps(again)) == without_comments(text)
        parsed = nnef.parse_string(text)
        nnef.infer_shapes(parsed)
        assert (tuple(parsed.inputs), tuple(parsed.outputs)) == (
            part.inputs,
            part.outputs,
        )


def without_comments(text: str) -> str:
    return re.sub(r"\n\s*(#.*)?(?=\n)", "", text)


def test_a_step_of_a_network_is_read_again() -> None:
    for state in ("variables", "inputs"):
        text = nnef_grad.dumps(trained_network(state=state).graph)
        nnef.infer_shapes(nnef.parse_string(text))
        nnef_grad.loads(text)


@pytest.mark.parametrize("kind", STEPS)
def test_both_forms_compute_the_same(kind: str) -> None:
    """To the last bit: the operations are the same."""
    forms: Any = ("variables", "inputs")
    both = [Evaluated(trained(form, **STEPS[kind])) for form in forms]
    for feeds in batches(6):
        one, other = (e(feeds, learning_rate=0.1, loss_scale=8.0) for e in both)
        assert one.keys() == other.keys()
        assert all((one[name] == other[name]).all() for name in one)
    assert both[0].values.keys() == both[1].values.keys()
    for label, value in both[0].values.items():
        assert (value == both[1].values[label]).all()


@pytest.mark.parametrize("kind", STEPS)
def test_the_inputs_of_a_document_that_updates_its_variables(kind: str) -> None:
    """What the loop makes of it for runtimes that keep nothing."""
    made = parts(trained("variables", **STEPS[kind]))
    wanted = parts(trained("inputs", **STEPS[kind]))
    for one, other in zip(made, wanted, strict=True):
        found = in_inputs(one)
        assert (found.inputs, found.outputs) == (other.inputs, other.outputs)
        assert found.state == other.state
        assert without_comments(nnef_grad.dumps(found.graph)) == without_comments(
            nnef_grad.dumps(other.graph)
        )
        assert found.data.keys() == other.data.keys()
    assert in_inputs(wanted[0]) is wanted[0]


def test_updates_by_another_evaluator() -> None:
    """The oracle of the tests runs the document, and passes updated variables on."""
    step = trained("variables", optimizer="adam", learning_rate=0.1)
    text, ours = nnef_grad.dumps(step.graph), Evaluated(step)
    values = {k: torch.tensor(v, dtype=torch.float64) for k, v in step.data.items()}
    for feeds in batches(5):
        fed = {name: torch.tensor(value) for name, value in feeds.items()}
        found = reference.evaluate(text, fed, values)
        values = {step.labels[n]: found[new] for n, new in step.state.items()}
        assert float(ours(feeds)["loss"]) == pytest.approx(float(found["loss"]))
    for label, value in values.items():
        assert np.abs(ours.values[label] - value.numpy()).max() < 1e-12


# ---- The contract ----


def test_the_inputs_and_outputs_of_the_form_with_inputs() -> None:
    step = trained("inputs", optimizer="adam")
    fed = (*NAMES, *MOMENTS, *CORRECTIONS)
    assert step.inputs == ("x", "target_y", "learning_rate", *fed)
    assert step.outputs == ("loss", *(f"new_{name}" for name in fed))
    assert step.state == {name: f"new_{name}" for name in fed}
    assert not step.graph.variables
    assert step.data.keys() == {*fed}
    assert all((step.data[n] == DATA[step.labels[n]]).all() for n in NAMES)
    assert not any(step.data[name].any() for name in (*MOMENTS, *CORRECTIONS))


def test_the_inputs_and_outputs_of_the_form_with_variables() -> None:
    step = trained(optimizer="adam")
    kept = (*NAMES, *MOMENTS, *CORRECTIONS)
    assert step.inputs == ("x", "target_y", "learning_rate")
    assert step.outputs == ("loss",)
    assert step.state == {name: f"updated_{name}" for name in kept}
    names = step.graph.names
    updated = {
        names[op.inputs[0]]: names[op.outputs[0]]
        for op in step.graph.operations
        if op.name == "update"
    }
    assert updated == step.state
    assert {*step.graph.labels} == {*kept}
    assert step.labels["weight1_first_moment"] == "layer1/weight/first_moment"
    assert step.data.keys() == {*step.labels.values()}


def test_what_is_frozen_stays_a_variable() -> None:
    step = trained("inputs", optimizer="sgd", freeze=["layer1/*"])
    assert step.inputs == ("x", "target_y", "learning_rate", "weight2", "bias2")
    assert [*step.graph.labels] == ["weight1", "bias1"]
    assert step.data.keys() == {"layer1/weight", "layer1/bias", "weight2", "bias2"}
    assert step.labels == {"weight2": "layer2/weight", "bias2": "layer2/bias"}


def test_the_rates_come_after_the_targets() -> None:
    step = trained("inputs", optimizer="sgd", loss_scale=True)
    assert step.inputs[:4] == ("x", "target_y", "learning_rate", "loss_scale")
    assert (step.outputs[0], step.outputs[-1]) == ("loss", "is_finite")


def test_the_head_says_what_becomes_of_state() -> None:
    step = trained("inputs", optimizer="momentum")
    head = nnef_grad.dumps(step.graph).partition("graph ")[0]
    assert "A training step of 'mlp': mean_squared_error of y, by momentum." in head
    assert "target_y: input, the target of y" in head
    for old, new in step.state.items():
        assert f"{new}: the new value of {old}" in head


def test_the_model_has_names_that_a_step_would_give() -> None:
    text = MLP.replace("hidden", "loss").replace("weight1", "new_bias1")
    text = text.replace("weight2", "target_y").replace("bias2", "bias1_velocity")
    graph = nnef_grad.loads(text)
    step = nnef_grad.training_step(
        graph,
        loss="mean_squared_error",
        optimizer="momentum",
        state="inputs",
        data=DATA,
        learning_rate=0.1,
    )
    plain = trained("inputs", optimizer="momentum", learning_rate=0.1)
    assert len(step.inputs) == len({*step.inputs}) == len(plain.inputs)
    assert {"new_bias1", "target_y", "bias1_velocity"} < {*step.inputs}
    feeds = batches(1)[0]
    expected, ours = Evaluated(plain), Evaluated(step)
    loss = ours({"x": feeds["x"], step.inputs[1]: feeds["target_y"]})[step.outputs[0]]
    assert loss == expected(feeds)["loss"]
    for label in DATA:
        assert (ours.values[label] == expected.values[label]).all()


def test_a_variable_has_the_name_that_is_the_label_of_another() -> None:
    text = MLP
    for name, label in (("weight1", "layer1/weight"), ("weight2", "layer2/weight")):
        text = text.replace(
            f"'{label}'", f"'{'weight2' if '1' in name else 'weight1'}'"
        )
    graph = nnef_grad.loads(text)
    data = {
        {"layer1/weight": "weight2", "layer2/weight": "weight1"}.get(k, k): v
        for k, v in DATA.items()
    }
    options: Any = {"optimizer": "momentum", "learning_rate": 0.1}
    losses = []
    for model, values in ((GRAPH, DATA), (graph, data)):
        for state in ("variables", "inputs"):
            step = nnef_grad.training_step(
                model, loss="huber", data=values, state=state, **options
            )
            run = nnef_grad.training.run(step, batches(4), runtime="numpy")
            losses.append(list(run))
    assert losses[0] == losses[1] == losses[2] == losses[3]


# ---- Targets ----


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_target_has_the_form_with_inputs(target: str) -> None:
    step = trained_network(target=target)
    wanted = trained_network(state="inputs" if target != "nnef" else None)
    assert step.inputs == wanted.inputs
    assert step.outputs == wanted.outputs
    assert step.state == wanted.state
    # Khronos' parser has no operations of a registry.
    if target not in ("tract", "onnx", "onnx-portable"):
        nnef.parse_string(nnef_grad.dumps(step.graph))
    lowered = nnef_grad.lower(step.graph, target)
    assert nnef_grad.dumps(lowered.graph) == nnef_grad.dumps(step.graph)


def test_an_onnx_file_has_the_same_names(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    step = trained("inputs", optimizer="adam", freeze=["layer1/*"], loss_scale=True)
    path = tmp_path / "step.onnx"
    to_onnx(step.graph, path, data=step.data)
    graph = onnx.load(path).graph
    assert tuple(value.name for value in graph.input) == step.inputs
    assert tuple(value.name for value in graph.output) == step.outputs


# ---- Folders ----


@pytest.mark.parametrize("state", ["variables", "inputs"])
@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("name", ["step", "step.tgz"])
def test_a_step_is_saved_with_what_it_begins_with(
    kind: str, state: Any, name: str, tmp_path: Path
) -> None:
    step = trained(state, **STEPS[kind])
    save_step(step, tmp_path / name)
    for folder, part in zip(("", "apply"), parts(step), strict=False):
        if folder and name.endswith(".tgz"):
            continue
        place = tmp_path / name / folder if folder else tmp_path / name
        assert nnef_grad.load(place) == part.graph
        stored = nnef_grad.load_data(place)
        assert {*stored} >= {*part.data}
        for label, value in part.data.items():
            assert (np.asarray(stored[label]) == value).all()


def test_the_subfolder_has_the_step_that_uses_the_sums(tmp_path: Path) -> None:
    save_step(trained(optimizer="adam", accumulate=4), tmp_path / "step")
    files = {
        str(p.relative_to(tmp_path / "step"))
        for p in tmp_path.rglob("*.*")
        if p.is_file()
    }
    assert {"graph.nnef", "apply/graph.nnef"} < files
    assert {"layer1/weight/gradients.dat", "apply/layer1/weight/gradients.dat"} < files
    assert "apply/adam/correction1.dat" in files
    assert "adam/correction1.dat" not in files


def test_a_saved_step_goes_on_in_any_runtime_that_updates_variables(
    tmp_path: Path,
) -> None:
    step = trained(optimizer="adam", learning_rate=0.1)
    save_step(step, tmp_path / "step")
    loaded = nnef_grad.load(tmp_path / "step")
    data = nnef_grad.load_data(tmp_path / "step")
    feeds = batches(1)[0]
    found = nnef_grad.evaluate(loaded, feeds, data)
    assert found["loss"] == pytest.approx(
        float(Evaluated(step)(feeds)["loss"]), rel=1e-6
    )


def test_a_step_replaces_one_when_it_may(tmp_path: Path) -> None:
    place = tmp_path / "step"
    save_step(trained(optimizer="adam", accumulate=2), place)
    with pytest.raises(nnef_grad.UsageError):
        save_step(trained(optimizer="sgd"), place)
    save_step(trained(optimizer="sgd"), place, overwrite=True)
    assert not (place / "apply").exists()
    assert not (place / "adam").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step"]


def test_without_data_a_step_is_a_text_alone(tmp_path: Path) -> None:
    step = trained(optimizer="sgd", data=None)
    save_step(step, tmp_path / "step.nnef")
    with pytest.raises(nnef_grad.UsageError, match="no data for 'layer1/bias'"):
        save_step(step, tmp_path / "step")
    save_text = trained(optimizer="sgd", accumulate=2)
    with pytest.raises(nnef_grad.UsageError, match="one text"):
        save_step(save_text, tmp_path / "two.nnef")
    assert [p.name for p in tmp_path.iterdir()] == ["step.nnef"]


def test_rows_of_different_lengths_are_refused() -> None:
    rows = [[1.0], [1.0, 2.0]]
    with pytest.raises(nnef_grad.UsageError, match="of variable 'layer1/bias' are not"):
        trained(optimizer="sgd", data={**DATA, "layer1/bias": rows})


def test_two_data_for_one_file_are_refused(tmp_path: Path) -> None:
    text = MLP.replace("'layer2/", "'apply/layer1/")
    data = {k.replace("layer2/", "apply/layer1/"): v for k, v in DATA.items()}
    step = nnef_grad.training_step(
        nnef_grad.loads(text), loss="huber", optimizer="sgd", data=data, accumulate=2
    )
    with pytest.raises(nnef_grad.UsageError, match="would be two files"):
        save_step(step, tmp_path / "step")
    assert not list(tmp_path.iterdir())


# ---- Files that are shared ----


@pytest.mark.parametrize("state", ["variables", "inputs"])
def test_what_stays_as_it_is_shares_its_file(state: Any, tmp_path: Path) -> None:
    graph = nnef_grad.loads(MLP)
    data = {k: np.float32(v) for k, v in random_data(graph).items()}
    narrow = "layer1/bias"
    nnef_grad.save(
        graph, tmp_path / "model", data={**data, narrow: data[narrow].astype("f2")}
    )
    step = nnef_grad.training_step(
        graph,
        data=nnef_grad.load_data(tmp_path / "model"),
        loss="huber",
        optimizer="adam",
        train="layer2/weight",
        state=state,
    )
    save_step(step, tmp_path / "step")
    shared = {
        str(path.relative_to(tmp_path / "step"))
        for path in (tmp_path / "step").rglob("*.dat")
        if path.stat().st_nlink > 1
    }
    # What is trained is a copy.
    assert shared == {"layer1/weight.dat", "layer1/bias.dat", "layer2/bias.dat"}
    written = nnef_grad.load_data(tmp_path / "step")
    for label in ("layer1/weight", "layer1/bias", "layer2/bias"):
        assert written[label].dtype == ("f2" if label == narrow else "f4")
        np.testing.assert_allclose(written[label], data[label], rtol=1e-3)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?"])
def test_zeros_take_no_place(dtype: str, tmp_path: Path) -> None:
    """Anyone reads them as zeros; where the last element is none, all are written."""
    for last in (0, 1):
        array = np.zeros((2, 300_000), dtype)
        array[-1, -1] = last
        with (tmp_path / "x.dat").open("wb+") as file:
            write_array(file, array)
            file.seek(0)
            found = nnef.read_tensor(file)
        np.testing.assert_array_equal(found, array)
        blocks = (tmp_path / "x.dat").stat().st_blocks
        assert (blocks * 512 < 50_000) == (last == 0)
