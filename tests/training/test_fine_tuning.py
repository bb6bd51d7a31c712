"""Networks that torch-to-nnef has exported, trained for a while: each loss is that of torch in
double precision, with what exports lose said again, or a warning says what is lost.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support.exports.exporting import write_export
from support.exports.modules import Exported, Integers
from torch import Tensor, nn

import nnef_grad
from bench.workers.torch_models import declare_compiled_operators
from nnef_grad.training import run

STEPS, RATE, TOLERANCE = 50, 0.01, 1e-5
WORDS, WIDTH = 11, 6
LOSS = "softmax_cross_entropy_with_labels(axis = -1)"


class Tagger(nn.Module):  # type: ignore[misc]
    """A class for each word, by a recurrent layer."""

    def __init__(self, layer: Callable[..., nn.Module], **settings: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.layer = layer(WIDTH, WIDTH, batch_first=True, **settings)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layer(self.words(ids))[0])


class Shared(nn.Module):  # type: ignore[misc]
    """A table that words are looked up in, and that their scores are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=2)
        with torch.no_grad():
            # As in BERT, the row for padding is not zero.
            self.words.weight[2] = torch.linspace(-1.0, 1.0, WIDTH)
        self.register_buffer("waves", torch.tensor(_waves(), dtype=torch.float32))
        self.mixed = nn.TransformerEncoderLayer(
            WIDTH, 2, 8, batch_first=True, dropout=0.0
        )

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.mixed(self.words(ids) + self.waves)
        return hidden @ self.words.weight.T


def _waves() -> Any:
    places, rates = np.arange(7)[:, None], np.array([1.0, 0.1, 0.01])
    return np.concatenate([np.sin(places * rates), np.cos(places * rates)], axis=1)


def bert() -> nn.Module:
    config = _transformers().BertConfig(
        vocab_size=WORDS, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=12, max_position_embeddings=16, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="eager",
    )  # fmt: skip
    return Logits(_transformers().BertForMaskedLM(config))


def llama() -> nn.Module:
    config = _transformers().LlamaConfig(
        vocab_size=WORDS, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, intermediate_size=12, max_position_embeddings=16,
        attn_implementation="eager",
    )  # fmt: skip
    return Logits(_transformers().LlamaForCausalLM(config))


class Logits(nn.Module):  # type: ignore[misc]
    """The scores of a model of transformers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        mask = torch.ones_like(ids)
        return self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits


def _transformers() -> Any:
    declare_compiled_operators()
    return pytest.importorskip("transformers", reason="pip install --group models")


class Case(NamedTuple):
    """A network, and what a step is told of it.

    Attributes:
        make: makes the network.
        options: what its training step is told.
        warned: a part of the warning that is given if nothing is told; if none, nothing
            has to be.
        padded: how the label of a table ends whose row 0 is that of padding. An exporter
            calls a matrix of two layers after either of them, by where they are in memory.
    """

    make: Callable[[], nn.Module]
    options: Mapping[str, Any] = {}
    warned: str = ""
    padded: tuple[str, ...] = ()


def merged(pattern: str) -> dict[str, Any]:
    """The options for a recurrent layer whose biases are one in the export."""
    twice = {"learning_rate_factor": 2.0}
    return {"padding_rows": {"words.weight": 0}, "groups": {pattern: twice}}


CASES = {
    "lstm": Case(partial(Tagger, nn.LSTM), merged("*_b_[ifgo]"), "b_[ifgo]"),
    "two lstms": Case(
        partial(Tagger, nn.LSTM, num_layers=2),
        merged("*_b_[ifgo]"),
        "sum of two biases",
    ),
    "gru": Case(partial(Tagger, nn.GRU), merged("*_b_[rz]"), "sum of two biases"),
    "rnn": Case(partial(Tagger, nn.RNN), merged("*_b_ih_hh"), "sum of two biases"),
    "shared": Case(Shared, {"padding_rows": {"words.weight": 2}}, "waves"),
    "bert": Case(bert, padded=("word_embeddings.weight", "decoder.weight")),
    "llama": Case(llama),
}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", CASES)
def test_the_losses_are_those_of_torch(
    name: str, optimizer: str, tmp_path: Path
) -> None:
    case = CASES[name]
    step, module = made(case, tmp_path, optimizer=optimizer, **case.options)
    ours, theirs = losses(step, module, optimizer)
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_what_is_lost_is_said(name: str, tmp_path: Path) -> None:
    step, module = made(CASES[name], tmp_path, optimizer="sgd")
    ours, theirs = losses(step, module, "sgd")
    assert np.abs(np.subtract(ours, theirs)).max() > TOLERANCE
    said = [*step.model.warnings, *step.warnings]
    assert any("padding_idx" in str(w) for w in said)
    assert any("sum of two biases" in str(w) for w in said)


# ---- Both sides ----


def made(case: Case, folder: Path, **options: Any) -> tuple[nnef_grad.Step, nn.Module]:
    """The step of an export, and the module."""
    torch.manual_seed(0)
    module = case.make().eval()
    move_defaults(module)
    exported = Exported("network", lambda: module, (Integers(WORDS, (4, 7)),))
    with warnings.catch_warnings():
        # Of torch, about how it traces.
        warnings.simplefilter("ignore")
        path = write_export(module, exported, folder)
    graph = nnef_grad.load(path)
    if case.padded:
        labels = graph.labels.values()
        options["padding_rows"] = {x: 0 for x in labels if x.endswith(case.padded)}
    step = nnef_grad.training_step(
        graph, data=nnef_grad.load_data(path), loss=LOSS, **options
    )
    return step, module.double()


def move_defaults(module: nn.Module) -> None:
    """Moves parameters that are all ones or zeros, as those of normalizations in the
    beginning: an export leaves them out.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1 and bool((parameter == parameter[0]).all()):
                parameter += 0.01 * torch.randn_like(parameter)


def losses(
    step: nnef_grad.Step, module: nn.Module, optimizer: str
) -> tuple[list[float], list[float]]:
    """The losses of the step, and those of torch."""
    random = np.random.default_rng(0)
    ids = [random.integers(0, WORDS, (4, 7)) for _ in range(STEPS)]
    batches = [(x, np.roll(x, 1, axis=1)) for x in ids]
    ours = run(step, batches, runtime="numpy", learning_rate=RATE, dtype=np.float64)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    peer = kind(module.parameters(), lr=RATE)
    theirs = []
    for given, wanted in batches:
        scores = module(torch.tensor(given)).transpose(1, 2)
        loss = F.cross_entropy(scores, torch.tensor(wanted))
        peer.zero_grad()
        loss.backward()
        peer.step()
        theirs.append(loss.item())
    return list(ours), theirs
