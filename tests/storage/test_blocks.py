"""Numbers in blocks of four bits, as torch-to-nnef writes them for tract (Q4_0)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import nnef_grad
from nnef_grad.commandline.cli import main

GRAPH = """version 1.0;

extension tract_registry tract_core;

graph net( x ) -> ( y )
{
    x = tract_core_external(shape = [4, 64], datum_type = 'f32');
    w = variable(label = 'w', shape = [96, 64]);
    b = variable<scalar>(label = 'b', shape = [96]);
    c = unsqueeze(b, axes = [0]);
    h = linear(x, w, c);
    y = relu(h);
}
"""


OLDER = 0x54522040


def in_blocks(
    numbers: Any, code: int = 0x54523040, shape: tuple[int, ...] = ()
) -> tuple[bytes, Any]:
    """The file of numbers, and what it stands for: item k and k + 16 share a byte, or
    neighbours, as in older versions of tract.
    """
    blocks = numbers.reshape(-1, 32)
    scales = (np.abs(blocks).max(1, keepdims=True) / 7).astype(np.float16)
    codes = np.clip(np.round(blocks / scales), -8, 7).astype(int)
    low, high = slice(0, 16), slice(16, 32)
    if code == OLDER:
        low, high = slice(0, 32, 2), slice(1, 32, 2)
    bytes_ = ((codes[:, high] + 8) << 4 | (codes[:, low] + 8)).astype(np.uint8)
    content = np.concatenate([scales.view(np.uint8), bytes_], 1).tobytes()
    shape = shape or numbers.shape
    extents = [*shape, *[0] * (8 - len(shape))]
    fields = [len(content), len(shape), *extents, 2**32 - 1, code]
    header = struct.pack("<4s12I", b"\x4e\xef\x01\x00", *fields).ljust(128, b"\0")
    stands_for = (scales.astype(np.float32) * codes).reshape(numbers.shape)
    return header + content, stands_for.astype(np.float32)


@pytest.fixture(params=[0x54523040, OLDER], ids=["", "older"])
def model(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, Any, Any]:
    random = np.random.default_rng(0)
    folder = tmp_path / "model"
    b = random.standard_normal(96).astype(np.float32)
    plain = nnef_grad.loads(GRAPH)
    w = random.standard_normal((96, 64)).astype(np.float32)
    nnef_grad.save(plain, folder, data={"w": w, "b": b})
    (folder / "graph.nnef").write_text(GRAPH)
    content, numbers = in_blocks(w, request.param)
    (folder / "w.dat").write_bytes(content)
    return folder, numbers, b


def test_its_numbers(model: tuple[Path, Any, Any]) -> None:
    folder, numbers, _ = model
    np.testing.assert_array_equal(nnef_grad.load_data(folder)["w"], numbers)


def test_they_are_what_tract_takes_them_for(model: tuple[Path, Any, Any]) -> None:
    tract = pytest.importorskip("tract")
    folder, numbers, b = model
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    (y,) = tract.nnef().load(str(folder)).into_runnable().run([x])
    expected = np.maximum(x @ numbers.T + b, 0)
    np.testing.assert_allclose(y.to_numpy(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("target", ["nnef", "tract", "onnx"])
def test_gradients_are_those_of_these_numbers(
    model: tuple[Path, Any, Any], target: str, tmp_path: Path
) -> None:
    """tract gets the file as it is; others get single precision."""
    folder, numbers, b = model
    out = tmp_path / "bwd"
    words = [str(folder), "--target", target, "--check", "-o", str(out)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    random = np.random.default_rng(2)
    x = torch.tensor(random.standard_normal((4, 64)), dtype=torch.float32)
    seed = random.standard_normal((4, 96)).astype(np.float32)
    leaves = [t.requires_grad_() for t in (x, torch.tensor(numbers))]
    y = torch.relu(leaves[0] @ leaves[1].T + torch.tensor(b))
    wanted = torch.autograd.grad(y, leaves, torch.tensor(seed))
    stored = nnef_grad.load_data(out)
    graph = nnef_grad.load(out)
    given = {"x": x.detach().numpy(), "grad_y": seed}
    found = nnef_grad.evaluate(graph, given, stored)
    np.testing.assert_array_equal(stored["w"], numbers)
    kept = target == "tract"
    assert stored.header("w").items.name == ("Q4_0" if kept else "float")
    assert (out / "w.dat").samefile(folder / "w.dat") == kept
    for name, gradient in zip(("grad_x", "grad_w"), wanted, strict=True):
        np.testing.assert_allclose(found[name], gradient, rtol=1e-4, atol=1e-5)


HEAD = """version 1.0;
extension tract_registry tract_core;
graph net( x ) -> ( y )
{
    x = tract_core_external(shape = %s, datum_type = 'f32');
    w = variable(label = 'w', shape = %s);
"""
# What reads a variable, by the shapes of the input and of the variable.
READERS = {
    "rows": ("[4, 64]", "[96, 64]", "y = linear(x, w);"),
    "columns": ("[4, 64]", "[64, 96]", "y = matmul(x, w);"),
    "on the left": ("[64, 4]", "[96, 64]", "y = matmul(w, x);"),
    "twice": ("[4, 64]", "[64, 64]", "h = tanh(linear(x, w)); y = linear(h, w);"),
    "filters": ("[1, 8, 6, 6]", "[4, 8, 2, 2]", "y = tanh(conv(x, w));"),
    "elements": ("[4, 64]", "[4, 64]", "y = x * w;"),
    "in batches": ("[2, 4, 64]", "[1, 96, 64]", "y = linear(x, w);"),
    "one for a batch": (
        *("[2, 4, 64]", "[1, 96, 64]"),
        "y = matmul(x, w, transposeB = true);",
    ),
    "as a table": (
        *("[4, 64]", "[96, 64]"),
        "s = linear(x, w); i = argmax_reduce(s, axes = [1]);"
        " j = squeeze(i, axes = [1]);"
        " r = tract_core_gather(w, j, axis = 0, datum_type = 'f32'); y = r * tanh(x);",
    ),
}


@pytest.mark.parametrize("most", [2**20, 4])
@pytest.mark.parametrize("options", [[], ["--recompute", "0.5"]])
@pytest.mark.parametrize("name", READERS)
def test_whatever_reads_them_in_tract(
    name: str,
    options: list[str],
    most: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Large ones too, which would be read by parts elsewhere."""
    tract = pytest.importorskip("tract")
    monkeypatch.setattr("nnef_grad.targets.tract.loading.MOST_FOLDED", most)
    *shapes, statements = READERS[name]
    folder, out = tmp_path / "model", tmp_path / "bwd"
    folder.mkdir()
    text = HEAD % tuple(shapes) + f"    {statements}\n}}\n"
    (folder / "graph.nnef").write_text(text)
    random = np.random.default_rng(3)
    shape = [int(n) for n in shapes[1].strip("[]").split(",")]
    (folder / "w.dat").write_bytes(in_blocks(random.standard_normal(shape))[0])
    words = [str(folder), "--target", "tract", "--wrt", "x", "-o", str(out), *options]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "slice(w," not in (out / "graph.nnef").read_text()
    backward = nnef_grad.differentiate(nnef_grad.load(folder), wrt="x").graph
    inputs = {t: random.standard_normal(t.shape) for t in backward.inputs}
    named = {backward.names[t]: value for t, value in inputs.items()}
    data = nnef_grad.load_data(folder)
    (wanted,) = nnef_grad.evaluate(backward, named, data).values()
    model = tract.nnef().load(str(out))
    names = [model.input_name(place) for place in range(model.input_count())]
    fed = [named[name].astype(np.float32) for name in names]
    (found,) = model.into_runnable().run(fed)
    np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-4, atol=1e-4)
    read, own = nnef_grad.load(out), nnef_grad.load_data(out)
    (again,) = nnef_grad.evaluate(read, {n: named[n] for n in names}, own).values()
    np.testing.assert_allclose(again, wanted, rtol=1e-9, atol=1e-9)


def adapters(folder: Path, target: str) -> nnef_grad.training.Step:
    return nnef_grad.training_step(
        nnef_grad.load(folder),
        loss="mean_squared_error",
        optimizer="sgd",
        learning_rate=0.1,
        data=nnef_grad.load_data(folder),
        adapters={"w": 2},
        target=target,
    )


BATCH = {"x": np.ones((4, 64)), "target_y": np.zeros((4, 96))}


def test_adapters_are_trained_beside_them(
    model: tuple[Path, Any, Any], tmp_path: Path
) -> None:
    """A checkpoint has them as they are."""
    folder, numbers, _ = model
    step, checkpoint = adapters(folder, "nnef"), tmp_path / "checkpoint"
    np.testing.assert_array_equal(step.data["w"], numbers)
    first, second = nnef_grad.training.run(
        step, [BATCH, BATCH], runtime="numpy", checkpoint=checkpoint
    )
    assert second < first
    assert (checkpoint / "w.dat").samefile(folder / "w.dat")


@pytest.mark.parametrize("half", [False, True])
def test_a_step_in_tract_shares_their_file(
    model: tuple[Path, Any, Any], half: bool, tmp_path: Path
) -> None:
    """That of half precision, too."""
    tract = pytest.importorskip("tract")
    folder, numbers, b = model
    if half:
        data = {"w": numbers.astype(np.float16), "b": b}
        folder = tmp_path / "half"
        nnef_grad.save(nnef_grad.load(model[0]), folder, data=data)
    step, out = adapters(folder, "tract"), tmp_path / "step"
    nnef_grad.training.save_step(step, out)
    assert (out / "w.dat").samefile(folder / "w.dat")
    loaded = tract.nnef().load(str(out))
    names = [loaded.input_name(place) for place in range(loaded.input_count())]
    runnable, state = loaded.into_runnable(), {**step.data, **BATCH}
    losses = []
    for _ in range(3):
        fed = [np.asarray(state[name], np.float32) for name in names]
        results = [result.to_numpy() for result in runnable.run(fed)]
        known = dict(zip(step.outputs, results, strict=True))
        losses.append(float(known["loss"]))
        state.update({old: known[new] for old, new in step.state.items()})
    wanted = nnef_grad.training.run(
        adapters(folder, "nnef"), [BATCH] * 3, runtime="numpy"
    )
    np.testing.assert_allclose(losses, [*wanted], rtol=1e-5)


def test_nothing_is_merged_into_them(
    model: tuple[Path, Any, Any], tmp_path: Path
) -> None:
    folder, numbers, b = model
    nnef_grad.save(
        nnef_grad.loads(GRAPH), tmp_path / "new", data={"w": 2 * numbers, "b": b}
    )
    with pytest.raises(nnef_grad.UsageError, match="stored as codes"):
        nnef_grad.training.merge(folder, [tmp_path / "new"], tmp_path / "tuned")


@pytest.mark.parametrize("target", ["nnef", "tract", "onnx"])
def test_matrices_of_a_tensor_of_more_axes(target: str, tmp_path: Path) -> None:
    """tract writes the blocks of [3, 96, 64] as those of [288, 64]."""
    tract = pytest.importorskip("tract")
    random = np.random.default_rng(4)
    content, w = in_blocks(
        random.standard_normal((3, 96, 64)).astype(np.float32), shape=(288, 64)
    )
    text = HEAD % ([3, 4, 64], [3, 96, 64])
    text += "    y = matmul(x, w, transposeB = true);\n}\n"
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "graph.nnef").write_text(text)
    (folder / "w.dat").write_bytes(content)
    # tract writes it so itself.
    loaded = tract.nnef().load(str(folder))
    tract.nnef().write_model_to_dir(loaded, str(tmp_path / "tract"))
    assert (tmp_path / "tract" / "w.dat").read_bytes() == content
    out = tmp_path / "bwd"
    words = [str(folder), "--target", target, "--check", "-o", str(out)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    x = random.standard_normal((3, 4, 64)).astype(np.float32)
    seed = random.standard_normal((3, 4, 96)).astype(np.float32)
    backward, stored = nnef_grad.load(out), nnef_grad.load_data(out)
    found = nnef_grad.evaluate(backward, {"x": x, "grad_y": seed}, stored)
    np.testing.assert_allclose(found["grad_x"], seed @ w, rtol=1e-4, atol=1e-4)
    wanted = np.swapaxes(seed, 1, 2) @ x
    np.testing.assert_allclose(found["grad_w"], wanted, rtol=1e-4, atol=1e-4)
    nnef_grad.save(
        nnef_grad.load(folder), tmp_path / "copy", data=nnef_grad.load_data(folder)
    )
    # What is read from a document of tract keeps its blocks.
    assert (tmp_path / "copy" / "w.dat").read_bytes() == content
    copy = nnef_grad.load(tmp_path / "copy")
    data = nnef_grad.load_data(tmp_path / "copy")
    (y,) = nnef_grad.evaluate(copy, {"x": x}, data).values()
    np.testing.assert_allclose(y, x @ np.swapaxes(w, 1, 2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(64,), (4, 16), (32, 1, 2)])
def test_blocks_that_are_no_rows(shape: tuple[int, ...], tmp_path: Path) -> None:
    content, _ = in_blocks(np.ones(64, np.float32), shape=shape)
    (tmp_path / "w.dat").write_bytes(content)
    (tmp_path / "graph.nnef").write_text(GRAPH)
    with pytest.raises(nnef_grad.UsageError, match="in rows of blocks of 32"):
        nnef_grad.load_data(tmp_path)["w"]


def test_blocks_of_eight_bits(tmp_path: Path) -> None:
    """Q8_1, which tract writes with this code and reads with another."""
    content = bytearray(in_blocks(np.ones((1, 32), np.float32))[0])
    content[48:52] = struct.pack("<I", 0x54523081)
    (tmp_path / "w.dat").write_bytes(content)
    (tmp_path / "graph.nnef").write_text(GRAPH)
    with pytest.raises(nnef_grad.UsageError, match="0x54523081, is unknown"):
        nnef_grad.load_data(tmp_path)["w"]
