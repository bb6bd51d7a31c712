"""The functions that expand operations of tract's dialect, by family."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "attention",
    "inputs",
    "loops",
    "products",
    "reductions",
    "resizing",
    "selection",
    "shapes",
    "windows",
)


def load() -> None:
    """Enters the functions of all families."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
