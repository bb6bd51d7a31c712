"""What the standard library declares."""

from __future__ import annotations

import re

from nnef_grad.language.library import STDLIB


def scalar_operands(name: str) -> list[str]:
    operands = STDLIB[name].operands
    return [p.name for p in operands if re.search(r"<(scalar|\?|)>", str(p.type))]
