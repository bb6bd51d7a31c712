"""Names of a package that are imported when they are used: whoever needs few of them loads
little, and need not have what the others are made of. They stand in the stub of the package,
which type checkers read in its place.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

_IMPORT = re.compile(r"^from (nnef_grad\.\S+) import (\w+) as \2$", re.MULTILINE)


def names_of_stub(package: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """`__all__` and `__getattr__` of a package, from the `.pyi` beside its `file`."""
    with open(f"{file}i", encoding="utf-8") as stub:  # noqa: PTH123
        origins = {name: module for module, name in _IMPORT.findall(stub.read())}

    def get(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(origins[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(origins), get
