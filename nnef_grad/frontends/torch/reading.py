"""A program of PyTorch to a graph: each operation by the function that reads it."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import torch

from nnef_grad.base.errors import (
    ENDING,
    InternalError,
    NnefGradError,
    UnsupportedError,
    located,
)
from nnef_grad.emit.evaluation import NoValueError
from nnef_grad.frontends.reading import Later
from nnef_grad.frontends.torch import operations as _operations  # noqa: F401
from nnef_grad.frontends.torch.call import (
    HIGHER,
    Call,
    ProgramValues,
    dtype_name,
    function_of,
    value_of,
    without_elements,
)
from nnef_grad.frontends.torch.complexes import Complex, is_complex, of_parts, real
from nnef_grad.frontends.torch.derivatives import GRADIENT, TRANSPOSED, gradients
from nnef_grad.frontends.torch.internals import Operator, find_operator, pytree
from nnef_grad.frontends.torch.nodes import (
    AUTOCAST,
    BLOCK,
    OPERANDS,
    reachable,
    span_of,
)
from nnef_grad.frontends.torch.operations.complexes import with_parts
from nnef_grad.frontends.torch.operations.elementwise import is_bit
from nnef_grad.frontends.torch.operations.masks import part_of
from nnef_grad.frontends.torch.selections import OF_DATA, Unsized
from nnef_grad.frontends.values import is_known, is_open, shape_of
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Tensor
from nnef_grad.graph.learning import all_equal
from nnef_grad.graph.modules import Path, path_of
from nnef_grad.graph.quotients import maximum, minimum
from nnef_grad.language.identifiers import plain_name
from nnef_grad.ops.traits import FED

# What computes with extents, and the operation for numbers that tensors have.
ARITHMETIC = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.neg: "neg",
    operator.truediv: "div", operator.pow: "pow", operator.eq: "eq", operator.ne: "ne",
    operator.lt: "lt", operator.le: "le", operator.gt: "gt", operator.ge: "ge",
    operator.floordiv: "", operator.mod: "", operator.getitem: "", operator.and_: "and",
    operator.or_: "or", torch.sym_max: "max", torch.sym_min: "min", torch.sym_not: "not",
    torch.sym_float: "copy",
}  # fmt: skip
# Functions of numbers that may be open.
_EXTREMES = {torch.sym_max: maximum, torch.sym_min: minimum}


class ProgramReading(ProgramValues):
    """Reads the operations of a program."""

    def run(self, module: Any, values: Sequence[Any]) -> Any:
        """The results of a graph, from a value for each placeholder, or what makes it."""
        results: dict[Any, Any] = {}
        given = iter(values)
        # What only leads to checks, or to errors that the module has caught, is not read.
        needed = reachable([module.graph.output_node()], OPERANDS)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                results[node] = next(given)
            elif node.op == "get_attr":
                value = operator.attrgetter(node.target)(module)
                is_tensor = isinstance(value, torch.Tensor)
                results[node] = value_of(value) if is_tensor else value
            elif node.op == "output":
                self.emitter.module = None
                returned = self._arguments(results, node.args[0])
                for value in self.selections.unsized_in(returned):
                    raise UnsupportedError(OF_DATA, value.span)
                return returned
            elif node in needed:
                self.take(results, node)
        raise AssertionError("a graph without results")

    def settle(self, outputs: Sequence[Any]) -> None:
        """Checks what masks have taken, when all is read.

        Raises:
            UnsupportedError: rows meet, or are returned, of which nobody knows how many.
        """
        self._drop_unused(outputs)
        for nodes, selections in self.ways:
            found = [*selections.problems(nodes, self.emitter, outputs)]
            if found:
                raise UnsupportedError.collect(found)
            selections.finish(self.emitter, self.supply.fresh)

    def _drop_unused(self, outputs: Sequence[Any]) -> None:
        """Drops operations that no output depends on, such as those of ways for which others
        stand.
        """
        needed, kept = {*outputs}, []
        for operation in reversed(self.emitter.operations):
            if operation.name in FED or not needed.isdisjoint(operation.outputs):
                needed.update(operation.inputs)
                kept.append(operation)
        self.emitter.operations[:] = reversed(kept)

    def take(self, results: dict[Any, Any], node: Any) -> None:
        """Reads an operation; if that fails, its results have no values."""
        self.emitter.module = _module(node)
        try:
            result = results[node] = self._operation(results, node)
            self.selections.note(node, result)
        except NoValueError:
            pass
        except NnefGradError as error:
            place = span_of(node)
            self.problems += [p._replace(span=p.span or place) for p in error.problems]
        except ENDING:
            raise
        except Exception as error:
            # What torch has exported is valid.
            place = span_of(node)
            at = f"{node.target}" + (f" ({place})" if place else "")
            raise InternalError(at, error) from error

    def _operation(self, results: dict[Any, Any], node: Any) -> Any:
        target = node.target
        args, kwargs = (self._arguments(results, a) for a in (node.args, node.kwargs))
        call = Call(self, node, _hint(node), span_of(node))
        if any(isinstance(x, Tensor) for x in args):
            # Numbers that Python has read of tensors.
            if name := ARITHMETIC.get(target):
                return call(name, *args)
            is_one = isinstance(
                call.fake, (torch.SymInt, torch.SymFloat, torch.SymBool)
            )
            call.require(isinstance(target, Operator) or not is_one, OF_DATA)
        if target in _EXTREMES:
            return _EXTREMES[target](*args)
        if target in ARITHMETIC or getattr(target, "__module__", "") == "math":
            return target(*args)
        if target in (BLOCK, AUTOCAST):
            settings = 1 if target is BLOCK else 4
            return self.run(args[settings], args[settings + 1 :])
        is_tensor = isinstance(call.fake, torch.Tensor)
        if is_tensor and any(isinstance(n, int) and n == 0 for n in call.fake.shape):
            return without_elements(call.result_shape)
        if target in (GRADIENT, TRANSPOSED):
            return gradients(self, call, results)
        if str(target) in HIGHER:
            is_real = not is_complex((args, kwargs, call.fake))
            call.require(
                is_real, "branches and loops take no complex numbers: give their parts"
            )
            return HIGHER[str(target)](call, *args, **kwargs)
        result = _computed(call, self._arguments(results, tuple(node.all_input_nodes)))
        if result is not None:
            return result
        if is_complex((args, kwargs, call.fake)):
            with located(call.span):
                return _as_in_torch(call, with_parts(call, args, kwargs), call.fake)
        _refuse_wrapping(call, args)
        is_partly = bool(self.selections.unsized_in(args))
        if is_partly and (part := part_of(call, args)) is not None:
            return part
        function = function_of(target)
        if function is None:
            raise UnsupportedError(_unknown(target), call.span)
        with located(call.span):
            return _as_in_torch(call, call.run(function, args, kwargs), call.fake)

    def _arguments(self, results: Mapping[Any, Any], arguments: Any) -> Any:
        """Arguments with the values of nodes in their place."""

        return torch.fx.node.map_arg(arguments, partial(self.value, results))

    def value(self, results: Mapping[Any, Any], node: Any) -> Any:
        """The value of a node."""
        if node not in results:
            raise NoValueError
        result = results[node]
        return result() if isinstance(result, Later) else result


def _unknown(target: Any) -> str:
    """Advice about an operation that is not read."""
    if "while_loop" in str(target):
        advice = "loop a known number of times, and choose by torch.where"
        return f"how often '{target}' runs depends on values: {advice}"
    if not isinstance(target, Operator) or "_dual." in str(target):
        name = getattr(target, "__name__", str(target))
        advice = "write out what it computes, with an axis for the batch"
        return f"'{name}' of torch is not read: {advice}"
    if "_foreach_" in str(target):
        return f"there is no operation '{target}': call it for each tensor in the list"
    return f"there is no operation '{target}'"


def _module(node: Any) -> Path | None:
    """The path of the module that calls an operation, if torch says it."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return None
    return path_of(str(stack[-1][0]).removeprefix("L['self']"))


def _hint(node: Any) -> str:
    """The wished name of a result: that of a module of torch.nn, or else that of torch."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if stack:
        path, kind = stack[-1][:2]
        if path and "torch.nn.modules" in str(kind):
            return plain_name(str(path))
    return plain_name(str(node.name))


# ---- Operations on known values, which PyTorch itself computes ----


def _computed(call: Call, values: Sequence[Any]) -> Any:
    """The results of an operation whose arguments are all known; None for another one, for
    one that draws numbers or only reserves memory, and for one that gives no tensors.

    Args:
        values: those of the nodes among its arguments.
    """
    node = call.node
    fakes = call.fake if isinstance(call.fake, (list, tuple)) else [call.fake]
    if not (
        isinstance(node.target, Operator)
        and all(isinstance(fake, torch.Tensor) for fake in fakes)
        and is_known(values)
        and not is_open(values)
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        and "empty" not in node.target.__name__
    ):
        return None
    nodes = node.all_input_nodes
    tensors = dict(zip(nodes, map(_tensor, nodes, values), strict=True))
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), tensors.__getitem__)
    if "device" in kwargs:
        kwargs = {**kwargs, "device": "cpu"}
    closed = ([n for n in fake.shape if isinstance(n, int)] for fake in fakes)
    call.reading.spend(sum(map(prod, closed)))
    with torch.no_grad():
        results = node.target(*args, **kwargs)
    known = pytree.tree_map_only(torch.Tensor, value_of, results)
    return _of_open_shape(call, known, call.fake)


def _of_open_shape(call: Call, x: Any, fake: Any) -> Any:
    """A known result, or several: equal along open axes, which come from what has no elements.
    The number of an extent that depends on data is that of the result.
    """
    if isinstance(x, (list, tuple)):
        return [_of_open_shape(call, *pair) for pair in zip(x, fake, strict=True)]
    symbols = call.reading.symbols
    symbols.learn(fake.shape, shape_of(x))
    if not symbols.follow_from_inputs(fake.shape):
        return x
    shape = symbols.shape(fake)
    return call.broadcast(x, shape) if has_symbols(shape) and 0 not in shape else x


def _tensor(node: Any, value: Any) -> Any:
    """A known value with the data type that it has in PyTorch."""
    fake = node.meta.get("val")
    is_tensor = isinstance(fake, torch.Tensor)
    return torch.as_tensor(value, dtype=fake.dtype) if is_tensor else value


# ---- Checks ----


_NARROW = (torch.uint8, torch.int8, torch.int16)
_GROWING = {
    "add", "sub", "rsub", "mul", "neg", "bitwise_not", "pow", "square", "sum", "cumsum",
    "bitwise_left_shift", "__lshift__", "addcmul", "abs", "prod", "cumprod", "linear",
    "matmul", "mm", "bmm", "mv", "dot", "vdot", "einsum", "addmm", "addmv", "baddbmm",
    "addbmm", "scatter_add",
}  # fmt: skip
_CASTS = {"to", "_to_copy", "type_as"}
_OF_MASKS = {find_operator("aten._to_copy.default"), find_operator("aten.to.dtype")}


def _refuse_wrapping(call: Call, args: Sequence[Any]) -> None:
    """Refuses what may wrap around: a graph has integers of 64 bits alone."""
    fake, target = call.fake, call.node.target
    is_narrow = isinstance(fake, torch.Tensor) and fake.dtype in _NARROW
    if not is_narrow or not isinstance(target, Operator):
        return
    # The complement of a byte is one.
    is_complement = (call.packet, *call.node.args[:1]) == ("sub", 255)
    is_byte = is_complement and fake.dtype is torch.uint8
    is_growing = call.packet in _GROWING and not (is_byte or _is_painted(call, fake))
    # A product of truth values is one.
    is_growing &= call.packet != "mul" or not all(is_bit(call, x) for x in args[:2])
    if call.packet in _CASTS:
        source = call.node.args[0].meta["val"].dtype
        # What fractions become that do not fit is not defined in PyTorch either.
        is_whole = not (source.is_floating_point or source.is_complex)
        is_whole &= source is not torch.bool
        own, new = (
            torch.iinfo(t if is_whole else fake.dtype) for t in (source, fake.dtype)
        )
        is_growing = own.min < new.min or own.max > new.max
    if is_growing:
        call.refuse(f"{fake.dtype} wraps around: compute with torch.long")


def _is_painted(call: Call, fake: Any) -> bool:
    """Whether a mask is multiplied with a number, as images are made of masks."""
    arguments: list[Any] = [*call.node.args, None, None]
    mask, number = arguments[:2]
    if call.packet != "mul" or getattr(mask, "target", None) not in _OF_MASKS:
        return False
    is_mask = mask.args[0].meta["val"].dtype is torch.bool
    bounds = torch.iinfo(fake.dtype)
    fits = isinstance(number, int) and bounds.min <= number <= bounds.max
    return is_mask and fits


def _as_in_torch(call: Call, x: Any, fake: Any) -> Any:
    """A result, or several, with the data type that it has in PyTorch. Raises an error if it
    has another shape: what is read would be something else.
    """
    if isinstance(x, (list, tuple)) and isinstance(fake, (list, tuple)):
        return [_as_in_torch(call, *pair) for pair in zip(x, fake, strict=False)]
    if isinstance(x, Complex):
        parts = (
            None if p is None else _as_in_torch(call, p, real(fake)) for p in x.parts
        )
        return of_parts([*parts])
    if not isinstance(fake, torch.Tensor) or x is None or isinstance(x, Unsized):
        return x
    call.reading.symbols.learn(fake.shape, shape_of(x))
    if 0 in shape_of(x):
        return x
    wanted = call.reading.symbols.shape(fake)
    # What the program has found equal is learned.
    if not all_equal(wanted, shape_of(x)):
        shapes = f"the shape is {list(shape_of(x))} here, and {list(wanted)} there"
        call.refuse(f"{shapes}: please report this")
    return call.typed(x, dtype_name(fake.dtype))
