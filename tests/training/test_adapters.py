"""Adapters: against the same ones written by hand in torch, and merged into the model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch.nn import functional

import nnef_grad
from nnef_grad.commandline.merge_cli import main as merge_main
from nnef_grad.commandline.step_cli import main as step_main

NET = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [4, 2, 5, 5]);
    filter = variable(shape = [6, 2, 3, 3], label = 'conv/filter');
    bias = variable(shape = [1, 6], label = 'conv/bias');
    w = variable(shape = [7, 54], label = 'dense/w');
    b = variable(shape = [1, 7], label = 'dense/b');
    v = variable(shape = [7, 8], label = 'right/v');
    u = variable(shape = [5, 8], label = 'left/u');
    a = conv(x, filter, bias, padding = [(0, 0), (0, 0)]);
    r = tanh(a);
    f = reshape(r, shape = [4, 54]);
    h = linear(f, w, b);
    k = matmul(h, v);
    y = matmul(u, k, transposeB = true);
}
"""
RANKS = {"conv/filter": 2, "dense/w": 3, "right/v": 2, "left/u": 4}
ALPHA = 6.0
F64 = torch.float64


def data(seed: int = 0) -> dict[str, Any]:
    random, graph = np.random.default_rng(seed), nnef_grad.loads(NET)
    return {
        label: 0.3 * random.standard_normal(tensor.shape)
        for tensor, label in zip(graph.variables, graph.labels.values(), strict=True)
    }


def made(**settings: Any) -> nnef_grad.Step:
    return nnef_grad.training_step(
        nnef_grad.loads(NET),
        loss="mean_squared_error",
        optimizer="adam",
        learning_rate=0.01,
        data=data(),
        adapters={n: {"rank": r, "alpha": ALPHA} for n, r in RANKS.items()},
        **settings,
    )


def batches(count: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(1)
    return [
        {
            "x": random.standard_normal((4, 2, 5, 5)),
            "target_y": random.standard_normal((5, 4)),
        }
        for _ in range(count)
    ]


def by_hand(values: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The network with adapters, as one writes them in torch."""

    def factors(label: str) -> tuple[torch.Tensor, torch.Tensor, float]:
        a, b = values[f"{label}.lora_A"], values[f"{label}.lora_B"]
        return a, b, ALPHA / RANKS[label]

    a, b, scale = factors("conv/filter")
    conv = functional.conv2d(x, values["conv/filter"], values["conv/bias"][0])
    conv = conv + scale * functional.conv2d(functional.conv2d(x, a), b)
    f = torch.tanh(conv).reshape(4, 54)
    a, b, scale = factors("dense/w")
    h = functional.linear(f, values["dense/w"], values["dense/b"][0])
    h = h + scale * functional.linear(functional.linear(f, a), b)
    a, b, scale = factors("right/v")
    k = h @ values["right/v"] + scale * h @ a @ b
    a, b, scale = factors("left/u")
    return values["left/u"] @ k.T + scale * b @ (a @ k.T)


def test_twenty_steps_are_those_of_torch() -> None:
    step = made()
    values = {n: torch.tensor(v, dtype=F64) for n, v in step.data.items()}
    trained = [values[n].requires_grad_() for n in step.trained]
    assert all(".lora_" in label for label in step.trained)
    assert len(trained) == 8
    optimizer = torch.optim.Adam(trained, lr=0.01)
    training = nnef_grad.training.run(
        step, batches(20), runtime="numpy", dtype="float64"
    )
    for batch, loss in zip(batches(20), training, strict=False):
        optimizer.zero_grad()
        y = by_hand(values, torch.tensor(batch["x"]))
        wanted = functional.mse_loss(y, torch.tensor(batch["target_y"]))
        wanted.backward()
        optimizer.step()
        assert loss == pytest.approx(wanted.item(), rel=1e-12)
    for label in step.trained:
        np.testing.assert_allclose(
            training.data[label], values[label].detach(), rtol=1e-11, atol=1e-13
        )


def test_at_first_the_model_is_as_it_was() -> None:
    (batch,) = batches(1)
    (loss,) = nnef_grad.training.run(made(), [batch], runtime="numpy", dtype="float64")
    y = nnef_grad.evaluate(nnef_grad.loads(NET), {"x": batch["x"]}, data())["y"]
    assert loss == pytest.approx(float(np.mean((y - batch["target_y"]) ** 2)))


def test_others_are_trained_only_if_they_are_named() -> None:
    assert {*made(train="dense/b").trained} - {*made().trained} == {"dense/b"}


def test_merged_it_computes_what_it_did_with_adapters(tmp_path: Path) -> None:
    """In folders, by the command, and by `save`."""
    nnef_grad.save(nnef_grad.loads(NET), tmp_path / "net", data=data())
    (tmp_path / "net" / "notes.txt").write_text("keep me")
    checkpoint = tmp_path / "checkpoint"
    training = nnef_grad.training.run(
        made(), batches(5), runtime="numpy", checkpoint=checkpoint
    )
    losses = list(training)
    # Of one more batch: with adapters, and merged.
    (batch,) = batches(1)
    resumed = nnef_grad.training.run(
        made(), [batch], runtime="numpy", dtype="float64", resume=checkpoint
    )
    with_adapters = next(iter(resumed))
    words = [str(tmp_path / "net"), str(checkpoint), "-o", str(tmp_path / "tuned")]
    result = CliRunner().invoke(merge_main, words)
    assert result.exit_code == 0, result.output
    assert "4 variables changed" in result.stderr
    training.save(tmp_path / "saved")
    tuned = tmp_path / "tuned"
    assert (tuned / "notes.txt").read_text() == "keep me"
    assert (tuned / "graph.nnef").read_text() == (
        tmp_path / "net" / "graph.nnef"
    ).read_text()
    for folder in (tuned, tmp_path / "saved"):
        merged = nnef_grad.load_data(folder)
        assert not any(".lora" in label for label in merged)
        given = {"x": batch["x"]}
        y = nnef_grad.evaluate(nnef_grad.load(folder), given, merged)["y"]
        loss = float(np.mean((y - batch["target_y"]) ** 2))
        assert loss == pytest.approx(with_adapters, rel=1e-5)
    assert with_adapters < losses[0]


def test_files_that_stay_are_shared_by_checkpoints(tmp_path: Path) -> None:
    nnef_grad.save(nnef_grad.loads(NET), tmp_path / "net", data=data())
    step = nnef_grad.training_step(
        nnef_grad.load(tmp_path / "net"),
        loss="mean_squared_error",
        optimizer="sgd",
        learning_rate=0.1,
        data=nnef_grad.load_data(tmp_path / "net"),
        adapters={"dense/w": 2},
    )
    checkpoint = tmp_path / "checkpoint"
    list(
        nnef_grad.training.run(step, batches(2), runtime="numpy", checkpoint=checkpoint)
    )
    for label in ("dense/w", "conv/filter"):
        assert (checkpoint / f"{label}.dat").samefile(tmp_path / "net" / f"{label}.dat")
    found = nnef_grad.load_data(checkpoint)
    assert (found["dense/w.lora_B"] != 0.0).any()


@pytest.mark.parametrize("target", ["tract", "onnx", "portable"])
def test_for_a_target_by_the_command_line(tmp_path: Path, target: str) -> None:
    """Values come back under the names of inputs."""
    single = {n: x.astype(np.float32) for n, x in data().items()}
    nnef_grad.save(nnef_grad.loads(NET), tmp_path / "net", data=single)
    words = [
        "--loss",
        "huber",
        "--adapters",
        "*/[wv]:rank=2,alpha=4",
        "--target",
        target,
    ]
    out = str(tmp_path / "step")
    result = CliRunner().invoke(step_main, [*words, "-o", out, str(tmp_path / "net")])
    assert result.exit_code == 0, result.output
    assert "trained: 'dense/w.lora_A'" in result.stderr
    (tmp_path / "trained").mkdir()
    up = np.ones((7, 2), np.float32)
    nnef_grad.save(
        nnef_grad.loads(NET),
        tmp_path / "new",
        data={**single, "w_lora_B": up},
        everything=True,
    )
    (tmp_path / "new" / "w_lora_B.dat").rename(tmp_path / "trained" / "w_lora_B.dat")
    words = [str(tmp_path / name) for name in ("net", "step", "trained")]
    result = CliRunner().invoke(merge_main, [*words, "-o", str(tmp_path / "tuned")])
    assert result.exit_code == 0, result.output
    down = nnef_grad.load_data(tmp_path / "step")["w_lora_A"]
    merged = nnef_grad.load_data(tmp_path / "tuned")
    np.testing.assert_allclose(
        merged["dense/w"], single["dense/w"] + 2.0 * up @ down, rtol=1e-5, atol=1e-7
    )
    assert (merged["right/v"] == single["right/v"]).all()


@pytest.mark.parametrize(
    ("adapters", "message"),
    [
        ({"nothing": 2}, "no variable has the label or name 'nothing'"),
        ({"dense/w": 0}, "needs a rank of 1 or more"),
        ({"dense/w": {"rank": 2, "beta": 1}}, "no 'beta'"),
        ({"dense/w": {"rank": float("nan")}}, "needs a rank of 1 or more"),
        ({"dense/w": {"rank": float("inf")}}, "needs a rank of 1 or more"),
        ({"dense/w": {"rank": 1.5}}, "needs a rank of 1 or more"),
        ({"dense/w": {"rank": 2, "alpha": float("nan")}}, "alpha of the adapter"),
        ({"dense/w": {"rank": 2, "alpha": float("inf")}}, "alpha of the adapter"),
        ({"dense/w": {"rank": 2, "alpha": 10**400}}, "alpha of the adapter"),
        ({"dense/w": 7}, "the rank 7 of an adapter is not below that of 'dense/w'"),
        ({"dense/b": 1}, "'linear' reads 'dense/b': adapters are for the matrices"),
    ],
)
def test_what_has_no_adapter(adapters: Any, message: str) -> None:
    with pytest.raises(nnef_grad.UsageError, match=message):
        nnef_grad.training_step(
            nnef_grad.loads(NET), loss="huber", optimizer="sgd", adapters=adapters
        )


def test_nothing_is_merged_that_belongs_to_another_model(tmp_path: Path) -> None:
    nnef_grad.save(nnef_grad.loads(NET), tmp_path / "net", data=data())
    (tmp_path / "other").mkdir()
    with pytest.raises(nnef_grad.UsageError, match="belong to a variable"):
        nnef_grad.training.merge(
            tmp_path / "net", [tmp_path / "other"], tmp_path / "tuned"
        )
    assert not (tmp_path / "tuned").exists()


def test_nothing_is_merged_into_a_model_without_data(tmp_path: Path) -> None:
    nnef_grad.save(nnef_grad.loads(NET), tmp_path / "net.nnef")
    nnef_grad.save(nnef_grad.loads(NET), tmp_path / "new", data=data())
    with pytest.raises(nnef_grad.UsageError, match=r"net\.nnef' has no data"):
        nnef_grad.training.merge(
            tmp_path / "net.nnef", tmp_path / "new", tmp_path / "tuned"
        )


def test_trained_values_in_one_place_need_no_list(tmp_path: Path) -> None:
    nnef_grad.save(nnef_grad.loads(NET), tmp_path / "net", data=data())
    nnef_grad.save(nnef_grad.loads(NET), tmp_path / "new", data=data(seed=3))
    place = str(tmp_path / "new")
    changed = nnef_grad.training.merge(tmp_path / "net", place, tmp_path / "tuned")
    assert "dense/w" in changed


def test_half_precision_stays(tmp_path: Path) -> None:
    halves = {n: x.astype(np.float16) for n, x in data().items()}
    nnef_grad.save(nnef_grad.loads(NET), tmp_path / "net", data=halves)
    new = {**data(), "dense/w": data(seed=3)["dense/w"].astype(np.float32)}
    nnef_grad.save(nnef_grad.loads(NET), tmp_path / "new", data=new)
    nnef_grad.training.merge(tmp_path / "net", [tmp_path / "new"], tmp_path / "tuned")
    merged = nnef_grad.load_data(tmp_path / "tuned")
    assert {merged[label].dtype for label in merged} == {np.dtype(np.float16)}
    np.testing.assert_array_equal(merged["dense/w"], new["dense/w"].astype(np.float16))


@pytest.mark.parametrize("is_transposed", [False, True])
def test_products_with_batch_axes(tmp_path: Path, is_transposed: bool) -> None:
    """The rank is below that of a single matrix, and each has factors of its own."""
    shape = [3, 2, 4] if is_transposed else [3, 4, 2]
    text = f"""version 1.0;
graph net( x ) -> ( y )
{{
    x = external(shape = [3, 5, 4]);
    w = variable(shape = {shape}, label = 'w');
    y = matmul(x, w, transposeB = {str(is_transposed).lower()});
}}
"""
    graph, random = nnef_grad.loads(text), np.random.default_rng(0)
    w = random.standard_normal(shape).astype(np.float32)
    given: Any = {"loss": "huber", "optimizer": "sgd", "learning_rate": 0.5}
    with pytest.raises(nnef_grad.UsageError, match="not below that of 'w'"):
        nnef_grad.training_step(graph, data={"w": w}, adapters={"w": 2}, **given)
    rank = np.int64(1)
    step = nnef_grad.training_step(graph, data={"w": w}, adapters={"w": rank}, **given)  # type: ignore[dict-item]
    x = random.standard_normal((3, 5, 4))
    batch = {"x": x, "target_y": np.zeros((3, 5, 2))}
    training = nnef_grad.training.run(
        step, [batch] * 3, runtime="numpy", dtype="float64"
    )
    list(training)
    training.save(tmp_path / "saved")
    merged = nnef_grad.load_data(tmp_path / "saved")["w"]
    assert merged.shape == w.shape
    a, b = training.data["w.lora_A"], training.data["w.lora_B"]
    wanted = w + (b @ a if is_transposed else a @ b)
    np.testing.assert_allclose(merged, wanted, rtol=1e-6)
    assert np.linalg.norm(merged - w) > 0


def test_a_command_with_a_rank_that_is_no_number(tmp_path: Path) -> None:
    nnef_grad.save(nnef_grad.loads(NET), tmp_path / "net", data=data())
    for rank in ("nan", "inf", "many"):
        words = ["--loss", "huber", "--adapters", f"dense/w:rank={rank}"]
        result = CliRunner().invoke(step_main, [*words, str(tmp_path / "net")])
        assert result.exit_code == 2, result.output


@pytest.mark.parametrize("shape", [[], [1], [1, 6]])
def test_a_number_beside_a_sum_has_no_adapter(shape: list[int]) -> None:
    graph = nnef_grad.loads(f"""version 1.0;
graph net( x ) -> ( y )
{{
    x = external(shape = [4, 6]);
    b = variable(shape = {shape}, label = 'b');
    y = add(x, b);
}}
""")
    with pytest.raises(nnef_grad.UsageError, match="'add' reads 'b': adapters are for"):
        nnef_grad.training_step(
            graph,
            loss="mean_squared_error",
            optimizer="sgd",
            data={"b": np.zeros(shape)},
            adapters={"b": 1},
        )


def test_a_later_pattern_of_padding_rows_goes_first() -> None:
    graph = nnef_grad.loads("""version 1.0;
graph net( i ) -> ( y )
{
    i = external<integer>(shape = [2]);
    e1 = variable(shape = [5, 4], label = 'e1');
    e2 = variable(shape = [3, 4], label = 'e2');
    a = gather(e1, i, axis = 0);
    b = gather(e2, i, axis = 0);
    y = add(a, b);
}
""")
    step = nnef_grad.training_step(
        graph,
        loss="mean_squared_error",
        optimizer="sgd",
        padding_rows={"e*": 4, "e2": 1},
    )
    assert step.trained == ("e1", "e2")


def test_tables_of_a_graph_are_made_as_often_for_a_longer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: Counter[str] = Counter()

    def counted(name: str) -> property:
        original: Any = vars(nnef_grad.Graph)[name]

        def table(graph: nnef_grad.Graph) -> Any:
            made[name] += 1
            return original.fget(graph)

        return property(table)

    for name in ("tensors", "labels"):
        monkeypatch.setattr(nnef_grad.Graph, name, counted(name))
    counts = []
    for length in (2, 12):
        made.clear()
        nnef_grad.training_step(
            nnef_grad.loads(layers(length)),
            loss="huber",
            optimizer="adam",
            adapters={"*": 2},
            target="onnx",
        )
        counts.append(dict(made))
    assert counts[0] == counts[1]


def layers(count: int) -> str:
    """A network of so many layers."""
    variables = "".join(
        f"w{i} = variable<scalar>(shape = [4, 4], label = 'layer{i}/w');"
        for i in range(count)
    )
    products = "".join(f"h{i + 1} = matmul(h{i}, w{i});" for i in range(count))
    return (
        f"version 1.0; graph net( h0 ) -> ( h{count} ) {{"
        f"h0 = external<scalar>(shape = [2, 4]); {variables} {products} }}"
    )
