"""Arrays that a caller has in another order than that of their elements."""

from __future__ import annotations

import numpy as np
import pytest
from support.runtimes.harness import needs

import nnef_grad
from nnef_grad.runtimes import RUNTIMES, find_runtime

TEXT = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [3, 4]);
    y = pad(x, padding = [(0, 1), (0, 0)]);
}
"""


@pytest.mark.parametrize("name", RUNTIMES)
def test_columns_first(name: str) -> None:
    if name not in ("numpy", "fastest"):
        needs({"onnxruntime": "onnx"}.get(name, name))
    run = find_runtime(name).compile(nnef_grad.loads(TEXT))
    x = np.arange(12.0, dtype=np.float32).reshape(4, 3).T
    (found,) = run([x])
    np.testing.assert_array_equal(found, np.pad(x, [(0, 1), (0, 0)]))
