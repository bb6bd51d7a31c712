"""A program of PyTorch to a graph: each operation by the function that reads it."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nnef_grad.build.emitter import Emitter
from nnef_grad.build.evaluation import NoValueError
from nnef_grad.build.simplify import simplify
from nnef_grad.errors import NnefGradError, Problem, UnsupportedError, located
from nnef_grad.frontends.library import Joined
from nnef_grad.frontends.reading import Later, Reading, valid_name
from nnef_grad.frontends.torch import operations as _operations  # noqa: F401
from nnef_grad.frontends.torch.call import (
    HIGHER,
    Call,
    dtype_name,
    function_of,
    name_of,
)
from nnef_grad.frontends.torch.known import array_of, computed, value_of
from nnef_grad.frontends.torch.marks import AUTOCAST, STOP
from nnef_grad.frontends.torch.operations.integers import refuse_wrapping
from nnef_grad.frontends.torch.places import span_of
from nnef_grad.frontends.torch.symbols import Symbols
from nnef_grad.frontends.values import (
    Array,
    converted,
    is_known,
    is_open,
    shape_of,
    simple,
)
from nnef_grad.graph.ir import Tensor
from nnef_grad.graph.names import NameSupply
from nnef_grad.language.library import FragmentFile, extras, standard
from nnef_grad.ops.opset import OpSet
from nnef_grad.source import Span

# Larger constants would make the text unreadable: they are variables.
MOST = 10_000

# What computes with extents, and the operation for numbers that tensors have.
_ARITHMETIC = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.neg: "neg",
    operator.truediv: "div", operator.pow: "pow", operator.eq: "eq", operator.ne: "ne",
    operator.lt: "lt", operator.le: "le", operator.gt: "gt", operator.ge: "ge",
    operator.floordiv: "", operator.mod: "", operator.getitem: "", operator.and_: "and",
    operator.or_: "or",
}  # fmt: skip
_CHECKS = (
    "aten._assert", "aten.sym_constrain", "aten._functional_assert", "aten._functional_sym",
)  # fmt: skip
_BLOCK = torch.ops.higher_order.wrap_with_set_grad_enabled


class ProgramReading(Reading):
    """Reads the operations of a program.

    Attributes:
        symbols: the extents that PyTorch leaves open.
        data: the data of variables, by label.
        variables: the variable of each parameter and buffer, by its name in PyTorch.
        drawn: for each input that stands for random numbers, what it must be drawn from.
        problems: what cannot be read.
        constants: what the program has as constants.
    """

    def __init__(self, symbols: Symbols) -> None:
        super().__init__(Emitter(OpSet(), simplify=simplify), _library())
        self.symbols = symbols
        self.data: dict[str, Array] = {}
        self.variables: dict[str, Tensor] = {}
        self.drawn: dict[Tensor, Any] = {}
        self.problems: list[Problem] = []
        self.constants: tuple[Any, ...] = ()
        self.supply = NameSupply()
        self._labels = NameSupply()
        self._casts: dict[tuple[Emitter, Tensor, str], Tensor] = {}

    # ---- Programs ----

    def run(self, module: Any, values: Sequence[Any]) -> Any:
        """What a graph of PyTorch returns.

        Args:
            module: the graph, with the blocks that it has.
            values: a value, or a function that makes it, for each placeholder.
        """
        known: dict[Any, Any] = {}
        given = iter(values)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(given)
            elif node.op == "get_attr":
                known[node] = self._attribute(module, node.target)
            elif node.op == "output":
                return self._arguments(known, node.args[0])
            elif not _has_failed(node):
                self._take(known, node)
        raise AssertionError("a graph without results")

    def _attribute(self, module: Any, name: str) -> Any:
        found = operator.attrgetter(name)(module)
        return value_of(found) if isinstance(found, torch.Tensor) else found

    def _take(self, known: dict[Any, Any], node: Any) -> None:
        """Reads an operation; if that fails, its results have no values."""
        try:
            known[node] = self._operation(known, node)
        except NoValueError:
            pass
        except NnefGradError as error:
            place = span_of(node)
            self.problems += [p._replace(span=p.span or place) for p in error.problems]
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            message = f"{name_of(node.target)}: {type(error).__name__}: {error}"
            self.problems.append(Problem(message, span_of(node)))

    def _operation(self, known: dict[Any, Any], node: Any) -> Any:
        target = node.target
        if str(target).startswith(_CHECKS):
            return None
        args, kwargs = (self._arguments(known, a) for a in (node.args, node.kwargs))
        has_tensors = any(isinstance(x, Tensor) for x in args)
        if has_tensors and _ARITHMETIC.get(target):
            # Numbers that Python has read of tensors.
            return Call(self, node, _hint(node), span_of(node))(
                _ARITHMETIC[target], *args
            )
        if target in _ARITHMETIC or getattr(target, "__module__", "") == "math":
            return target(*args)
        if target is _BLOCK:
            return self.run(args[1], args[2:])
        if target is AUTOCAST:
            return self.run(args[4], args[5:])
        if target is STOP:
            return self.stopped(args[0], span_of(node))
        call = Call(self, node, _hint(node), span_of(node))
        if _is_empty(call.fake):
            return np.zeros(call.result_shape)
        if str(target) in HIGHER:
            return HIGHER[str(target)](call, *args, **kwargs)
        values = {n: self._arguments(known, n) for n in node.all_input_nodes}
        result = computed(call, values)
        if result is not None:
            return result
        refuse_wrapping(call)
        function = function_of(target)
        if function is None:
            _refuse_complex(call.fake)
            raise UnsupportedError(
                f"there is no operation '{name_of(target)}'", call.span
            )
        with located(call.span):
            result = self._typed(call, call.run(function, args, kwargs))
        _check(call, result)
        return result

    def _arguments(self, known: Mapping[Any, Any], arguments: Any) -> Any:
        """Arguments with the values of nodes in their place."""

        def value(node: Any) -> Any:
            if node not in known:
                raise NoValueError
            found = known[node]
            return found() if isinstance(found, Later) else found

        return torch.fx.node.map_arg(arguments, value)

    def _typed(self, call: Call, result: Any) -> Any:
        """A result with the data types that it has in PyTorch."""
        fakes = call.fake
        if isinstance(result, (list, tuple)) and isinstance(fakes, (list, tuple)):
            return [
                self._as_in(call, x, fake)
                for x, fake in zip(result, fakes, strict=False)
            ]
        return self._as_in(call, result, fakes)

    def _as_in(self, call: Call, x: Any, fake: Any) -> Any:
        if not isinstance(fake, torch.Tensor) or x is None:
            return x
        return call.typed(x, dtype_name(fake.dtype))

    # ---- Values ----

    def converted(self, x: Any, dtype: str, hint: str, span: Span) -> Any:
        """A value as one of a data type; scalars are truncated to integers."""
        if is_known(x) and is_open(x) and dtype == "scalar":
            return self.materialize(x, dtype, hint, span)
        if is_known(x):
            return simple(converted(x, dtype))
        if (x.dtype, dtype) == ("scalar", "integer"):
            return self.library("truncate", [x], {}, hint, span)
        return self.cast(x, dtype, hint, span)

    def cast(self, x: Tensor, dtype: str, hint: str, span: Span) -> Any:
        """As in `Reading`, but once; whole numbers that become integers, and scalars again,
        are what they were.
        """
        key = (self.emitter, x, dtype)
        if key not in self._casts:
            made = self._casts[key] = super().cast(x, dtype, hint, span)
            if dtype == "integer" and x.dtype != dtype:
                number = self.cast(x, "scalar", hint, span)
                self._casts[self.emitter, made, "scalar"] = number
        return self._casts[key]

    def stopped(self, x: Any, span: Span | None) -> Any:
        """A value that no gradient flows through."""
        if not isinstance(x, Tensor) or x.dtype != "scalar":
            return x
        return self.emitter.stop(x)

    def input(self, name: str, dtype: str, shape: Sequence[Any]) -> Tensor:
        """A new input of the graph."""
        return self.emitter.emit_named(
            self.supply.fresh(valid_name(name)), "external", dtype, shape=list(shape)
        )

    def variable(self, name: str, tensor: torch.Tensor) -> Any:
        """The variable of a parameter or a buffer; one without axes gets one, which is
        removed again: not all runtimes have variables without.
        """
        array = array_of(tensor)
        shape = array.shape or (1,)
        label = self._label(name)
        made = self.emitter.emit_named(
            self.supply.fresh(valid_name(name)),
            "variable",
            "scalar",
            shape=list(shape),
            label=label,
        )
        self.data[label] = array.reshape(shape)
        self.variables[name] = made
        return made if array.ndim else self.emitter("squeeze", made, axes=[0])

    def materialize(self, value: Any, dtype: str, hint: str, span: Span) -> Any:
        """As in `Reading`; a large table becomes a variable."""
        is_large = isinstance(value, np.ndarray) and value.size > MOST
        if not is_large or dtype != "scalar" or value.dtype.kind == "O":
            return super().materialize(value, dtype, hint, span)
        array = converted(value, dtype)
        if (array == array.flat[0]).all():
            return super().materialize(value, dtype, hint, span)
        return self.variable(
            f"tables.{hint}", torch.from_numpy(array.astype(np.float32))
        )

    def _label(self, name: str) -> str:
        """A valid label: a path inside the folder of a model. Labels that differ in case
        only would be the same file.
        """
        wish = re.sub(r"[^\w./-]+", "_", name, flags=re.ASCII)
        suffix = self._labels.fresh(wish.lower())[len(wish) :]
        return f"{wish}{suffix}"


@cache
def _library() -> Joined:
    """What the functions may expand: the fragments of torch.nnef, and those shared."""
    return Joined(
        FragmentFile(Path(__file__).parent / "torch.nnef"), extras(), standard()
    )


def _hint(node: Any) -> str:
    """What the result of an operation should be called: the module of torch.nn that makes
    it, or else as torch calls it.
    """
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if stack:
        path, kind = stack[-1][:2]
        is_layer = str(kind).startswith(
            "torch.nn.modules"
        ) or "torch.nn.modules" in str(kind)
        if path and is_layer:
            return valid_name(str(path))
    return valid_name(str(node.name))


# ---- Checks ----


def _is_empty(fake: Any) -> bool:
    """Whether a result has no elements, so that it is known."""
    return isinstance(fake, torch.Tensor) and any(
        isinstance(extent, int) and extent == 0 for extent in fake.shape
    )


def _has_failed(node: Any) -> bool:
    """Whether the module has caught the error of an operation, which has no result."""
    is_operation = isinstance(node.target, torch._ops.OpOverload)
    return is_operation and not node.users and node.meta.get("val") is None


def _refuse_complex(fake: Any) -> None:
    if isinstance(fake, torch.Tensor):
        dtype_name(fake.dtype)


def _check(call: Call, result: Any) -> None:
    """Raises an error if a result has another shape than in PyTorch: what is read would be
    something else.
    """
    fakes = call.fake if isinstance(call.fake, (list, tuple)) else [call.fake]
    values = result if isinstance(result, (list, tuple)) else [result]
    for fake, x in zip(fakes, values, strict=False):
        if isinstance(fake, torch.Tensor) and x is not None:
            call.reading.symbols.learn(fake.shape, shape_of(x))
            wanted = tuple(map(call.reading.symbols.extent, fake.shape))
            if wanted != tuple(shape_of(x)):
                message = (
                    f"the shape is {list(shape_of(x))} here, and {list(wanted)} there"
                )
                call.refuse(f"{message}: please report this")


def names_of(values: Iterable[Any]) -> list[str]:
    """The words of a path, such as the keys and indices that lead to a result."""
    return [
        str(getattr(v, "key", getattr(v, "idx", getattr(v, "name", v)))) for v in values
    ]
