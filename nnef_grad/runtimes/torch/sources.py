"""The text of a model, to be read again for other shapes, and to be written as it was."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Union

from nnef_grad.base.errors import UsageError
from nnef_grad.base.source import Source
from nnef_grad.frontends import STANDARD, dialect_of
from nnef_grad.frontends.torch.model import TorchModel
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.passes import replace_variables
from nnef_grad.graph.quantization import print_quantization
from nnef_grad.interpreter.feeds import Data
from nnef_grad.model import (
    Options,
    Shapes,
    declared_variables,
    dumps,
    from_container,
    from_source,
    save_source,
)
from nnef_grad.storage import containers
from nnef_grad.storage.data import VariableData, arrays_of
from nnef_grad.storage.files import PathLike
from nnef_grad.targets.cleanup import copy_outputs

Model = Union[PathLike, Graph, TorchModel]


@dataclass(frozen=True)
class ModelSource:
    """The texts of a model.

    Attributes:
        text: of the graph, with its fragments and comments.
        quantization: of the quantization info, if there is any.
    """

    text: Source
    quantization: Source | None

    def graph(self, shapes: Shapes | None = None) -> Graph:
        """The flat graph, with the declared shapes of inputs or others by name."""
        return from_source(self.text, self.quantization, Options(shapes))

    def program(self, shapes: Shapes) -> Graph:
        """The graph for such inputs, with its variables as further inputs after its own,
        in the order of their declaration.
        """
        # A variable that is an output would be an input and an output.
        return replace_variables(
            copy_outputs(from_source(self.text, None, Options(shapes)))
        )

    def save(self, path: PathLike, data: Data, *, overwrite: bool) -> None:
        """Writes a folder or an archive with these texts, and data by label."""
        save_source(path, self.text, self.quantization, data, overwrite=overwrite)


class Given(NamedTuple):
    """A model as the caller gave it.

    Attributes:
        source: its texts.
        data: the data of its variables, by label.
        parameters: the names of the variables that are parameters; None for all.
        trainable: the names of those that require gradients; None for all.
    """

    source: ModelSource
    data: Data
    parameters: Collection[str] | None = None
    trainable: Collection[str] | None = None


def read(model: Model, data: Data | None) -> Given:
    """The texts and the data of a model.

    Raises:
        NnefGradError: it cannot be read, or data are given for a model that has its own.
    """
    if isinstance(model, Graph):
        return Given(_printed(model), data or {})
    if data is not None:
        raise UsageError("this model has its own data: 'data' is for a Graph")
    if isinstance(model, TorchModel):
        parameters = set(model.parameters.values())
        return Given(_printed(model.graph), model.data, parameters, model.trainable)
    container = containers.open_container(model)
    if dialect_of(container.graph(), None) != STANDARD:
        # What it computes with while it is read is known here only.
        graph = from_container(container)
        known = arrays_of(declared_variables(graph), VariableData(container).of(graph))
        return Given(_printed(graph), known)
    source = ModelSource(container.graph(), container.quantization())
    graph = source.graph()
    data = VariableData(container).of(graph)
    return Given(source, arrays_of(declared_variables(graph), data))


def _printed(graph: Graph) -> ModelSource:
    name = f"<{graph.name}>"
    info = print_quantization(graph.quantization) if graph.quantization else None
    quantization = None if info is None else Source(f"{name}.quant", info)
    return ModelSource(Source(name, dumps(graph)), quantization)
