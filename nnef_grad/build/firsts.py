"""The first operation of each that computes the same, in one graph."""

from __future__ import annotations

from nnef_grad.build.arguments import Call, beginning, operation_key, settings_key
from nnef_grad.graph.ir import Operation


class Firsts:
    """Operations, to be found by what they compute. Most begin like no other: their keys
    are never asked for.
    """

    def __init__(self) -> None:
        # The only operation that begins so; None if there are several.
        self._begun: dict[object, Operation | None] = {}
        self._by_key: dict[object, Operation] = {}

    def enter(self, operation: Operation) -> Operation:
        """The first operation that computes the same as one, which may be that one."""
        begins = beginning(operation)
        begun = self._begun.setdefault(begins, operation)
        if begun is operation:
            return operation
        self._separate(begins, begun)
        return self._keyed(operation)

    def find(self, call: Call, settings: str) -> Operation | None:
        """The first operation that computes what a call does, if there is one.

        Args:
            call: the call.
            settings: its `settings_key`.
        """
        begins = beginning(call)
        if begins not in self._begun:
            return None
        self._separate(begins, self._begun[begins])
        return self._by_key.get(operation_key(call, settings))

    def _separate(self, begins: object, begun: Operation | None) -> None:
        """Keeps an operation by its key, as another one begins like it."""
        if begun is not None:
            self._keyed(begun)
            self._begun[begins] = None

    def _keyed(self, operation: Operation) -> Operation:
        key = operation_key(operation, settings_key(operation))
        return self._by_key.setdefault(key, operation)
