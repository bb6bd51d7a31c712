"""Mixtures of experts, against tract; gradients against central differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tract

import nnef_grad

HEAD = """\
version 1.0;
extension tract_registry tract_core;
extension tract_registry tract_transformers;

"""
EXPERTS, WIDTH, HIDDEN = 4, 3, 5
SHAPES = {
    "x": (2, 3, WIDTH),
    "wg": (EXPERTS, WIDTH),
    "w1": (EXPERTS, WIDTH, HIDDEN),
    "w2": (EXPERTS, HIDDEN, WIDTH),
    "w3": (EXPERTS, WIDTH, HIDDEN),
    "wg_bias": (EXPERTS,),
    "w1_bias": (EXPERTS, HIDDEN),
    "w3_bias": (EXPERTS, HIDDEN),
    "w2_bias": (EXPERTS, WIDTH),
}
PLAIN = ("x", "wg", "w1", "w2")
GATED = (*PLAIN, "w3")
# The operands, and the settings.
MIXTURES = {
    "plain": (PLAIN, "k = 2, activation = 'silu', gate = 'softmax_topk'"),
    "one": (PLAIN, "k = 1, activation = 'relu', gate = 'sigmoid'"),
    "all": (GATED, "k = 4, activation = 'swiglu', gate = 'softmax_all'"),
    "gated": (GATED, "k = 2, activation = 'swiglu', gate = 'softmax_all'"),
    "raw": (GATED, "k = 3, activation = 'gelu', gate = 'raw'"),
    "turned": (
        GATED,
        "k = 2, activation = 'silu', gate = 'softmax_topk', expert_layout = 'linear'",
    ),
    "biases": (
        tuple(SHAPES),
        "k = 2, activation = 'swiglu', gate = 'softmax_topk', act_alpha = 1.7,"
        " act_limit = 0.6",
    ),
}


def written(name: str, folder: Path) -> dict[str, np.ndarray]:
    operands, settings = MIXTURES[name]
    rng = np.random.default_rng(len(name))
    shapes = {
        n: (s[0], s[2], s[1])
        if "linear" in settings and len(s) == 3 and n != "x"
        else s
        for n, s in SHAPES.items()
        if n in operands
    }
    lines = [f"{n} = external(shape = {list(s)});" for n, s in shapes.items()]
    passed = [n if n in PLAIN else f"{n} = {n}" for n in operands]
    lines.append(f"y = tract_moe_ffn({', '.join(passed)}, {settings});")
    text = f"{HEAD}graph net({', '.join(operands)}) -> (y)\n{{\n"
    text += "".join(f"    {line}\n" for line in lines) + "}\n"
    (folder / "graph.nnef").write_text(text, "utf-8")
    return {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures(name: str, tmp_path: Path) -> None:
    fed = written(name, tmp_path)
    graph = nnef_grad.load(tmp_path)
    (found,) = nnef_grad.evaluate(graph, fed).values()
    reader = tract.nnef().with_tract_transformers()
    (wanted,) = reader.load(str(tmp_path)).into_runnable().run([*fed.values()])
    np.testing.assert_allclose(found, wanted.to_numpy(), rtol=1e-4, atol=1e-6)
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph), inputs=fed)
    assert {row.verdict for row in checked.gradients} == {"ok"}


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    written("plain", tmp_path)
    text = (tmp_path / "graph.nnef").read_text("utf-8")
    for old, new, message in (
        ("'silu'", "'swish'", "there is no activation 'swish'"),
        ("'silu'", "'swiglu'", "swiglu needs w3"),
        ("'softmax_topk'", "'softmax'", "there is no gate 'softmax'"),
    ):
        with pytest.raises(nnef_grad.InvalidGraphError, match=message):
            nnef_grad.loads(text.replace(old, new))
