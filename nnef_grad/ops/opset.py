"""The operations that a graph is made of: their declarations and their shape functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nnef_grad.language.library import Library, extended, standard
from nnef_grad.language.syntax import Fragment
from nnef_grad.ops.registry import SHAPES, ShapeFunction


@dataclass(frozen=True)
class OpSet:
    """The operations that are known by name, and what computes the shapes of their
    results: those of the standard, unless others are given. An operation of the user's
    that has no shape function can be declared, and cannot be emitted.
    """

    declarations: Library = field(default_factory=standard)
    shapes: Mapping[str, ShapeFunction] = field(default_factory=lambda: SHAPES)

    def extended(self, declarations: Iterable[Fragment]) -> OpSet:
        """These operations and further ones, which go first."""
        return OpSet(extended(declarations, self.declarations), self.shapes)
