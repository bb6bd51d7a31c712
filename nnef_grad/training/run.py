"""The loop: batches in, losses out, checkpoints on the way."""

from __future__ import annotations

import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Any, Union

import click
import numpy as np
import numpy.typing as npt

from nnef_grad.base.arrays import Array
from nnef_grad.base.choices import RuntimeName
from nnef_grad.base.errors import UsageError, refuse_unknown
from nnef_grad.base.public import public
from nnef_grad.graph.ir import Shape
from nnef_grad.graph.symbols import numbers_of, substituted
from nnef_grad.model import save
from nnef_grad.runtimes import Runtime, find_runtime
from nnef_grad.storage.data import load_data
from nnef_grad.storage.files import PathLike
from nnef_grad.storage.output import refuse_output, refuse_text
from nnef_grad.targets.tensors import DTYPES
from nnef_grad.training.adapters import with_adapters_folded
from nnef_grad.training.forms import Step, in_inputs
from nnef_grad.training.recipes import LEARNING_RATE, LOSS_SCALE

Batch = Union[Mapping[str, Any], Sequence[Any]]
# A number, or what gives it for the number of steps that have been made.
Schedule = Union[float, Callable[[int], float]]
# The label of the number of steps, in a checkpoint.
STEPS = "training/steps"


@public
def run(
    step: Step,
    batches: Iterable[Batch],
    *,
    runtime: RuntimeName = "onnxruntime",
    learning_rate: Schedule | None = None,
    loss_scale: Schedule = 1.0,
    noise_seed: int | None = None,
    dtype: npt.DTypeLike = np.float32,
    threads: int | None = None,
    checkpoint: PathLike | None = None,
    every: int = 100,
    resume: PathLike | None = None,
    progress: bool | None = None,
) -> Training:
    """Trains, as an iterator over the losses, one for each step.

        training = nnef_grad.training.run(step, batches, learning_rate=1e-3)
        for loss in training:
            print(loss)
        training.save("trained/")

    Args:
        step: the result of `training_step`.
        batches: for each step, an array for each input of the model and each target, by
            name, or in the order of the inputs of the step.
        runtime: "onnxruntime", "openvino", "tract", "khronos" (the PyTorch interpreter
            of nnef_tools), "numpy" (nnef-grad's evaluator), or "fastest", the faster of
            the first two on the first batch. These three compute in single precision.
        learning_rate: the learning rate, or a function of the number of steps so far,
            if it is an input of the step.
        loss_scale: the same for the scale of the loss.
        noise_seed: a number from which the noise of private steps follows, for tests:
            who knows it can take the noise away. By default, nobody does.
        dtype: float32 or float64.
        threads: the number of threads, if the runtime allows a choice.
        checkpoint: a folder or an archive, written regularly and at the end in place of
            the previous one: the model with its current values, and the state of the
            optimizer. Writing is atomic: whatever ends the process, the last checkpoint
            remains.
        every: the number of steps between checkpoints.
        resume: a checkpoint to continue from. With the remaining batches, the result
            equals that of an uninterrupted run, bit for bit.
        progress: whether to show a bar; by default, if stderr is a terminal.

    Raises:
        NnefGradError: data are missing or do not fit; the runtime is unknown, is not
            installed, or cannot run the step; a checkpoint cannot be read or written. A
            mistake in a batch is raised when its loss is requested.
    """
    engine, precision = find_runtime(runtime), _precision(dtype)
    if precision is None or precision.name not in engine.precisions:
        message = f"the runtime '{runtime}' computes in"
        known = " and ".join(engine.precisions)
        raise UsageError(f"{message} {known}, and not in {precision or dtype}")
    if every < 1:
        raise UsageError(f"a checkpoint is written every 1 step or more, not {every}")
    if noise_seed is not None and noise_seed < 0:
        raise UsageError(f"noise follows from 0 or a larger number, not {noise_seed}")
    if checkpoint is not None:
        refuse_text(checkpoint)
        refuse_output(checkpoint, overwrite=True)
    values = _initial(step, resume)
    rates = {LOSS_SCALE: loss_scale, LEARNING_RATE: learning_rate}
    parts = [
        _Part(part, engine, values, rates, precision, threads, noise_seed)
        for part in step.parts.values()
    ]
    is_read = any(LEARNING_RATE in part.rates for part in parts)
    if learning_rate is not None and not is_read:
        message = "the learning rate is a number of the step, and not an input"
        raise UsageError(f"{message}: leave it out, or make the step without it")
    return Training(step, parts, values, batches, checkpoint, every, progress)


@public
def draw_noise(
    step: Step, generator: np.random.Generator | None = None
) -> dict[str, Array]:
    """Standard normal numbers for the inputs `noise_<variable>` of a private step, by name:
    other ones for each step.

    Args:
        step: the result of `training_step`, or its `apply`.
        generator: where they come from; by default, one that nobody can repeat.
    """
    drawn, tensors = generator or np.random.default_rng(), step.graph.tensors
    return {name: drawn.standard_normal(tensors[name].shape) for name in step.noise}


class Training(Iterator[float]):
    """A training run: an iterator over the losses; see `run`.

    Attributes:
        steps: the number of steps so far, including those before a checkpoint.
        is_finite: whether the gradients of the last step were finite, if the step
            checks it.
    """

    def __init__(
        self,
        step: Step,
        parts: Sequence[_Part],
        values: dict[str, Array],
        batches: Iterable[Batch],
        checkpoint: PathLike | None,
        every: int,
        progress: bool | None,
    ) -> None:
        self.steps = int(values.pop(STEPS, 0))
        self.is_finite = True
        self._step = step
        self._parts = parts
        self._values = values
        self._checkpoint = checkpoint
        self._every = every
        self._text = ""
        # Where nobody looks on, the bar is written nowhere.
        is_shown = sys.stderr.isatty() if progress is None else progress
        self._bar = click.progressbar(
            batches,
            label="training",
            item_show_func=lambda _: self._text,
            file=sys.stderr if is_shown else StringIO(),
        )
        self._batches = iter(self._bar.__enter__())

    def __next__(self) -> float:
        """Makes a step, and returns the loss before it."""
        try:
            batch = next(self._batches)
        except StopIteration:
            self._write_checkpoint()
            self._bar.__exit__(None, None, None)
            raise
        first, *further = self._parts
        reports = first(self._values, batch, self.steps)
        self.steps += 1
        if self.steps % self._step.accumulate == 0:
            for part in further:
                part(self._values, {}, self.steps - 1)
        loss, self.is_finite = float(reports[0]), all(reports[1:])
        if self.steps % self._every == 0:
            self._write_checkpoint()
        self._text = f"loss {loss:.4g}"
        return loss

    @property
    def data(self) -> dict[str, Array]:
        """The current values of the variables of the model and of the optimizer state,
        by label.
        """
        return dict(self._values)

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Writes the model with its current values, including adapters, to a folder or
        an archive, as `nnef_grad.save` does.
        """
        values = with_adapters_folded(self._values)
        save(self._step.model, path, data=values, overwrite=overwrite)

    def _write_checkpoint(self) -> None:
        if self._checkpoint is None:
            return
        state = {**self._values, STEPS: np.array(self.steps, np.float32)}
        data: Any = state
        if (stored := self._step.stored) is not None:
            # What no step changes shares the files of the model.
            moved = {label for part in self._parts for label in part.labels}
            own = {n: x for n, x in state.items() if n in moved or n not in stored}
            data = ChainMap(own, stored.with_blocks)  # type: ignore[arg-type]
        model = self._step.model
        save(model, self._checkpoint, data=data, everything=True, overwrite=True)


def _precision(dtype: Any) -> np.dtype[Any] | None:
    """The data type that numpy understands; None for anything else."""
    try:
        precision: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):
        return None
    return precision


class _Part:
    """A step in a runtime, with its state in inputs.

    Attributes:
        labels: those of the variables that it changes.
        rates: those of the rates that are inputs of the step.
    """

    def __init__(
        self,
        step: Step,
        runtime: Runtime,
        values: Mapping[str, Array],
        rates: Mapping[str, Schedule | None],
        dtype: np.dtype[Any],
        threads: int | None,
        noise_seed: int | None,
    ) -> None:
        step = in_inputs(step)
        self.labels = step.labels.values()
        self._step = step
        self._inputs = dict(zip(step.inputs, step.graph.inputs, strict=True))
        self._types = {**DTYPES, "scalar": dtype.type}
        # A model may have an input of that name, if the step has none.
        own = {*step.inputs} - {*step.model.input_names}
        self.rates = {n: r for n, r in rates.items() if n in own}
        for name, rate in self.rates.items():
            if rate is None:
                raise UsageError(f"the step has the input '{name}': give it a value")
        self._seed = noise_seed
        known = {*step.labels, *self.rates, *step.noise}
        self._fed = [name for name in step.inputs if name not in known]
        self._run = runtime.compile(step.graph, values, threads)

    def __call__(
        self, values: dict[str, Array], batch: Batch, steps: int
    ) -> list[Array]:
        """Makes a step, which changes values, and returns what it reports: the loss, and
        whether the gradients are finite, if it checks that.
        """
        labels, feeds = self._step.labels, self._feeds(batch)
        for name, rate in self.rates.items():
            feeds[name] = rate(steps) if callable(rate) else rate
        # After a checkpoint it goes on as it would have.
        seed = None if self._seed is None else (self._seed, steps)
        feeds |= draw_noise(self._step, np.random.default_rng(seed))
        feeds |= {name: values[label] for name, label in labels.items()}
        arrays = {name: self._array(name, feeds[name]) for name in self._inputs}
        self._refuse_shapes({name: array.shape for name, array in arrays.items()})
        outputs = self._run(list(arrays.values()))
        results = dict(zip(self._step.outputs, outputs, strict=True))
        for name, new in self._step.state.items():
            values[labels[name]] = results.pop(new)
        return [*results.values()]

    def _feeds(self, batch: Batch) -> dict[str, Any]:
        """The inputs of a batch, by name."""
        names = self._fed
        if not isinstance(batch, Mapping):
            if not isinstance(batch, (list, tuple)):
                what = f"it is of type {type(batch).__name__}"
                raise UsageError(f"a batch is a mapping or a list of arrays: {what}")
            if len(batch) != len(names):
                message = f"a batch has {len(batch)} arrays, and the step takes"
                raise UsageError(f"{message} {', '.join(names)}")
            return dict(zip(names, batch, strict=True))
        refuse_unknown(batch, names, "the step has no input")
        for name in names:
            if name not in batch:
                raise UsageError(f"the batch has no '{name}'")
        return dict(batch)

    def _array(self, name: str, value: Any) -> Array:
        """The array of an input, as runtimes take it."""
        tensor = self._inputs[name]
        wanted = self._types[tensor.dtype]
        try:
            array = np.asarray(value)
        except ValueError:
            message = f"'{name}' is not an array: its rows have different lengths"
            raise UsageError(message) from None
        if not np.can_cast(array.dtype, wanted, "same_kind"):
            message = f"'{name}' is a tensor<{tensor.dtype}>"
            raise UsageError(f"{message}, and these are {array.dtype}")
        # What has rank 0 gets an axis by that.
        return np.ascontiguousarray(array, wanted).reshape(array.shape)

    def _refuse_shapes(self, shapes: Mapping[str, Shape]) -> None:
        """Raises `UsageError` where an array has another shape than its input, for all
        numbers that its symbols may have.
        """
        inputs = self._inputs.items()
        differing = [pair for pair in inputs if shapes[pair[0]] != pair[1].shape]
        numbers = numbers_of(self._step.graph, shapes) if differing else {}
        for name, tensor in differing:
            if shapes[name] != substituted(tensor.shape, numbers):
                wanted = f"{list(tensor.shape)}, and not {list(shapes[name])}"
                raise UsageError(f"'{name}' has the shape {wanted}")


def _initial(step: Step, resume: PathLike | None) -> dict[str, Array]:
    """The values to begin with, by label: of the step, or of a checkpoint."""
    wanted: dict[str, Any] = {}
    for part in step.parts.values():
        wanted |= {**dict.fromkeys(part.labels.values()), **part.values}
    if STEPS in wanted:
        message = f"a checkpoint has the number of steps under the label '{STEPS}'"
        raise UsageError(f"{message}: give the variable another one")
    if resume is not None:
        stored = load_data(resume)
        wanted = {label: stored.get(label) for label in [*wanted, STEPS]}
    missing = ", ".join(f"'{label}'" for label, v in wanted.items() if v is None)
    if missing:
        where = f" in '{resume}'" if resume is not None else ""
        raise UsageError(f"there are no data{where} for {missing}")
    return wanted
