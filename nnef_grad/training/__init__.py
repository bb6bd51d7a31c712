"""Training steps: a model, a loss and an optimizer as one NNEF document.

step = nnef_grad.training_step(graph, loss="softmax_cross_entropy", optimizer="adam")
for loss in nnef_grad.training.run(step, batches, runtime="onnxruntime"): ...
"""

from nnef_grad.training.forms import Step
from nnef_grad.training.merge import merge
from nnef_grad.training.run import Training, draw_noise, run
from nnef_grad.training.saving import save_step
from nnef_grad.training.step import training_step

__all__ = [
    "Step",
    "Training",
    "draw_noise",
    "merge",
    "run",
    "save_step",
    "training_step",
]
