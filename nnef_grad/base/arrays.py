"""Arrays, and arrays by name or label: for what needs numpy anyway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
Data = Mapping[str, Array]
