"""The first operation of each that computes the same, in one graph."""

from __future__ import annotations

from nnef_grad.emit.arguments import Call, beginning, operation_key, settings_key
from nnef_grad.graph.ir import Operation


class Firsts:
    """Operations, to be found by what they compute. Most begin like none that is looked
    for: their keys are never asked for.
    """

    def __init__(self) -> None:
        # By their beginnings, those that have no key yet.
        self._begun: dict[object, list[Operation]] = {}
        self._by_key: dict[object, Operation] = {}

    def add(self, operation: Operation) -> None:
        """Adds an operation, which may compute the same as another one."""
        self._begun.setdefault(beginning(operation), []).append(operation)

    def find(self, call: Call, settings: str) -> Operation | None:
        """The first operation that computes what a call does, if there is one.

        Args:
            call: the call.
            settings: its `settings_key`.
        """
        if not self._enter(call):
            return None
        return self._by_key.get(operation_key(call, settings))

    def first(self, operation: Operation) -> Operation:
        """The first operation that computes the same as one, which is added."""
        if self._enter(operation):
            return self._keyed(operation)
        self.add(operation)
        return operation

    def _enter(self, call: Call | Operation) -> bool:
        """Gives the operations that begin like a call their keys; False if there are
        none.
        """
        begun = self._begun.get(beginning(call))
        if begun is None:
            return False
        for operation in begun:
            self._keyed(operation)
        begun.clear()
        return True

    def _keyed(self, operation: Operation) -> Operation:
        key = operation_key(operation, settings_key(operation))
        return self._by_key.setdefault(key, operation)
