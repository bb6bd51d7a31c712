"""The range of each tensor: bounds that its elements keep, found operation by operation.

That tells which slopes are finite wherever the operands are: 1 / (1 + x * x) is, 1 / x
and exp(x) are not. Inputs, variables and what is computed from them by sums and products
are taken to be finite; that a product of large numbers may overflow is not considered. How each
operation changes bounds stands with it (ops/ranges.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from nnef_grad.graph.ir import Operand, Operation, Tensor, tensors
from nnef_grad.language.library import STDLIB
from nnef_grad.ops.elementwise import larger, squared
from nnef_grad.ops.ranges import FINITE, INF, POSITIVE, RANGES, UNKNOWN, Range, union


class Ranges:
    """The ranges of the tensors of a growing list of operations, found when asked."""

    def __init__(self, made_by: Mapping[Tensor, Operation]) -> None:
        self._ranges: dict[Tensor, Range] = {}
        self._least: dict[Tensor, float] = {}
        self._made_by = made_by

    def of(self, operand: Operand) -> Range:
        """The range of a tensor or a literal."""
        if isinstance(operand, Tensor):
            if operand not in self._ranges:
                self._find(operand)
            return self._ranges[operand]
        if isinstance(operand, tuple):
            return union(*map(self.of, operand)) if operand else FINITE
        if isinstance(operand, (bool, int, float)):
            return _in_single_precision(Range(float(operand), float(operand)))
        return FINITE

    def where(self, condition: Tensor, operand: Operand) -> Range:
        """The range of the elements of a tensor where a condition holds."""
        whole, test = self.of(operand), self._made_by.get(condition)
        if test is None or test.name != "gt" or test.operands[0] != operand:
            return whole
        bound = self.of(test.operands[1])
        if not whole.is_finite or not bound.is_finite:
            return UNKNOWN
        return larger(whole, Range(bound.lower + POSITIVE))

    def assume(self, operation: Operation) -> None:
        """Assumes what an operation says of its operands: variances are not negative."""
        if operation.name in _LEAST:
            index, least = _LEAST[operation.name]
            operand = operation.operands[index]
            if isinstance(operand, Tensor):
                self._least[operand] = least
                self._ranges.pop(operand, None)

    def assume_finite(self, tensor: Tensor) -> None:
        """Assumes of a tensor that all of it is finite that counts."""
        self._ranges[tensor] = FINITE

    def _find(self, tensor: Tensor) -> None:
        """Finds the range of a tensor, after those of what it is computed from."""
        # That may be a long chain.
        pending = [tensor]
        while pending:
            producer = self._made_by.get(pending[-1])
            inputs = () if producer is None else producer.inputs
            missing = [t for t in inputs if t not in self._ranges]
            if missing:
                pending += missing
                continue
            last = pending.pop()
            results = (last,) if producer is None else producer.results
            ranges = FINITE if producer is None else self._of_results(producer)
            for index, result in enumerate(results):
                own = ranges if isinstance(ranges, Range) else ranges[index]
                for part in tensors((result,)):
                    least = self._least.get(part, -INF)
                    bounds = _in_single_precision(larger(own, Range(least, least)))
                    is_unknown = part.dtype == "scalar" and not own.is_finite
                    self._ranges[part] = UNKNOWN if is_unknown else bounds

    def _of_results(self, operation: Operation) -> Range | tuple[Range, ...]:
        name, operands = operation.name, operation.operands
        ranges = [*map(self.of, operands)]
        rule = RANGES.get(name)
        is_known = rule is not None or name in STDLIB
        if not is_known or not all(r.is_finite for r in ranges):
            return UNKNOWN
        if name == "mul" and operands[0] == operands[1]:
            return squared(ranges[0])
        if name == "sum_reduce" and self._has_a_one(operation):
            return Range(1.0, INF)
        if name == "sub" and self._extremum(operation, "max_reduce"):
            return Range(-INF, 0.0)
        return FINITE if rule is None else rule(*ranges, **operation.attributes)

    def _has_a_one(self, total: Operation) -> bool:
        """Whether a sum adds a 1, and nothing that is negative: the number of the
        elements that are an extremum along its axes, or the powers of the distances
        from a maximum.
        """
        hits = self._producer(total, 0, "select")
        if hits is not None and hits.operands[1:] == (1.0, 0.0):
            equal = self._producer(hits, 0, "eq")
            extremum = self._extremum(equal, "max_reduce", "min_reduce")
        else:
            distance = self._producer(self._producer(total, 0, "exp"), 0, "sub")
            extremum = self._extremum(distance, "max_reduce")
        if extremum is None or total.attributes["normalize"]:
            return False
        return {*total.attributes["axes"]}.issuperset(extremum.attributes["axes"])

    def _extremum(self, operation: Operation | None, *names: str) -> Operation | None:
        """The second operand's producer, if it is an extremum of the first operand."""
        reduction = self._producer(operation, 1, *names)
        if operation is None or reduction is None:
            return None
        return reduction if reduction.operands == operation.operands[:1] else None

    def _producer(
        self, operation: Operation | None, operand: int, *names: str
    ) -> Operation | None:
        """The producer of an operand, if it is one of the named operations."""
        x = None if operation is None else operation.operands[operand]
        producer = self._made_by.get(x) if isinstance(x, Tensor) else None
        return producer if producer is not None and producer.name in names else None


# Assumptions about operands: the position of the operand, and its least value.
_LEAST: dict[str, tuple[int, float]] = {
    "batch_normalization": (2, 0.0),
    "zero_point_linear_quantize": (2, POSITIVE),
}


def _in_single_precision(x: Range) -> Range:
    """A bound that may be rounded to zero is zero."""
    lower = 0.0 if 0.0 < x.lower < POSITIVE else x.lower
    upper = 0.0 if -POSITIVE < x.upper < 0.0 else x.upper
    return Range(lower, upper, x.is_finite)
