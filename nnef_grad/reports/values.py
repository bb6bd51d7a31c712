"""The values of gradients, as far as a report shows them: how they compare with central
differences, their norms, and which of them vanish or explode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any

from nnef_grad.autodiff.backward import Backward
from nnef_grad.base.errors import UsageError

# They need numpy, which a report without values does without.
if TYPE_CHECKING:
    import numpy.typing as npt

    from nnef_grad.interpreter.gradcheck import Checked
    from nnef_grad.interpreter.spread import Spread

# A gradient vanishes or explodes if its elements are smaller or larger, by this factor,
# than those of the gradient that is computed first, which is next to the outputs.
FACTOR = 1e4


def values_shown(
    backward: Backward,
    checked: Checked | None,
    values: Mapping[str, npt.ArrayLike | Spread] | None,
) -> dict[str, dict[str, Any]]:
    """The numbers shown of each gradient of a backward graph, by its name: from its
    comparison with central differences, or from gradients, or their spreads, by name.
    """
    compared = {g.gradient: g for g in checked.gradients} if checked else {}
    spreads = {name: gradient.spread for name, gradient in compared.items()}
    if values is not None:
        gradients = {*backward.gradients.values()}
        shown = {name: value for name, value in values.items() if name in gradients}
        spreads |= {name: _spread(name, value) for name, value in shown.items()}
    reference = _reference(backward, spreads)
    return {
        name: {
            **asdict(spread),
            "norm": json_number(spread.norm),
            "mean": json_number(spread.mean),
            "mark": _mark(spread.mean, reference),
            "verdict": compared[name].verdict if name in compared else None,
            "error": json_number(compared[name].error) if name in compared else None,
        }
        for name, spread in spreads.items()
    }


def _spread(name: str, value: npt.ArrayLike | Spread) -> Spread:
    from nnef_grad.interpreter.spread import Spread, spread_of

    try:
        return value if isinstance(value, Spread) else spread_of(value)
    except ValueError as error:
        message = f"the values of '{name}' are not an array of numbers: {error}"
        raise UsageError(message) from None


def _reference(backward: Backward, spreads: Mapping[str, Spread]) -> float:
    """The mean of the gradient that is computed first, of those that are not zero."""
    names = backward.graph.names
    results = (names[t] for op in backward.graph.operations for t in op.outputs)
    means = (spreads[name].mean for name in results if name in spreads)
    return next((mean for mean in means if mean > 0.0 and isfinite(mean)), 0.0)


def json_number(number: float) -> float | str:
    """A number for JSON, which has no infinities."""
    return number if isfinite(number) else str(number)


def _mark(mean: float, reference: float) -> str:
    """A word for a gradient that stands out; empty for others."""
    if not isfinite(mean):
        return "not finite"
    if mean == 0.0:
        return "zero"
    if mean * FACTOR < reference:
        return "vanishing"
    return "exploding" if mean > reference * FACTOR else ""
