"""Arrays, and arrays by name or label. numpy is imported by those who compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"
Data: TypeAlias = "Mapping[str, Array]"
