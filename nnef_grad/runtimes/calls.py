"""The arguments of a function of named inputs, as Python passes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nnef_grad.base.errors import UsageError, refuse_unknown


def by_name(
    names: Collection[str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    optional: Collection[str] = (),
) -> dict[str, Any]:
    """The values that are given, in the order of the inputs.

    Raises:
        UsageError: there are too many, or an input is unknown, missing or given twice.
    """
    if len(args) > len(names):
        message = f"the model has {len(names)} inputs, and {len(args)} are given"
        raise UsageError(message)
    given = dict(zip(names, args, strict=False))
    refuse_unknown(kwargs, names, "the model has no input")
    for name in filter(given.__contains__, kwargs):
        raise UsageError(f"input '{name}' is given twice")
    given |= kwargs
    missing = [n for n in names if n not in given and n not in optional]
    if missing:
        listed = ", ".join(f"'{name}'" for name in missing)
        raise UsageError(f"the inputs {listed} are missing")
    return {name: given[name] for name in names if name in given}
