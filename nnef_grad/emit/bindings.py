"""Calls from Python that are checked once: one like an earlier one, in all but its tensors
and numbers, is right too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nnef_grad.base.memo import Memo
from nnef_grad.emit.arguments import Call, bind_call, freeze, settings_key
from nnef_grad.graph.ir import Operand, Tensor
from nnef_grad.language.syntax import Fragment


class Binding(NamedTuple):
    """The common part of calls that are alike.

    Attributes:
        definition: the declaration that they were checked against.
        defaults: of the operands that were left out.
        attributes: all attributes.
        dtype: what `?` stands for.
        settings: the `settings_key`.
    """

    definition: Fragment
    defaults: tuple[Operand, ...]
    attributes: Mapping[str, Any]
    dtype: str | None
    settings: str


# Checked calls, by all that a check looks at besides the declaration.
_checked: Memo[object, Binding] = Memo(10_000)


def bind_alike(
    fragment: Fragment,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    dtype: str | None,
) -> tuple[Call, str]:
    """The call of an operation from Python, and its `settings_key`: see `bind_call`."""
    given = freeze(operands)
    # Their text distinguishes values that Python has for equal.
    named = repr([(name, freeze(value)) for name, value in attributes.items()])
    key = (fragment.name, dtype, named, *map(_type, given))
    binding = _checked.get(key)
    if binding is None or binding.definition is not fragment:
        binding = _bound(fragment, operands, attributes, dtype)
        _checked.keep(key, binding)
    whole = given + binding.defaults
    return Call(fragment, whole, binding.attributes, binding.dtype), binding.settings


def _bound(
    fragment: Fragment,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    dtype: str | None,
) -> Binding:
    call = bind_call(fragment, operands, attributes, dtype)
    defaults = call.operands[len(operands) :]
    return Binding(fragment, defaults, call.attributes, call.dtype, settings_key(call))


def _type(operand: Operand) -> object:
    """The data type of a tensor, the Python type of a literal."""
    if type(operand) is Tensor:
        return operand.dtype
    return tuple(map(_type, operand)) if type(operand) is tuple else type(operand)
