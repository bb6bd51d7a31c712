"""A seed and a number to a training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from support import reference
from support.random_graphs.generate import make_graph
from support.random_graphs.graphs import RandomGraph, Statement

from .losses import Loss, draw_loss, written
from .optimizers import Make, draw_optimizer

COUNT = 3
RATE = 1e-3
# How many graphs are tried for one that has an output to be trained.
ATTEMPTS = 20


@dataclass(frozen=True)
class RandomStep:
    """A model, and how it is trained.

    Attributes:
        name: the seed and the number that it was made of.
        graph: the model.
        losses: the loss of each of some outputs.
        optimizer: the name of the optimizer, its settings, and torch's.
        options: what else `nnef_grad.training_step` is called with.
        feeds: the inputs and the targets of each batch.
    """

    name: str
    graph: RandomGraph
    losses: Mapping[str, Loss]
    optimizer: tuple[str, Mapping[str, Any], Make]
    options: Mapping[str, Any]
    feeds: Sequence[Mapping[str, Tensor]]

    @property
    def recipe(self) -> str:
        """The optimizer as it is written."""
        name, settings, _ = self.optimizer
        return written(name, settings)

    @property
    def text(self) -> str:
        """All of it, for a person."""
        losses = {name: loss.recipe for name, loss in self.losses.items()}
        return f"{self.name}: {losses} {self.recipe} {self.options}\n{self.graph.text}"


def make_step(seed: int, number: int) -> RandomStep:
    """The step that a seed and a number stand for."""
    draw = Random(f"step {seed}:{number}")
    generator = torch.Generator().manual_seed(draw.getrandbits(60))
    for _ in range(ATTEMPTS):
        graph = make_graph(draw.getrandbits(30), number)
        tensors = reference.evaluate(graph.text, graph.feeds, graph.variables)
        usable = [
            name
            for name in graph.outputs
            if name in graph.moving and tensors[name].abs().max() < 50.0
        ]
        if usable:
            break
    outputs = draw.sample(usable, min(len(usable), draw.choice([1, 1, 2])))
    losses: dict[str, Loss] = {}
    for index, name in enumerate(outputs):
        graph, output = _with_head(draw, graph, name, tensors[name], index, generator)
        losses_of = draw_loss(draw, tensors[name])
        if losses_of.activation:
            graph, output = _followed(graph, output, losses_of.activation)
            if draw.random() < 0.5:
                # Where it is not seen that the loss has a form without it.
                graph, output = _followed(graph, output, "copy")
        losses[output] = losses_of
    options = _options(draw, graph)
    count = COUNT * options.get("accumulate", 1)
    targets = {f"target_{name}": loss for name, loss in losses.items()}
    shapes = dict(zip(targets, (tensors[name] for name in outputs), strict=True))
    feeds = [
        {
            **graph.feeds,
            **{t: loss.target(generator, shapes[t]) for t, loss in targets.items()},
        }
        for _ in range(count)
    ]
    name = f"{seed}:{number}"
    return RandomStep(name, graph, losses, draw_optimizer(draw), options, feeds)


def _with_head(
    draw: Random,
    graph: RandomGraph,
    output: str,
    value: Tensor,
    index: int,
    generator: torch.Generator,
) -> tuple[RandomGraph, str]:
    """The graph with a variable that an output is multiplied by: every graph has one that
    can be trained.
    """
    shape = tuple(n if draw.random() < 0.7 else 1 for n in value.shape)
    weight = torch.randn(shape, generator=generator, dtype=torch.float64)
    label, name, head = f"head/{index}", f"weight_{index}", f"head_{index}"
    attributes = {"shape": [*shape], "label": label}
    statements = (
        *graph.statements,
        Statement("variable", (), attributes, (name,)),
        Statement("mul", (output, name), {}, (head,)),
    )
    return replace(
        graph,
        statements=statements,
        outputs=(*graph.outputs, head),
        variables={**graph.variables, label: weight},
    ), head


def _followed(
    graph: RandomGraph, output: str, operation: str
) -> tuple[RandomGraph, str]:
    """The graph with an operation after an output."""
    name = f"{output}_{operation}"
    statement = Statement(operation, (output,), {}, (name,))
    statements = (*graph.statements, statement)
    return replace(graph, statements=statements, outputs=(*graph.outputs, name)), name


def _options(draw: Random, graph: RandomGraph) -> dict[str, Any]:
    labels = [k for k, v in graph.variables.items() if v.is_floating_point()]
    heads = [label for label in labels if label.startswith("head/")]
    # Some have values or uses as no parameter has.
    options: dict[str, Any] = {
        "state": draw.choice(["variables", "inputs"]),
        "train": "*",
    }
    if draw.random() < 0.5:
        options["learning_rate"] = RATE
    if draw.random() < 0.3:
        options["clip_norm"] = draw.choice([0.01, 1.0, 100.0])
    if draw.random() < 0.3:
        options["clip_value"] = draw.choice([0.01, 1.0])
    if draw.random() < 0.3:
        options["loss_scale"] = True
    if draw.random() < 0.3:
        options["accumulate"] = 2
    if draw.random() < 0.3:
        options["l2"] = {draw.choice(heads): 0.1}
    if draw.random() < 0.3:
        options["groups"] = {
            draw.choice(heads): {"learning_rate": 0.003, "weight_decay": 0.05}
        }
    if draw.random() < 0.2:
        others = [label for label in labels if label not in heads]
        if others:
            options["freeze"] = [draw.choice(others)]
    return options
