"""Documents of tract that are read and written again: `python -m support.tract_round_trips
DOCUMENT ...`, in the folder `tests/`. A document is a folder, an archive or a text.

It prints a line for each: how far the results in tract, of the document as it is written
again, and as the formatter writes it, are from those of the document itself.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tract
from click.testing import CliRunner

import nnef_grad
from nnef_grad.commandline.fmt_cli import main as fmt

# What open extents are, until tract takes them.
EXTENTS = 8, 4, 12, 2, 5


def line(path: Path) -> str:
    """The row of a document."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        original = _copied(path, folder / "original")
        try:
            fed, wanted = _first(original)
        except tract.TractError as error:
            return f"tract: {' '.join(str(error).split())[:150]}"
        words = []
        for way in (_written, _formatted):
            made = folder / way.__name__
            try:
                way(original, made)
                words.append(f"{_apart(_run(made, fed), wanted):.1e}")
            except (
                nnef_grad.NnefGradError,
                tract.TractError,
                RuntimeError,
                AssertionError,
            ) as error:
                words.append(
                    f"{type(error).__name__} {' '.join(str(error).split())[:250]}"
                )
        return " ".join(words)


def _copied(path: Path, folder: Path) -> Path:
    if path.is_dir():
        shutil.copytree(path, folder)
    elif tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
    else:
        folder.mkdir()
        shutil.copy(path, folder / "graph.nnef")
    return folder


def _written(original: Path, made: Path) -> None:
    """By the reader and the writer, and by these again."""
    first = made.with_name("first")
    for source, target in ((original, first), (first, made)):
        graph = nnef_grad.load(source, dialect="tract")
        nnef_grad.save(graph, target, data=nnef_grad.load_data(source))


def _formatted(original: Path, made: Path) -> None:
    """By the formatter."""
    shutil.copytree(original, made)
    result = CliRunner().invoke(fmt, [str(made / "graph.nnef")])
    if result.exit_code:
        raise RuntimeError(result.output)


def _first(folder: Path) -> tuple[list[Any], list[Any]]:
    """The inputs, at the first extents that tract takes, and the results."""
    failure: tract.TractError | None = None
    for extent in EXTENTS:
        model = _loaded(folder)
        facts = [str(model.input_fact(n)) for n in range(model.input_count())]
        fed = [_drawn(fact, extent, seed) for seed, fact in enumerate(facts)]
        try:
            return fed, _run(folder, fed)
        except tract.TractError as error:
            failure = error
    assert failure is not None
    raise failure


def _drawn(fact: str, extent: int, seed: int) -> Any:
    *shape, kind = fact.split(",")
    numbers = [n if n.isdigit() else _value(n, extent) for n in shape]
    extents = [int(n) for n in numbers]
    rng = np.random.default_rng(seed)
    word = kind[0].lower() + str(int(kind[1:]) // 8) if kind[1:].isdigit() else "?"
    if word[0] == "f":
        return rng.uniform(-1, 1, extents).astype(word)
    return rng.integers(0, 2, extents).astype(word)


def _value(size: str, extent: int) -> int:
    """A size with symbols, such as 2*T-1, at one extent."""
    text = "".join(str(extent) if c.isalpha() else c for c in size)
    return int(eval(text))


def _loaded(folder: Path) -> Any:
    reader = tract.nnef().with_onnx().with_pulse().with_tract_extra()
    return reader.with_tract_transformers().load(str(folder))


def _run(folder: Path, fed: list[Any]) -> list[Any]:
    results = _loaded(folder).into_runnable().run(fed)
    return [y.to_numpy() for y in results]


def _apart(found: list[Any], wanted: list[Any]) -> float:
    """How far results are from others; one of another type is no result."""
    pairs = list(zip(found, wanted, strict=True))
    if any((y.dtype, y.shape) != (z.dtype, z.shape) for y, z in pairs):
        types = [(y.dtype.name, z.dtype.name, y.shape, z.shape) for y, z in pairs]
        raise RuntimeError(f"the types or shapes are {types}")
    pairs = [(np.float64(y), np.float64(z)) for y, z in pairs]
    wanted = [z for _, z in pairs]
    if any(np.any(np.isnan(y) != np.isnan(z)) for y, z in pairs):
        return float("nan")
    # What is NaN in both is no difference.
    far = (np.nanmax(np.abs(y - z), initial=0) for y, z in pairs)
    wide = max(float(np.nanmax(np.abs(z), initial=0)) for z in wanted)
    return max(map(float, far), default=0.0) / (wide + 1e-30)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(f"{argument[-60:]:60s} {line(Path(argument))}", flush=True)
