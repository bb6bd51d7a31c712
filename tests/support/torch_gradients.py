"""Modules of PyTorch beside their graphs: outputs and gradients, in double precision."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import nnef_grad
from nnef_grad import interop
from nnef_grad.autodiff.backward import Backward
from nnef_grad.frontends.torch.capture import plain
from nnef_grad.frontends.torch.complexes import in_parts
from nnef_grad.graph.extents import Extent
from support.architectures.arrival import double_precision

TOLERANCE = 1e-6


def compare(
    module: Any,
    inputs: Sequence[Any] | Mapping[str, Any],
    *fresh: Sequence[Any] | Mapping[str, Any] | None,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    uses_mode: bool = True,
    **options: Any,
) -> Any:
    """Reads a module with some inputs, and compares its outputs and the gradients of its
    parameters and inputs with torch's, at these and at other inputs; for random gradients
    of the outputs.

    Args:
        module: in the mode in which it is read.
        inputs: the example inputs.
        fresh: other inputs; the examples themselves are used anyway.
        uses_mode: whether torch's single precision inside of the module is made double,
            by a mode that does not know branches.
        options: for `from_torch`.

    Returns:
        What `from_torch` has returned.
    """
    model = interop.from_torch(module, inputs, **options)
    backward = _backward(model)
    # Names are those inside of what compiles a module, or spreads it over devices.
    module = plain(module)
    for given in [inputs, *(x for x in fresh if x is not None)]:
        _compare_at(module, model, backward, given, seed, tolerance, uses_mode)
    return model


def _backward(model: Any) -> Backward:
    """The gradients and the outputs; the outputs alone, if none has a gradient."""
    if not (outputs := _outputs(model)):
        return Backward(model.graph, {}, {}, (), 0, ())
    return nnef_grad.differentiate(
        model.graph, wrt=_wrt(model), outputs=outputs, with_outputs=True
    )


def _outputs(model: Any) -> list[str]:
    """The outputs that are no new values of buffers, and have gradients."""
    graph, updates = model.graph, {*model.updates.values()}
    pairs = zip(graph.output_names, graph.outputs, strict=True)
    return [n for n, y in pairs if y.dtype == "scalar" and n not in updates]


def _wrt(model: Any) -> list[str]:
    graph = model.graph
    inputs = [
        name
        for name, x in zip(graph.input_names, graph.inputs, strict=True)
        if x.dtype == "scalar" and name not in model.random
    ]
    return [*inputs, *model.trainable]


def _compare_at(
    module: Any,
    model: Any,
    backward: Any,
    given: Any,
    seed: int,
    tolerance: float,
    uses_mode: bool,
) -> None:
    """Compares outputs, new values of buffers and gradients at some inputs."""
    exact = _in_double_precision(module)
    # The graph has the parameters in single precision.
    for mine, theirs in zip(exact.parameters(), module.parameters(), strict=True):
        if theirs.is_floating_point():
            mine.data = theirs.data.float().double()
    moved = pytree.tree_map(
        _exact, dict(given) if isinstance(given, Mapping) else tuple(given)
    )
    leaves = [x for x in pytree.tree_leaves(moved) if isinstance(x, torch.Tensor)]
    passed = pytree.tree_map(_cloned, moved) if _writes_into_inputs(model) else moved
    args, kwargs = ((), passed) if isinstance(passed, Mapping) else (passed, {})
    random = np.random.default_rng(seed)
    drawn = model.draw(random, _extents(model, leaves))
    before = {name: x.clone() for name, x in exact.named_buffers()}
    replay = Replay(drawn.values()) if drawn else nullcontext()
    with _double_precision(uses_mode), replay:
        result = exact(*args, **kwargs)
    outputs = _tensors(pytree.tree_leaves(result), model)
    names = model.graph.output_names[: len(outputs)]
    places = model.places
    fed = {name: leaves[place].detach().numpy() for name, place in places.items()}
    fed |= drawn
    seeds, total = {}, torch.zeros((), dtype=torch.float64)
    for name, y in zip(names, outputs, strict=True):
        if y.is_floating_point():
            cotangent = random.standard_normal(tuple(y.shape))
            if name in backward.seeds:
                seeds[backward.seeds[name]] = cotangent
            if y.requires_grad:
                total = total + (y * torch.from_numpy(cotangent)).sum()
    if total.requires_grad:
        total.backward()
    needed = {
        n: v for n, v in {**fed, **seeds}.items() if n in backward.graph.input_names
    }
    found = nnef_grad.evaluate(backward.graph, needed, _double(model.data))
    for name, y in zip(names, outputs, strict=True):
        values = _output(model, backward, found, name, fed)
        _assert_close(values, y.detach().numpy(), f"output {name}", tolerance)
    for name, buffer in exact.named_buffers():
        if name not in before:
            continue
        _compare_buffer(
            name,
            before[name],
            buffer,
            lambda made: _output(model, backward, found, made, fed),
            model.updates,
            tolerance,
        )
    gradients = {w: found[g] for w, g in backward.gradients.items()}
    of_parameters = model.gradients_to_torch(gradients)
    for name, parameter in exact.named_parameters(remove_duplicate=False):
        what, wanted = f"gradient of {name}", _gradient(parameter)
        # A parameter that no output depends on has no variable.
        mine = of_parameters.get(name, np.zeros(wanted.shape))
        _assert_close(mine, wanted, what, tolerance)
    by_place = {places[name]: g for name, g in gradients.items() if name in places}
    for place, x in enumerate(leaves):
        if x.is_floating_point():
            mine = by_place.get(place, np.zeros(tuple(x.shape)))
            _assert_close(mine, _gradient(x), f"gradient of input {place}", tolerance)


def _tensors(leaves: Sequence[Any], model: Any) -> list[Any]:
    """The tensors that are returned, and numbers in the place of those that there may be."""
    tensors = [y for y in leaves if isinstance(y, torch.Tensor) and y.numel()]
    if tensors or not (model.graph.outputs[len(model.updates) :]):
        return tensors
    return [torch.tensor(float(y), dtype=torch.float64) for y in leaves]


def _in_double_precision(module: Any) -> Any:
    """A copy, with the tensors that are plain attributes."""
    made = copy.deepcopy(module).double()
    for x in (*made.parameters(), *made.buffers()):
        if x.is_complex():
            x.data = x.data.to(torch.complex128)
    for part in made.modules():
        for name, x in vars(part).items():
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                setattr(part, name, x.double())
            elif isinstance(x, torch.Tensor) and x.is_complex():
                setattr(part, name, x.to(torch.complex128))
    return made


def _gradient(x: Any) -> Any:
    """The gradient of a leaf: of zeros, where autograd has none."""
    found = torch.zeros_like(x) if x.grad is None else x.grad.to_dense()
    return in_parts(found).numpy()


def _compare_buffer(
    name: str,
    before: Any,
    after: Any,
    output: Any,
    updates: Mapping[str, str],
    tolerance: float,
) -> None:
    """Compares the new value of a buffer; what is not an output must not change. Counts
    of batches are no outputs, nor are values of other shapes.
    """
    what = f"new value of {name}"
    if name in updates:
        _assert_close(output(updates[name]), after.detach().numpy(), what, tolerance)
    elif not name.endswith("num_batches_tracked") and before.shape == after.shape:
        assert torch.equal(before, after), f"{what}: it is no output"


def _extents(model: Any, leaves: Sequence[Any]) -> dict[str, int]:
    """The numbers of the symbols that are extents of inputs."""
    shapes = {name: x.shape for name, x in model.graph.tensors.items()}
    return {
        str(extent): number
        for name, place in model.places.items()
        for extent, number in zip(shapes[name], leaves[place].shape, strict=True)
        if isinstance(extent, Extent)
    }


class Replay(TorchDispatchMode):  # type: ignore[misc]
    """Gives torch the random numbers that a graph was fed, in the order of the inputs."""

    def __init__(self, drawn: Iterable[Any]) -> None:
        super().__init__()
        self.drawn = iter([*drawn])

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        replayed = _REPLAYED.get(function) or _REPLAYED.get(function.overloadpacket)
        if replayed is None:
            return function(*args, **kwargs)
        values = torch.from_numpy(next(self.drawn))
        return replayed(values, *args, **kwargs)


def _made(values: Any, *_: Any, **kwargs: Any) -> Any:
    return values.to(kwargs.get("dtype") or _double_if_real(values))


def _made_like(values: Any, x: Any, *_: Any, **kwargs: Any) -> Any:
    return values.to(kwargs.get("dtype") or x.dtype)


def _filled(values: Any, x: Any, *_: Any, **__: Any) -> Any:
    return x.copy_(values)


def _double_if_real(values: Any) -> Any:
    return torch.float64 if values.is_floating_point() else values.dtype


def _normal(values: Any, mean: Any, std: Any = 1.0, **_: Any) -> Any:
    return (mean + std * values.double()).detach()


def _categories(
    values: Any, p: Any, count: int, replacement: bool = False, **_: Any
) -> Any:
    """As torch does it, where it is without replacement."""
    if replacement and count > 1:
        return (p.unsqueeze(-2) / values).argmax(-1)
    return (p / values).topk(count).indices


def _leaky(values: Any, x: Any, noise: Any, *_: Any) -> Any:
    noise.copy_(torch.where(x <= 0, values.double(), 1.0))
    return x * noise


_ATEN = torch.ops.aten
_REPLAYED: dict[Any, Any] = {
    _ATEN.rand: _made,
    _ATEN.randn: _made,
    _ATEN.randint: _made,
    _ATEN.randperm: _made,
    _ATEN.normal.float_float: _made,
    _ATEN.rand_like: _made_like,
    _ATEN.randn_like: _made_like,
    _ATEN.randint_like: _made_like,
    _ATEN.uniform_: _filled,
    _ATEN.normal_: _filled,
    _ATEN.log_normal_: _filled,
    _ATEN.cauchy_: _filled,
    _ATEN.exponential_: _filled,
    _ATEN.geometric_: _filled,
    # What is dropped is scaled afterwards.
    _ATEN.bernoulli_.float: lambda values, x, *_: x.copy_(
        (values != 0).reshape(x.shape)
    ),
    _ATEN.bernoulli_.Tensor: lambda values, x, p, **_: x.copy_(values < p),
    _ATEN.bernoulli.default: lambda values, p, **_: (values < p).to(p.dtype),
    _ATEN.normal.Tensor_float: _normal,
    _ATEN.normal.float_Tensor: _normal,
    _ATEN.normal.Tensor_Tensor: _normal,
    _ATEN.multinomial: _categories,
    _ATEN.rrelu_with_noise: _leaky,
}


@contextmanager
def _double_precision(uses_mode: bool) -> Iterator[None]:
    """What is made inside of a module is of double precision, too."""
    torch.set_default_dtype(torch.float64)
    try:
        mode = double_precision() if uses_mode else nullcontext()
        with mode, patch.object(torch, "FloatTensor", torch.DoubleTensor):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def _output(model: Any, backward: Any, found: Any, name: str, fed: Any) -> Any:
    if name in found:
        return found[name]
    return nnef_grad.evaluate(model.graph, fed, _double(model.data))[name]


def _exact(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    made = x.detach().clone()
    if made.is_floating_point():
        made = made.double().requires_grad_()
    return made


def _writes_into_inputs(model: Any) -> bool:
    return any("writes into its input" in w.message for w in model.graph.warnings)


def _cloned(x: Any) -> Any:
    """What may be written into, though it has a gradient."""
    return x.clone() if isinstance(x, torch.Tensor) else x


def _double(data: Mapping[str, Any]) -> dict[str, Any]:
    return {label: np.asarray(array, np.float64) for label, array in data.items()}


def _assert_close(found: Any, wanted: Any, what: str, tolerance: float) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape, f"{what}: {found.shape}, not {wanted.shape}"
    if wanted.dtype.kind in "bi":
        assert np.array_equal(found, wanted), f"{what}: {found} is not {wanted}"
        return
    with np.errstate(invalid="ignore"):
        # Infinities and what is no number are where torch has them.
        is_same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        errors = np.where(is_same, 0.0, np.abs(found - wanted))
    finite = np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
    error = float(np.max(errors, initial=0.0)) / max(1.0, np.max(finite, initial=0.0))
    assert error <= tolerance, f"{what}: off by {error:.2e}: {found} is not {wanted}"
