"""What is small is computed as exactly as what is large."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tract

import nnef_grad

SIGMOID = """\
version 1.0;
graph net( x ) -> ( y ) { x = external(shape = [6]); y = sigmoid(x); }
"""


def test_slopes_of_a_saturated_sigmoid_in_tract(tmp_path: Path) -> None:
    """tract's own sigmoid ends at 1e-9."""
    graph = nnef_grad.loads(SIGMOID)
    backward = nnef_grad.differentiate(graph, with_outputs=True)
    lowered = nnef_grad.lower(backward.graph, "tract")
    nnef_grad.save(lowered.graph, tmp_path / "backward", data=lowered.data)
    x = np.array([-80, -30, -15, -9, 2, 20], np.float32)
    dy = np.ones(6, np.float32)
    model = tract.nnef().load(str(tmp_path / "backward")).into_runnable()
    dx, y = (result.to_numpy() for result in model.run([x, dy]))
    exact = 1 / (1 + np.exp(-np.float64(x)))
    np.testing.assert_allclose(y, exact, rtol=1e-5)
    # 1 - y has the digits of 1.
    np.testing.assert_allclose(dx[:5], (exact * (1 - exact))[:5], rtol=1e-5)
