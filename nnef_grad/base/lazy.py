"""Names of a package that are imported when they are used: whoever needs few of them loads
little, and need not have what the others are made of.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def names_on_use(
    package: str, modules: Mapping[str, Sequence[str]]
) -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
        package: its name.
        modules: the names that come from each module, whose own name is that in nnef_grad.
    """
    origins = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(f"nnef_grad.{origins[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
