"""The loop: batches, rates, checkpoints, what a person sees, and what is refused."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes import environment
from support.training_steps import (
    MLP,
    batches,
    batches_of_images,
    needs,
    network,
    network_data,
    random_data,
)

import nnef_grad
from nnef_grad.training import Step, Training, run

Array = Any
GRAPH = nnef_grad.loads(MLP)
DATA = {k: v.astype(np.float32) for k, v in random_data(GRAPH).items()}
RUNTIMES = ("onnxruntime", "openvino", "tract", "khronos", "numpy")


def trained(**options: Any) -> Step:
    return nnef_grad.training_step(
        GRAPH,
        **{
            "loss": "mean_squared_error",
            "optimizer": "adam",
            "data": DATA,
            "learning_rate": 0.05,
            **options,
        },
    )


def train(step: Step, count: int = 6, **options: Any) -> Training:
    return run(step, batches(count), **{"runtime": "numpy", **options})


# ---- Batches ----


def test_losses_are_floats_one_for_each_batch() -> None:
    training = train(trained(), 5)
    assert training.steps == 0
    losses = list(training)
    assert len(losses) == training.steps == 5
    assert all(type(loss) is float for loss in losses)
    assert losses[-1] != losses[0]
    with pytest.raises(StopIteration):
        next(training)


def test_a_batch_is_a_mapping_or_a_sequence() -> None:
    named = list(train(trained()))
    in_order = [(batch["x"], batch["target_y"]) for batch in batches(6)]
    swapped = [dict(reversed(batch.items())) for batch in batches(6)]
    lists = [[array.tolist() for array in batch] for batch in in_order]
    every: Any
    for every in (in_order, swapped, lists, iter(in_order), (b for b in in_order)):
        assert list(run(trained(), every, runtime="numpy")) == named


def test_arrays_of_any_layout_and_precision() -> None:
    found = list(train(trained()))
    turned = [
        {name: np.asfortranarray(array.astype(np.float32)) for name, array in b.items()}
        for b in batches(6)
    ]
    strided = [
        {name: np.repeat(array, 2, axis=0)[::2] for name, array in b.items()}
        for b in batches(6)
    ]
    for every in (turned, strided):
        assert list(run(trained(), every, runtime="numpy")) == found


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_label_of_any_integer_type(runtime: str) -> None:
    needs(runtime)
    step = nnef_grad.training_step(
        network(),
        loss="softmax_cross_entropy_with_labels",
        optimizer="sgd",
        learning_rate=0.1,
        data=network_data(),
    )
    every = [
        list(run(step, [(x, y.astype(t)) for x, y in found], runtime=runtime))
        for found in [batches_of_images(2)]
        for t in (np.int64, np.int32, np.uint8)
    ]
    assert every[0] == every[1] == every[2]


X = np.zeros((4, 5))
Y = np.zeros((4, 3))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"x": X}, "the batch has no 'target_y'"),
        ({"x": X, "target": Y}, "no input 'target'; did you mean 'target_y'"),
        ({"x": X, "target_y": Y, "weight1": X}, "no input 'weight1'"),
        ((X,), "a batch has 1 arrays, and the step takes x, target_y"),
        ((X, Y, Y), "a batch has 3 arrays"),
        ((Y, X), r"'x' has the shape \[4, 5\], and not \[4, 3\]"),
        ((X[:3], Y), r"'x' has the shape \[4, 5\], and not \[3, 5\]"),
        (
            (X.astype(np.complex64), Y),
            "'x' is a tensor<scalar>, and these are complex64",
        ),
        (
            (X, np.full((4, 3), "a")),
            "'target_y' is a tensor<scalar>, and these are <U1",
        ),
    ],
)
def test_a_batch_that_does_not_fit(batch: Any, message: str) -> None:
    step = trained()
    good = batches(1)[0]
    training = run(step, [good, batch], runtime="numpy")
    next(training)
    before = training.data
    with pytest.raises(nnef_grad.UsageError, match=message):
        next(training)
    assert all(training.data[k] is before[k] for k in before)
    assert training.steps == 1


def test_labels_are_integers() -> None:
    step = nnef_grad.training_step(
        network(),
        loss="softmax_cross_entropy_with_labels",
        optimizer="sgd",
        learning_rate=0.1,
        data=network_data(),
    )
    image, labels = batches_of_images(1)[0]
    with pytest.raises(
        nnef_grad.UsageError, match="tensor<integer>, and these are float"
    ):
        next(run(step, [(image, labels + 0.5)], runtime="numpy"))


# ---- Rates ----


def test_a_schedule_gets_the_number_of_steps() -> None:
    asked = []

    def falling(steps: int) -> float:
        asked.append(steps)
        return 0.1 / (1 + steps)

    step = trained(learning_rate=None, optimizer="sgd")
    training = train(step, 4, learning_rate=falling)
    list(training)
    assert asked == [0, 1, 2, 3]
    values = dict(DATA)
    for number, batch in enumerate(batches(4)):
        one = trained(learning_rate=falling(number), optimizer="sgd", data=values)
        single = run(one, [batch], runtime="numpy")
        list(single)
        values = {label: single.data[label] for label in DATA}
    for label, value in values.items():
        assert np.abs(training.data[label] - value).max() < 1e-6


def test_the_learning_rate_of_accumulated_gradients() -> None:
    """It is asked for when gradients are used, for the step that uses them."""
    asked: list[int] = []

    def steady(steps: int) -> float:
        asked.append(steps)
        return 0.1

    step = trained(learning_rate=None, accumulate=3)
    training = train(step, 7, learning_rate=steady)
    changed = []
    for _ in range(7):
        before = training.data["layer1/weight"]
        next(training)
        changed.append(bool((training.data["layer1/weight"] != before).any()))
    assert asked == [2, 5]
    assert changed == [False, False, True, False, False, True, False]


def test_a_rate_that_is_missing_or_not_taken_is_refused() -> None:
    with pytest.raises(nnef_grad.UsageError, match="has the input 'learning_rate'"):
        train(trained(learning_rate=None))
    with pytest.raises(nnef_grad.UsageError, match="learning rate is a number of the"):
        train(trained(), learning_rate=0.1)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_scale_of_the_loss_and_a_batch_that_is_left_out(runtime: str) -> None:
    needs(runtime)
    step = trained(loss_scale=True)
    good = batches(3)
    bad = {**good[0], "target_y": np.full((4, 3), np.inf)}
    training = run(step, [good[0], bad, *good[1:]], runtime=runtime, loss_scale=256.0)
    found, finite = [], []
    with np.errstate(all="ignore"):
        for loss in training:
            found.append(loss)
            finite.append(training.is_finite)
    assert finite == [True, False, True, True]
    without = list(run(step, good, runtime=runtime, loss_scale=256.0))
    assert [found[0], *found[2:]] == without


def test_a_model_may_have_the_names_of_what_a_step_reports() -> None:
    text = MLP.replace("hidden", "is_finite")
    step = nnef_grad.training_step(
        nnef_grad.loads(text), loss="huber", optimizer="sgd", data=DATA, loss_scale=True
    )
    bad = [batches(1)[0]["x"], np.full((4, 3), np.nan)]
    training = run(step, [bad], runtime="numpy", learning_rate=0.1)
    with np.errstate(all="ignore"):
        assert np.isnan(next(training))
    assert not training.is_finite


# ---- Checkpoints ----


def kinds() -> dict[str, Step]:
    """Steps with much state."""
    return {
        "adam": trained(optimizer="adam(amsgrad = true)", learning_rate=None),
        "sums": trained(accumulate=3, loss_scale=True, learning_rate=None),
        "statistics": nnef_grad.training_step(
            network(),
            loss="softmax_cross_entropy_with_labels",
            optimizer="momentum(dampening = 0.1)",
            data=network_data(),
            batch_statistics=0.1,
        ),
    }


@pytest.mark.parametrize("kind", ["adam", "sums", "statistics"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_resumed_goes_on_to_the_same_bits(
    runtime: str, kind: str, tmp_path: Path
) -> None:
    needs(runtime)
    step = kinds()[kind]
    every: Any = batches_of_images(8) if kind == "statistics" else batches(8)
    options: Any = {"runtime": runtime, "learning_rate": lambda n: 0.1 / (1 + n)}
    whole = run(step, every, **options)
    losses = list(whole)
    place = tmp_path / "checkpoint"
    # The gradients of the fifth batch are added to those of the fourth.
    first = list(run(step, every[:5], checkpoint=place, **options))
    second = run(step, every[5:], resume=place, **options)
    assert second.steps == 5
    assert [*first, *second] == losses
    assert second.data.keys() == whole.data.keys()
    for label, value in whole.data.items():
        assert second.data[label].tobytes() == value.tobytes(), label


def test_double_precision_is_kept(tmp_path: Path) -> None:
    data = random_data(GRAPH)
    step, place = trained(data=data), tmp_path / "checkpoint"
    whole = list(train(step, dtype=np.float64))
    first = list(train(step, 3, dtype=np.float64, checkpoint=place))
    rest = run(step, batches(6)[3:], runtime="numpy", dtype=np.float64, resume=place)
    assert [*first, *rest] == whole
    single = list(train(step))
    assert single == pytest.approx(whole, rel=1e-5)
    assert single != whole


def test_a_checkpoint_is_a_model_with_its_state_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    training = train(trained(), 4, checkpoint=place)
    list(training)
    graph, data = nnef_grad.load(place), nnef_grad.load_data(place)
    assert nnef_grad.dumps(graph) == nnef_grad.dumps(GRAPH)
    assert {*data} == {*training.data, "training/steps"}
    assert float(data["training/steps"]) == 4.0
    feeds = {"x": batches(1)[0]["x"]}
    assert nnef_grad.evaluate(graph, feeds, data)["y"].shape == (4, 3)


def test_checkpoints_are_written_from_time_to_time(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint.tgz"
    training = train(trained(), 7, checkpoint=place, every=3)
    seen = []
    for _ in training:
        stored = nnef_grad.load_data(place) if place.exists() else {}
        seen.append(int(stored.get("training/steps", 0)))
    assert seen == [0, 0, 3, 3, 3, 6, 6]
    assert int(nnef_grad.load_data(place)["training/steps"]) == 7
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.tgz"]


def interrupted(count: int) -> Iterator[Any]:
    yield from batches(count)
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint.tar"])
def test_ctrl_c_leaves_the_last_checkpoint(name: str, tmp_path: Path) -> None:
    place, step = tmp_path / name, trained()
    training = run(step, interrupted(5), runtime="numpy", checkpoint=place, every=2)
    found: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(training)
    assert len(found) == 5
    resumed = run(step, batches(6)[4:], runtime="numpy", resume=place)
    assert resumed.steps == 4
    assert [*found[:4], *resumed] == list(train(step))
    assert [p.name for p in tmp_path.iterdir()] == [name]


ENDLESS = """
import sys
import numpy as np
import nnef_grad
from support.training_steps import MLP, batches, random_data

def endless():
    while True:
        yield from batches(5)

graph = nnef_grad.loads(MLP)
step = nnef_grad.training_step(
    graph, loss="huber", optimizer="adam", learning_rate=0.01, data=random_data(graph)
)
for loss in nnef_grad.training.run(
    step, endless(), runtime="numpy", checkpoint="checkpoint", every=1
):
    print(loss, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_ends_leaves_a_whole_checkpoint(
    number: signal.Signals, tmp_path: Path
) -> None:
    """It is killed while it writes one checkpoint after the other."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([environment()["PYTHONPATH"], tests])
    program = subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env=environment(PYTHONPATH=path),
    )
    assert program.stdout is not None
    for _ in range(20):
        assert program.stdout.readline()
    program.send_signal(number)
    program.wait()
    program.stdout.close()
    stored = nnef_grad.load_data(tmp_path / "checkpoint")
    assert int(stored["training/steps"]) >= 19
    step = trained(optimizer="adam", learning_rate=0.01)
    assert len(list(train(step, 2, resume=tmp_path / "checkpoint"))) == 2


RESUMED = """
import sys
from pathlib import Path

import nnef_grad
from support.training_steps import MLP, batches, random_data

graph = nnef_grad.loads(MLP)
step = nnef_grad.training_step(
    graph, loss="huber", optimizer="adam", learning_rate=0.01, data=random_data(graph)
)
every = batches(40)
place = Path("checkpoint")
done = int(nnef_grad.load_data(place)["training/steps"]) if place.exists() else 0
for loss in nnef_grad.training.run(
    step, every[done:], runtime="numpy", dtype="float64", checkpoint=place, every=1,
    resume=place if done else None,
):
    done += 1
    print(done, repr(loss), flush=True)
"""


@pytest.mark.thorough
def test_a_run_that_is_killed_ten_times_is_that_of_one_that_is_not(
    tmp_path: Path,
) -> None:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([environment()["PYTHONPATH"], tests])
    random, losses = np.random.default_rng(0), dict[int, float]()
    for moment in (*random.uniform(0.0, 0.05, 10), None):
        program = subprocess.Popen(
            [sys.executable, "-c", RESUMED],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment(PYTHONPATH=path),
        )
        assert program.stdout is not None
        if moment is not None:
            losses |= _losses([program.stdout.readline()])
            time.sleep(moment)
            program.kill()
        losses |= _losses(program.stdout.readlines())
        program.wait()
        program.stdout.close()
    (tmp_path / "whole").mkdir()
    whole = subprocess.run(
        [sys.executable, "-c", RESUMED],
        capture_output=True,
        text=True,
        cwd=tmp_path / "whole",
        env=environment(PYTHONPATH=path),
        check=True,
    )
    # A checkpoint is written before its loss is printed: that of a kill may be missing.
    assert losses.items() <= _losses(whole.stdout.splitlines(keepends=True)).items()
    places = (tmp_path / "checkpoint", tmp_path / "whole" / "checkpoint")
    found, wanted = map(nnef_grad.load_data, places)
    assert {*found} == {*wanted}
    assert all((found[label] == wanted[label]).all() for label in wanted)


def _losses(lines: list[str]) -> dict[int, float]:
    """What was printed: all lines but one that was cut off."""
    pairs = [line.split() for line in lines if line.endswith("\n")]
    return {int(number): float(loss) for number, loss in pairs}


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    list(train(trained(optimizer="sgd"), 2, checkpoint=place))
    with pytest.raises(
        nnef_grad.UsageError, match=r"no data in .* for 'layer1/weight/first"
    ):
        train(trained(), resume=place)
    nnef_grad.save(GRAPH, tmp_path / "model", data=DATA)
    with pytest.raises(nnef_grad.UsageError, match="for 'training/steps'"):
        train(trained(optimizer="sgd"), resume=tmp_path / "model")
    with pytest.raises(nnef_grad.NnefGradError):
        train(trained(), resume=tmp_path / "none")


# ---- The trained model ----


def test_the_trained_model_is_an_ordinary_one(tmp_path: Path) -> None:
    training = train(trained(), 4)
    list(training)
    place = tmp_path / "trained"
    training.save(place)
    data = nnef_grad.load_data(place)
    assert {*data} == {*DATA}
    for label in DATA:
        assert (np.asarray(data[label]) == training.data[label]).all()
        assert (np.asarray(data[label]) != DATA[label]).any()
    assert nnef_grad.dumps(nnef_grad.load(place)) == nnef_grad.dumps(GRAPH)
    with pytest.raises(nnef_grad.UsageError):
        training.save(place)
    training.save(place, overwrite=True)


def test_what_is_frozen_is_saved_too(tmp_path: Path) -> None:
    training = train(trained(freeze=["layer1/*"]), 3)
    list(training)
    training.save(tmp_path / "trained")
    data = nnef_grad.load_data(tmp_path / "trained")
    assert (np.asarray(data["layer1/weight"]) == DATA["layer1/weight"]).all()


def test_data_that_the_caller_holds_do_not_change() -> None:
    before = {label: value.copy() for label, value in DATA.items()}
    step = trained()
    training = train(step)
    held = training.data
    copies = {label: value.copy() for label, value in held.items()}
    list(training)
    assert all((DATA[label] == before[label]).all() for label in DATA)
    assert all((held[label] == copies[label]).all() for label in held)
    # A second training begins where the first one did.
    assert list(train(step)) == list(train(trained()))


@pytest.mark.parametrize("target", ["onnx", "tract", "khronos", "portable"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_step_for_a_target_runs_in_other_runtimes_too(
    runtime: str, target: str
) -> None:
    needs(runtime)
    options: Any = {
        "loss": "softmax_cross_entropy_with_labels",
        "optimizer": "momentum",
        "learning_rate": 0.02,
        "data": network_data(),
        "batch_statistics": 0.1,
    }
    steps = [
        nnef_grad.training_step(network(), target=t, **options)
        for t in (target, "nnef")
    ]
    found, wanted = (
        list(run(step, batches_of_images(3), runtime=runtime)) for step in steps
    )
    assert found == pytest.approx(wanted, rel=1e-5)


# ---- What is refused ----


def test_an_unknown_runtime_or_precision_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(nnef_grad.UsageError, match="did you mean 'onnxruntime'"):
        train(trained(), runtime="onnxruntimes")
    for runtime in ("onnxruntime", "tract"):
        needs(runtime)
        with pytest.raises(nnef_grad.UsageError, match="not in float64"):
            train(trained(), runtime=runtime, dtype=np.float64)
    with pytest.raises(nnef_grad.UsageError, match="every 1 step or more"):
        train(trained(), every=0)
    monkeypatch.setattr("nnef_grad.runtimes.find_spec", lambda name: None)
    with pytest.raises(nnef_grad.UsageError, match="pip install tract"):
        train(trained(), runtime="tract")


@pytest.mark.parametrize("name", ["best.nnef", "best.zip", "notes/"])
def test_a_place_for_no_checkpoint_is_refused_at_once(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "text").write_text("not a model")
    with pytest.raises(nnef_grad.UsageError, match=name.rstrip("/")):
        train(trained(), checkpoint=f"{tmp_path}/{name}")


def test_a_variable_with_the_label_of_the_number_of_steps_is_refused() -> None:
    label = "training/steps"
    graph = nnef_grad.loads(MLP.replace("layer1/bias", label))
    data = {label if k == "layer1/bias" else k: v for k, v in DATA.items()}
    step = nnef_grad.training_step(graph, loss="huber", optimizer="sgd", data=data)
    with pytest.raises(nnef_grad.UsageError, match=f"the label '{label}'"):
        train(step, learning_rate=0.1)


def test_a_step_without_data_is_refused() -> None:
    with pytest.raises(nnef_grad.UsageError, match="no data for 'layer1/weight'"):
        train(trained(data=None))
    with pytest.raises(nnef_grad.UsageError, match="no data for 'layer1/bias'"):
        train(trained(data={k: v for k, v in DATA.items() if k != "layer1/bias"}))


# ---- What a person sees ----


def test_a_bar_is_shown_when_it_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    list(train(trained(), progress=False))
    list(train(trained()))
    assert capsys.readouterr() == ("", "")
    list(train(trained(), progress=True))
    captured = capsys.readouterr()
    assert "training" in captured.err
    assert captured.out == ""


WATCHED = """
import time
import nnef_grad
from support.training_steps import MLP, batches, random_data

graph = nnef_grad.loads(MLP)
step = nnef_grad.training_step(
    graph, loss="huber", optimizer="adam", learning_rate=0.01, data=random_data(graph)
)
for loss in nnef_grad.training.run(step, batches(5), runtime="numpy"):
    time.sleep(0.1)
"""


def test_a_bar_is_shown_where_a_person_looks_on(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([environment()["PYTHONPATH"], tests])
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", WATCHED],
        stderr=theirs,
        cwd=tmp_path,
        env=environment(PYTHONPATH=path, TERM="xterm"),
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 1024):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert program.wait() == 0
    assert b"training" in shown
    assert b"100%" in shown
    assert b"loss 0." in shown
