"""What tract writes of ONNX files, in both ways: `python -m support.tract_dumps FILE ...`, in the
folder `tests/`.

It prints two lines for each file, for the dump with plain and with extended identifiers: the
largest relative difference of the gradients in tract from those of the ONNX file in ONNX
Runtime, and how many tensors have one that is not zero; where they are far apart, how far both are
from double precision, and the dump and the file there; or where it fails, and why. Then it counts.
With `--compile` first, dumps are compiled, and not run.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import product
from multiprocessing import get_context
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tract

import nnef_grad
from nnef_grad import interop
from nnef_grad.model import as_stored
from support.onnx_files import run

# Of one file in one way.
SECONDS = 240
# What open extents are, until the file takes them: of the first axes, and of others.
EXTENTS = *((n, n) for n in (1, 2, 4, 8, 16, 32, 64, 100, 224)), (1, 1280)
# How wide the numbers are that a file is fed, until a gradient is not zero.
SCALES = 1.0, 0.01
# Less is no difference.
CLOSE = 1e-4
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
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise FailedError(f"{word}: {reason}") from None


class Original(NamedTuple):
    """An ONNX file at some sizes, with what it is fed and what it computes, or why it does not."""

    feeds: Named
    gradients: Named
    seeds: list[Any]
    failure: str = ""


def original(path: Path, *, is_run: bool = True) -> Original:
    """The file in ONNX Runtime, at the first sizes that it takes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    inputs = session.get_inputs()
    others = []
    for extents, scale in product(EXTENTS, SCALES):
        feeds = {x.name: _fed(x, extents, scale) for x in inputs}
        try:
            with stage("onnxruntime"):
                session.run(None, feeds)
            if not is_run:
                # ONNX Runtime also takes images that are smaller than a window.
                with stage("onnx"):
                    shapes = {name: x.shape for name, x in feeds.items()}
                    interop.from_onnx(path, input_shapes=shapes)
                return Original(feeds, {}, [], "not run")
            found = _derived(path, feeds)
            if any(map(np.any, found.gradients.values())):
                return found
        except FailedError as error:
            found = Original(feeds, {}, [], str(error))
        others.append(found)
        is_last = scale == SCALES[-1]
        if is_last and all(isinstance(n, int) for x in inputs for n in x.shape):
            break
    return max(others, key=_worth)


def _worth(found: Original) -> int:
    """How far a file got: not in ONNX Runtime, not in the compiler, or to zeros."""
    return 2 if not found.failure else found.failure.startswith("onnx:")


def _fed(described: Any, extents: tuple[int, int], scale: float) -> Any:
    words = {"float": "float32", "double": "float64", "float16": "float16"}
    kind = described.type.removeprefix("tensor(").removesuffix(")")
    shape = [
        n if isinstance(n, int) and n > 0 else extents[axis > 0]
        for axis, n in enumerate(described.shape)
    ]
    rng = np.random.default_rng(sum(map(ord, described.name)))
    if kind in words:
        return rng.uniform(-scale, scale, shape).astype(words[kind])
    if kind == "bool":
        return np.ones(shape, np.bool_)
    return rng.integers(1, 4, shape).astype(kind)


def _derived(path: Path, feeds: Named, *, is_exact: bool = False) -> Original:
    """The gradients in ONNX Runtime, or in double precision."""
    with stage("onnx"):
        shapes = {name: x.shape for name, x in feeds.items()}
        model = interop.from_onnx(path, input_shapes=shapes)
        graph = model.graph
        backward = nnef_grad.differentiate(graph)
        rng = np.random.default_rng(1)
        drawn = {y: rng.normal(size=graph.tensors[y].shape) for y in backward.seeds}
        seeds = {backward.seeds[y]: np.float32(drawn[y]) for y in drawn}
        spelled = dict(zip(graph.input_names, feeds.values(), strict=True))
        if is_exact:
            fed = {**spelled, **seeds}
            read = {n: fed[n] for n in backward.graph.input_names}
            found = nnef_grad.evaluate(
                backward.graph, read, model.data, dtype=np.float64
            )
        else:
            found = _in_onnxruntime(backward.graph, model.data, {**spelled, **seeds})
    gradients = _keyed(graph, model.data, backward.gradients, found)
    ordered = [drawn.get(y) for y in graph.output_names]
    return Original(feeds, gradients, ordered)


def _in_onnxruntime(graph: Any, data: Any, fed: Named) -> Named:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "backward.onnx"
        interop.to_onnx(graph, file, data)
        found: Named = run(file, _typed(file, fed))
        return found


def _keyed(
    graph: Any, data: Any, gradients: Mapping[str, str], found: Mapping[str, Any]
) -> Named:
    """The gradients of inputs by their places; those of variables by their numbers, and in the
    order of these: tract gives them other names and shapes. It may write a variable with two
    readers as two, whose gradients are parts of one.
    """
    keyed: Named = {}
    for place, name in enumerate(graph.input_names):
        if name in gradients:
            keyed[f"input {place}"] = np.ravel(found[gradients[name]])
    for name, label in graph.labels.items():
        if name not in gradients:
            continue
        numbers = np.ravel(np.float32(data[label]))
        order = np.argsort(numbers)
        if np.all(np.diff(numbers[order])):
            key = sha256(numbers[order].tobytes()).hexdigest()
            keyed[key] = keyed.get(key, 0) + np.ravel(found[gradients[name]])[order]
    return keyed


def _typed(file: Path, feeds: Named) -> Named:
    import onnx

    inputs = onnx.load(str(file), load_external_data=False).graph.input
    types = {
        x.name: onnx.helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type)
        for x in inputs
    }
    return {name: np.asarray(feeds[name]).astype(types[name]) for name in types}


def compared(path: Path, wanted: Original, *, extended: bool) -> str:
    """How far the gradients of a dump are from those of the file, and of how many tensors."""
    registries = tract.nnef().with_onnx().with_tract_extra().with_tract_transformers()
    if extended:
        registries = registries.with_extended_identifier_syntax()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with stage("tract"):
            registries.write_model_to_dir(
                typed_model(path, wanted), str(folder / "dump")
            )
        with stage("compile"):
            nnef_grad.differentiate(nnef_grad.load(folder / "dump"))
        if wanted.failure:
            return f"compiled; {wanted.failure}"
        with stage("compiled; sizes"):
            dump = Dump(folder, wanted)
            found = dump.in_tract()
            apart = _most_apart(found, wanted.gradients)
            if apart < CLOSE:
                return f"{apart:.1e} of {_count(found, wanted.gradients)}"
            exact = dump.in_double_precision()
        own, theirs = (_most_apart(x, exact) for x in (found, wanted.gradients))
        count = _count(found, wanted.gradients)
        both = _most_apart(exact, _derived(path, wanted.feeds, is_exact=True).gradients)
        return (
            f"{apart:.1e} of {count}; {own:.1e} and {theirs:.1e} from double precision,"
            f" where they are {both:.1e} apart"
        )


def _most_apart(found: Named, wanted: Named) -> float:
    shared = found.keys() & wanted.keys()
    return max((_apart(found[key], wanted[key]) for key in shared), default=0.0)


def _count(found: Named, wanted: Named) -> int:
    return sum(bool(np.any(wanted[key])) for key in found.keys() & wanted.keys())


def typed_model(path: Path, wanted: Original) -> Any:
    """The model in tract, with open extents if tract takes them so."""
    try:
        return tract.onnx().load(str(path)).into_model()
    except tract.TractError:
        model = tract.onnx().load(str(path))
        for place in range(model.input_count()):
            x = wanted.feeds[model.input_name(place)]
            kind = {"f": "f", "i": "i", "u": "u"}.get(x.dtype.kind)
            word = f"{kind}{8 * x.itemsize}" if kind else "bool"
            model.set_input_fact(place, ",".join([*map(str, x.shape), word]))
        for place in range(model.output_count()):
            model.set_output_fact(place, None)
        return model.into_model()


class Dump:
    """What tract has written, at the sizes of the original, and its gradients."""

    def __init__(self, folder: Path, wanted: Original) -> None:
        self.folder = folder
        names = nnef_grad.load(folder / "dump").input_names
        self.fed = dict(zip(names, wanted.feeds.values(), strict=True))
        shapes = {name: x.shape for name, x in self.fed.items()}
        self.graph = nnef_grad.load(folder / "dump", input_shapes=shapes)
        self.data = nnef_grad.load_data(folder / "dump")
        self.backward = nnef_grad.differentiate(self.graph)
        for y, seed in zip(self.graph.output_names, wanted.seeds, strict=True):
            if y in self.backward.seeds and seed is not None:
                shape = self.graph.tensors[y].shape
                self.fed[self.backward.seeds[y]] = seed.reshape(shape)

    def in_tract(self) -> Named:
        lowered = nnef_grad.lower(self.backward.graph, "tract")
        # As the command does.
        graph, stored = as_stored(lowered.graph, self.data)
        data = {**stored, **lowered.data}
        nnef_grad.save(graph, self.folder / "backward", data=data)
        reader = tract.nnef().with_onnx().with_tract_transformers()
        model = reader.load(str(self.folder / "backward"))
        feeds = []
        for place in range(model.input_count()):
            fact = str(model.input_fact(place)).split(",")[-1].lower()
            word = fact[0] + str(int(fact[1:]) // 8) if fact != "bool" else "?"
            feeds.append(np.asarray(self.fed[model.input_name(place)]).astype(word))
        results = [y.to_numpy() for y in model.into_runnable().run(feeds)]
        names = lowered.graph.output_names
        return self._keyed(dict(zip(names, results, strict=True)))

    def in_double_precision(self) -> Named:
        graph = self.backward.graph
        fed = {name: x for name, x in self.fed.items() if name in graph.input_names}
        return self._keyed(nnef_grad.evaluate(graph, fed, self.data, dtype=np.float64))

    def _keyed(self, found: Mapping[str, Any]) -> Named:
        return _keyed(self.graph, self.data, self.backward.gradients, found)


def _apart(found: Any, wanted: Any) -> float:
    far = np.abs(np.float64(found).reshape(-1) - np.float64(wanted).reshape(-1))
    return float(far.max(initial=0) / (np.abs(wanted).max(initial=0) + 1e-30))


def rows(path: str, is_run: bool) -> Iterator[str]:
    """The rows of the two dumps of a file."""
    wanted = original(Path(path), is_run=is_run)
    for extended in (False, True):
        try:
            yield compared(Path(path), wanted, extended=extended)
        except FailedError as error:
            yield str(error)


def _worker(path: str, is_run: bool, pipe: Any) -> None:
    for row in rows(path, is_run):
        pipe.send(row)


def _alone(path: str, is_run: bool) -> list[str]:
    """The rows of a file, by a process of its own, which may take its time and no longer."""
    context = get_context("spawn")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=_worker, args=(path, is_run, its), daemon=True)
    process.start()
    its.close()
    found: list[str] = []
    try:
        while len(found) < 2:
            found += [mine.recv()] if mine.poll(SECONDS) else ["time: no answer"]
    except EOFError:
        pass
    process.kill()
    process.join()
    return [*found, "crash: no answer", "crash: no answer"][:2]


def _kind(row: str) -> str:
    """What a row counts as."""
    if row[0].isdigit():
        return "close" if float(row.split()[0]) < CLOSE else "apart"
    return row.split(";")[0].split(":")[0]


if __name__ == "__main__":
    paths = [path for path in sys.argv[1:] if path != "--compile"]
    alone = partial(_alone, is_run=len(paths) == len(sys.argv) - 1)
    words: Counter[str] = Counter()
    with ThreadPool(2) as threads:
        for path, found in zip(paths, threads.imap(alone, paths), strict=True):
            for way, row in zip(("plain", "extended"), found, strict=True):
                words[_kind(row)] += 1
                print(f"{path[-50:]:50s} {way:8s} {row}", flush=True)
    print(*(f"{word}: {count}" for word, count in words.items()), sep=", ")
