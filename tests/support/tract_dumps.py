"""What tract writes of ONNX files, in both ways: `python -m support.tract_dumps FILE ...`, in the
folder `tests/`.

It prints two lines for each file, for the dump with plain and with extended identifiers: the
largest relative difference of the gradients in tract from those of the ONNX file in ONNX
Runtime, and of how many tensors; or where it fails, and why. Then it counts.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tract

import nnef_grad
from nnef_grad import interop
from support.onnx_files import run

# Of one file in one way.
SECONDS = 240
# What open extents are, until the file takes them.
EXTENTS = 1, 2, 4, 8, 16, 32, 64, 100, 224
NUMPY = {
    "F16": np.float16, "F32": np.float32, "F64": np.float64, "Bool": np.bool_,
    **{f"{k}{n}": np.dtype(f"{w}{n}").type for k, w in (("I", "int"), ("U", "uint")) for n in (8, 16, 32, 64)},
}  # fmt: skip
Named = dict[str, Any]


class FailedError(Exception):
    """Where a file fails, and why."""


@contextmanager
def stage(word: str) -> Iterator[None]:
    """Says where an error comes from."""
    try:
        yield
    except FailedError:
        raise
    except nnef_grad.NnefGradError as error:
        raise FailedError(f"{word}: {' '.join(str(error).split())[:300]}") from None
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise FailedError(f"{word}: {reason}") from None


class Original(NamedTuple):
    """An ONNX file at some sizes, with what it is fed and what it computes."""

    feeds: Named
    results: Named
    gradients: Named
    labels: dict[str, str]
    seeds: list[Any]


def original(path: Path) -> Original:
    """The file in ONNX Runtime, at the first sizes that it takes."""
    import onnxruntime

    with stage("onnxruntime"):
        session = onnxruntime.InferenceSession(str(path))
    failure: Exception = FailedError("no sizes")
    for extent in EXTENTS:
        feeds = {x.name: _fed(x, extent) for x in session.get_inputs()}
        names = [y.name for y in session.get_outputs()]
        try:
            results = dict(zip(names, session.run(None, feeds), strict=True))
            return _derived(path, feeds, results)
        except FailedError as error:
            failure = error
        except Exception as error:
            failure = FailedError(f"onnxruntime: {str(error)[:100]}")
        if all(isinstance(n, int) for x in session.get_inputs() for n in x.shape):
            break
    raise failure


def _fed(described: Any, extent: int) -> Any:
    words = {"float": "float32", "double": "float64", "float16": "float16"}
    kind = described.type.removeprefix("tensor(").removesuffix(")")
    shape = [n if isinstance(n, int) and n > 0 else extent for n in described.shape]
    rng = np.random.default_rng(sum(map(ord, described.name)))
    if kind in words:
        return rng.uniform(-1, 1, shape).astype(words[kind])
    if kind == "bool":
        return np.ones(shape, np.bool_)
    return rng.integers(1, 4, shape).astype(kind)


def _derived(path: Path, feeds: Named, results: Named) -> Original:
    with stage("onnx"):
        shapes = {name: x.shape for name, x in feeds.items()}
        model = interop.from_onnx(path, input_shapes=shapes)
        graph = model.graph
        backward = nnef_grad.differentiate(graph)
        rng = np.random.default_rng(1)
        drawn = {y: rng.normal(size=graph.tensors[y].shape) for y in backward.seeds}
        seeds = {backward.seeds[y]: np.float32(drawn[y]) for y in drawn}
        spelled = dict(zip(graph.input_names, feeds.values(), strict=True))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "backward.onnx"
            interop.to_onnx(backward.graph, file, model.data)
            found = run(file, _typed(file, {**spelled, **seeds}))
    places = {name: f"input {n}" for n, name in enumerate(graph.input_names)}
    gradients = {
        graph.labels.get(x, places.get(x, x)): found[grad]
        for x, grad in backward.gradients.items()
    }
    ordered = [drawn.get(y) for y in graph.output_names]
    return Original(feeds, results, gradients, graph.labels, ordered)


def _typed(file: Path, feeds: Named) -> Named:
    import onnx

    inputs = onnx.load(str(file), load_external_data=False).graph.input
    types = {
        x.name: onnx.helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type)
        for x in inputs
    }
    return {name: np.asarray(feeds[name]).astype(types[name]) for name in types}


def compared(path: Path, *, extended: bool) -> tuple[float, int]:
    """How far the gradients of a dump are from those of the file, and of how many tensors."""
    registries = tract.nnef().with_onnx().with_tract_extra().with_tract_transformers()
    if extended:
        registries = registries.with_extended_identifier_syntax()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with stage("tract"):
            model = tract.onnx().load(str(path)).into_model()
            registries.write_model_to_dir(model, str(folder / "dump"))
        with stage("compile"):
            nnef_grad.differentiate(nnef_grad.load(folder / "dump"))
        wanted = original(path)
        with stage("sizes"):
            found = _in_tract(folder, wanted)
    shared = {
        key: _apart(found[key], gradient)
        for key, gradient in wanted.gradients.items()
        if key in found and found[key].size == gradient.size
    }
    return max(shared.values(), default=float("nan")), len(shared)


def _in_tract(folder: Path, wanted: Original) -> Named:
    names = nnef_grad.load(folder / "dump").input_names
    fed = dict(zip(names, wanted.feeds.values(), strict=True))
    shapes = {name: x.shape for name, x in fed.items()}
    graph = nnef_grad.load(folder / "dump", input_shapes=shapes)
    data = nnef_grad.load_data(folder / "dump")
    backward = nnef_grad.differentiate(graph)
    lowered = nnef_grad.lower(backward.graph, "tract")
    nnef_grad.save(lowered.graph, folder / "backward", data={**data, **lowered.data})
    for y, seed in zip(graph.output_names, wanted.seeds, strict=True):
        if y in backward.seeds and seed is not None:
            fed[backward.seeds[y]] = seed.reshape(graph.tensors[y].shape)
    model = (
        tract.nnef()
        .with_onnx()
        .with_tract_transformers()
        .load(str(folder / "backward"))
    )
    places = range(model.input_count())
    own = [model.input_name(n) for n in places]
    types = [
        NUMPY[str(model.input_fact(n)).split(",")[-1].upper().replace("BOOL", "Bool")]
        for n in places
    ]
    feeds = [np.asarray(fed[n]).astype(t) for n, t in zip(own, types, strict=True)]
    results = [y.to_numpy() for y in model.into_runnable().run(feeds)]
    positions = {name: f"input {n}" for n, name in enumerate(names)}
    by_name = dict(zip(lowered.graph.output_names, results, strict=True))
    return {
        graph.labels.get(x, positions.get(x, x)): by_name[grad]
        for x, grad in backward.gradients.items()
    }


def _apart(found: Any, wanted: Any) -> float:
    far = np.abs(np.float64(found).reshape(-1) - np.float64(wanted).reshape(-1))
    return float(far.max(initial=0) / (np.abs(wanted).max(initial=0) + 1e-30))


def line(path: str, extended: bool) -> str:
    """A row."""
    try:
        difference, count = compared(Path(path), extended=extended)
    except FailedError as error:
        return str(error)
    return f"{difference:.1e} of {count}"


def _alone(task: tuple[str, bool]) -> str:
    with get_context("spawn").Pool(1) as pool:
        try:
            return pool.apply_async(line, task).get(SECONDS)
        except Exception as error:
            return f"time: {type(error).__name__}"


if __name__ == "__main__":
    tasks = [(path, way) for path in sys.argv[1:] for way in (False, True)]
    words: Counter[str] = Counter()
    with ThreadPool(2) as threads:
        for (path, way), row in zip(tasks, threads.imap(_alone, tasks), strict=True):
            words[row.split(":")[0] if ":" in row else "compared"] += 1
            print(
                f"{Path(path).name:40s} {'extended' if way else 'plain':8s} {row}",
                flush=True,
            )
    print(*(f"{word}: {count}" for word, count in words.items()), sep=", ")
