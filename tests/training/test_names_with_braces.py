"""Names of any text, such as those that tract reads, are no templates."""

from __future__ import annotations

import nnef_grad
from nnef_grad import training

TEXT = """\
version 1.0;
extension tract_registry tract_core;

graph net( x ) -> ( i"{y}" )
{
    x = external(shape = [4, 3]);
    i"{w" = variable<scalar>(shape = [2, 3], label = 'w');
    i"{y}" = matmul(x, i"{w", transposeB = true);
}
"""


def test_steps_of_names_with_braces() -> None:
    step = training.training_step(
        nnef_grad.loads(TEXT),
        loss="mean_squared_error",
        optimizer="adam",
        target="tract",
    )
    assert "new_{w" in step.graph.output_names
    clipped = training.training_step(
        nnef_grad.loads(TEXT),
        loss="huber",
        optimizer="sgd",
        clip_norm=1.0,
        target="tract",
    )
    assert 'i"target_{y}"' in nnef_grad.dumps(clipped.graph)
