"""An operation of your own, in three ways: with a body, with rules in a file, and with
functions in Python. All give the same gradients.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import nnef_grad

FOLDER = Path(__file__).parent / "own"


def by_its_body() -> tuple[nnef_grad.Graph, nnef_grad.Rules]:
    """The body is differentiated; no rules are needed."""
    return nnef_grad.load(FOLDER / "swish_with_body.nnef"), nnef_grad.Rules()


def by_rules_in_a_file() -> tuple[nnef_grad.Graph, nnef_grad.Rules]:
    """nnef-grad swish.nnef --rules swish_rules.nnef"""
    rules = nnef_grad.load_rules(FOLDER / "swish_rules.nnef")
    return nnef_grad.load(FOLDER / "swish.nnef", rules=rules), rules


def by_functions() -> tuple[nnef_grad.Graph, nnef_grad.Rules]:
    """Functions for shapes and gradients are registered as rules."""
    rules = nnef_grad.Rules()

    @rules.shape("swish")
    def swish_shape(x, beta):
        return x

    @rules.vjp("swish")
    def swish_vjp(emit, operation, dy):
        (x,), (y,) = operation.operands, operation.results
        beta = operation.attributes["beta"]
        gate = emit("sigmoid", emit("mul", beta, x), hint="gate")
        rest = emit("sub", 1.0, gate, hint="rest")
        curve = emit("mul", emit("mul", beta, y), rest, hint="curve")
        return [emit("mul", dy, emit("add", gate, curve, hint="slope"))]

    return nnef_grad.load(FOLDER / "swish.nnef", rules=rules), rules


def main() -> None:
    generator = np.random.default_rng(0)
    x, weight = generator.standard_normal((4, 3)), generator.standard_normal((2, 3))
    seed = generator.standard_normal((4, 2))
    for way in (by_its_body, by_rules_in_a_file, by_functions):
        graph, rules = way()

        # nnef_grad.evaluate and nnef_grad.check need an evaluation if there is no body.
        @rules.evaluation("swish")
        def swish(x, beta):
            return x / (1.0 + np.exp(-beta * x))

        backward = nnef_grad.differentiate(graph, rules=rules)
        checked = nnef_grad.check(graph, backward, rules=rules)
        found = nnef_grad.evaluate(
            backward,
            {"x": x, "grad_y": seed},
            {"weight": weight},
            rules=rules,
        )
        norm = np.linalg.norm(found["grad_weight"])
        verdict = "agrees with" if checked.passed else "differs from"
        print(f"{way.__name__}: |grad_weight| = {norm:.12f}, {verdict} differences")


if __name__ == "__main__":
    main()
