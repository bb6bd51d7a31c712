"""How an architecture arrives: its gradients in double precision, and in ONNX Runtime, next
to those of torch.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from itertools import compress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import nnef_grad
from nnef_grad import interop

Array = npt.NDArray[Any]
Gradients = Mapping[str, Array]

# A step of single precision, relative to 1.
_STEP = float(np.finfo(np.float32).eps)

# The types of ONNX Runtime that tensors are fed in.
_TYPES = {"tensor(float)": "f4", "tensor(int64)": "i8", "tensor(bool)": "?"}


@dataclass(frozen=True)
class Arrival:
    """What became of an architecture.

    Attributes:
        forward: the number of operations of its graph.
        backward: that of its backward graph.
        exact: the largest error in double precision of any gradient, relative to its
            largest number.
        errors: in ONNX Runtime, of each gradient, in multiples of the error that torch
            itself makes in single precision.
        seconds: of each stage.
    """

    forward: int
    backward: int
    exact: float
    errors: Mapping[str, float]
    seconds: Mapping[str, float]

    @property
    def worst(self) -> str:
        """The name of the gradient with the largest error."""
        return max(self.errors, key=lambda name: self.errors[name])


# Of errors in ONNX Runtime; and of random numbers that are tried.
MOST, TRIES = 10, 10


def arrive_within(make: Callable[[int], tuple[Any, Any]]) -> Arrival:
    """How an architecture arrives with the first random numbers for which the error is no
    larger than `MOST`: a decision, such as the sign at a ReLU, may fall differently in
    single and in double precision, and the gradients are then those of two different
    pieces. In double precision they agree whatever the numbers are.

    Args:
        make: makes the module and its arguments, by a seed.
    """
    exact, seed = 0.0, 0
    while True:
        found = arrive(*make(seed))
        exact, seed = max(exact, found.exact), seed + 1
        if found.errors[found.worst] <= MOST or seed == TRIES:
            return replace(found, exact=exact)


def arrive(module: Any, given: Any) -> Arrival:
    """Takes a module through all stages, and compares every gradient.

    Args:
        module: with random weights; they are changed.
        given: the arguments of `forward`, by position or by name.

    Raises:
        NnefGradError: a stage refuses it.
    """
    _prepare(module)
    watch = Stopwatch()
    with watch("export, read"):
        model = interop.from_torch(module, given, allow_own_backward=True)
    fed = inputs_of(module, given)
    wanted = [n for n in model.graph.input_names if fed[n].is_floating_point()]
    with watch("differentiate"):
        backward = nnef_grad.differentiate(model.graph, wrt=[*model.trainable, *wanted])
    precise, seeds = gradients_by_torch(module, given, torch.float64)
    single, _ = gradients_by_torch(module, given, torch.float32)
    outputs = zip(model.graph.output_names, seeds, strict=True)
    feeds = {name: x.numpy() for name, x in fed.items()}
    feeds |= {backward.seeds[n]: s for n, s in outputs if n in backward.seeds}
    # Some arguments are of no use to a gradient.
    used = {n: x for n, x in feeds.items() if n in backward.graph.input_names}
    with watch("evaluate"):
        in_double = nnef_grad.evaluate(backward, used, model.data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "backward.onnx"
        with watch("lower, write"):
            interop.to_onnx(backward.graph, path, model.data)
        with watch("load, run"):
            found = _run(path, list(backward.gradients.values()), feeds)

    def in_torch(values: Iterable[Array]) -> Gradients:
        named = dict(zip(backward.gradients, values, strict=True))
        return model.gradients_to_torch(named) | {n: named[n] for n in wanted}

    exact = in_torch(in_double[name] for name in backward.gradients.values())
    sizes = len(model.graph.operations), len(backward.graph.operations)
    errors = _errors(in_torch(found), single, precise)
    return Arrival(*sizes, _relative(exact, precise), errors, watch.seconds)


def _prepare(module: Any) -> None:
    """For inference; no two parameters are alike, and no statistics are 0 or 1."""
    module.float().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) / 50)
        for name, buffer in module.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.add_(torch.rand_like(buffer) / 10)


class Stopwatch:
    """The seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start


def inputs_of(module: Any, given: Any) -> dict[str, Any]:
    """The tensors among the arguments, by the names that they have in the graph."""
    parameters = signature(module.forward)
    is_named = isinstance(given, Mapping)
    bound = parameters.bind(**given) if is_named else parameters.bind(*given)
    paths, _ = pytree.tree_flatten_with_path(dict(bound.arguments))
    return {
        "_".join(
            str(getattr(step, "key", getattr(step, "idx", ""))) for step in path
        ): x
        for path, x in paths
        if isinstance(x, torch.Tensor)
    }


# ---- ONNX Runtime ----


def _run(path: Path, names: Sequence[str], feeds: Gradients) -> list[Array]:
    import onnxruntime  # which the architectures alone do not need

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    typed = {x.name: feeds[x.name].astype(_TYPES[x.type]) for x in session.get_inputs()}
    found: list[Array] = session.run(names, typed)
    return found


# ---- torch ----


class DoublePrecision(TorchDispatchMode):  # type: ignore[misc]
    """Makes single precision double, which some networks cast to inside."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = pytree.tree_map(_widened, (args, kwargs or {}))
        return function(*args, **kwargs)


def _widened(value: Any) -> Any:
    doubles = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    return doubles.get(value, value) if isinstance(value, torch.dtype) else value


@contextmanager
def double_precision() -> Iterator[None]:
    """Computes in double precision, but with masks of single precision: sums of the
    least numbers of double precision would be infinite.
    """
    finfo = torch.finfo
    single = patch.object(torch, "finfo", lambda *_: finfo(torch.float32))
    with single, _experts_one_by_one(), DoublePrecision():
        yield


@contextmanager
def _experts_one_by_one() -> Iterator[None]:
    """Lets experts of transformers be computed one by one, as in an export: torch's own
    operation is of single precision.
    """
    experts = sys.modules.get("transformers.integrations.moe")
    name = "_can_use_grouped_mm"
    if experts is None or not hasattr(experts, name):
        yield
        return
    with patch.object(experts, name, lambda *_: False):
        yield


def gradients_by_torch(
    module: Any, given: Any, dtype: Any
) -> tuple[dict[str, Array], list[Array]]:
    """The gradients of parameters and inputs, by all names of each; and the random
    cotangents of the results.
    """
    leaves = pytree.tree_map(lambda x: _leaf(x, dtype), given)
    module.to(dtype)
    named = dict(module.named_parameters(remove_duplicate=False))
    named |= inputs_of(module, leaves)
    wanted = {name: x for name, x in named.items() if x.requires_grad}
    try:
        with double_precision() if dtype == torch.float64 else nullcontext():
            results = _results(module, leaves)
            seeds = _cotangents(results)
            active = [x.requires_grad for x in results]
            found = torch.autograd.grad(
                list(compress(results, active)),
                list(wanted.values()),
                [x.to(dtype) for x in compress(seeds, active)],
                allow_unused=True,
            )
    finally:
        module.float()
    pairs = zip(wanted, found, strict=True)
    gradients = {name: g.double().numpy() for name, g in pairs if g is not None}
    return gradients, [seed.numpy() for seed in seeds]


def _results(module: Any, given: Any) -> list[Any]:
    """The tensors that a module returns."""
    result = module(**given) if isinstance(given, Mapping) else module(*given)
    leaves = pytree.tree_leaves(result)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _cotangents(results: Sequence[Any]) -> list[Any]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(x.shape, generator=draw) for x in results]


def _leaf(value: Any, dtype: Any) -> Any:
    """A floating-point tensor, in the given precision and with a gradient."""
    is_scalar = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().to(dtype).requires_grad_() if is_scalar else value


# ---- Comparison ----


def _errors(
    found: Gradients, single: Gradients, precise: Gradients
) -> dict[str, float]:
    """The error of each gradient against torch in double precision, in multiples of
    torch's own in single precision.

    The divisor is not less than one step of single precision at the largest number of the
    gradient: torch may have hit a gradient exactly by luck. And it is not less than a
    thousandth of a step at the largest number of all: gradients that are only zero, such
    as that of a bias before a softmax, are noise of larger numbers that cancel.
    """
    top = max(_size(gradient) for gradient in precise.values())
    errors = {
        name: np.inf for name in found.keys() - precise.keys() if _size(found[name])
    }
    for name, wanted in precise.items():
        theirs = max(
            _size(single[name] - wanted), _STEP * _size(wanted), 1e-3 * _STEP * top
        )
        errors[name] = _difference(found, name, wanted) / theirs
    return errors


def _relative(found: Gradients, precise: Gradients) -> float:
    """The largest error of any gradient, relative to its largest number, which is not less
    than a millionth of the largest number of all.
    """
    top = max(_size(gradient) for gradient in precise.values())
    return max(
        _difference(found, name, wanted) / max(_size(wanted), 1e-6 * top)
        for name, wanted in precise.items()
    )


def _difference(found: Gradients, name: str, wanted: Array) -> float:
    """The largest difference of a gradient. It is infinite where that is no number, has
    another shape, or is missing; a gradient of zeros may be missing.
    """
    if name not in found or found[name].shape != wanted.shape:
        return np.inf if _size(wanted) else 0.0
    error = _size(found[name] - wanted)
    return error if np.isfinite(error) else np.inf


def _size(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))
