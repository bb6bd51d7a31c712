"""The work that a document makes grows no faster than the document, and what has no end is
refused. Work is counted in calls of functions: machines differ in speed, not in these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

import nnef_grad
from nnef_grad.base.process import Memo
from nnef_grad.emit import arguments, rule_results

OPERATORS = "extension KHR_enable_operator_expressions;"
FRAGMENTS = "extension KHR_enable_fragment_definitions;"
X = "x = external(shape = [2]);"


def document(body: str, *, before: str = "", inputs: str = "x") -> str:
    return f"version 1.0; {before} graph g( {inputs} ) -> ( y ) {{ {body} }}"


def joined(count: int, item: Callable[[int], str], by: str = ", ") -> str:
    return by.join(map(item, range(count)))


def constant(count: int) -> str:
    values = joined(count, lambda n: f"{n}.5")
    head = f"x = external(shape = [{count}]);"
    return document(
        f"{head} c = constant(shape = [{count}], value = [{values}]); y = mul(x, c);"
    )


def chain(count: int) -> str:
    steps = joined(count, lambda n: f"t{n + 1} = tanh(t{n});", " ")
    return document(f"{X} t0 = neg(x); {steps} y = neg(t{count});")


def fan(count: int) -> str:
    """One tensor that many operations use, and one that uses them all."""
    steps = joined(count, lambda n: f"t{n} = tanh(x);", " ")
    return document(f"{X} {steps} y = add_n([{joined(count, lambda n: f't{n}')}]);")


def fragments(count: int) -> str:
    head = "( x: tensor<scalar> ) -> ( y: tensor<scalar> )"
    definitions = joined(
        count, lambda n: f"fragment f{n}{head} {{ y = misspelt{n}(x); }}", " "
    )
    return document(f"{X} y = f0(x);", before=f"{FRAGMENTS} {definitions}")


def calls(count: int) -> str:
    """Fragments, each of which calls the one before, also in an expression."""
    head = "( x: tensor<scalar> ) -> ( y: tensor<scalar>[] )"
    definitions = joined(
        count,
        lambda n: f"fragment f{n + 1}{head} {{ y = f{n}(x); z = f{n}(x)[0]; }}",
        " ",
    )
    before = f"{FRAGMENTS} {OPERATORS} fragment f0{head} {{ y = [x]; }} {definitions}"
    return document(f"{X} y = neg(x);", before=before)


def misfits(depth: int) -> str:
    """Arguments that do not fit, each in an item of another one."""
    y = "lt(x, x)"
    for _ in range(depth):
        y = f"lt(add_n([{y}]), x)"
    return document(f"{X} y = {y};", before=OPERATORS)


SIZED: dict[str, Callable[[int], str]] = {
    "a chain": chain,
    "a tensor used often": fan,
    "a tensor used often by one operation": lambda n: document(
        f"{X} y = add_n([{joined(n, lambda _: 'x')}]);"
    ),
    "many literals": constant,
    "many different unknown operations": lambda n: document(
        f"{X} {joined(n, lambda i: f't{i} = nonsense{i}(x);', ' ')} y = neg(x);"
    ),
    "an unknown operation often": lambda n: document(
        f"{X} {joined(n, lambda i: f't{i} = nonsense(x);', ' ')} y = neg(x);"
    ),
    "many undefined names": lambda n: document(
        f"{X} {joined(n, lambda i: f't{i} = neg(u{i});', ' ')} y = neg(x);"
    ),
    "many faulty fragments": fragments,
    "many fragments that call each other": calls,
    "many inputs": lambda n: document(
        joined(n, lambda i: f"x{i} = external(shape = [2]);", " ")
        + f" y = add_n([{joined(n, lambda i: f'x{i}')}]);",
        inputs=joined(n, lambda i: f"x{i}"),
    ),
    "many variables": lambda n: document(
        X
        + joined(n, lambda i: f"v{i} = variable(shape = [2], label = 'v{i}');", " ")
        + f" y = add_n([x, {joined(n, lambda i: f'v{i}')}]);"
    ),
    "a repeated operand": lambda n: document(
        f"{X} y = concat([x] * {n}, axis = 0);", before=OPERATORS
    ),
}


def steps(text: str) -> int:
    """The calls that reading, differentiating and printing make."""
    count = 0

    def count_calls(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_calls)
    try:
        with suppress(nnef_grad.NnefGradError):
            nnef_grad.dumps(nnef_grad.differentiate(nnef_grad.loads(text)))
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("make", SIZED.values(), ids=SIZED)
def test_the_work_grows_no_faster_than_the_document(
    make: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(make(3))
    found = []
    for size in (800, 400):
        # Neither finds what the other has left in the process.
        monkeypatch.setattr(arguments, "_checked", Memo(10_000))
        monkeypatch.setattr(rule_results, "_standard", Memo(100_000))
        found.append(steps(make(size)))
    larger, smaller = found
    assert larger <= 2.15 * smaller


def test_a_misfit_is_looked_at_once() -> None:
    assert steps(misfits(24)) <= 2.5 * steps(misfits(12))


def test_the_work_for_literals_is_not_done_one_by_one() -> None:
    assert steps(constant(20_000)) < 20 * 20_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            document(
                f"x = external(shape = [{joined(10**5, lambda _: '1')}]); y = neg(x);"
            ),
            "external: a tensor of rank 100000 is not supported: the rank is at most 32",
        ),
        (
            document(
                "x = external(shape = [1] * 1000000); y = neg(x);", before=OPERATORS
            ),
            "a tensor of rank 1000000 is not supported",
        ),
        (
            document(
                f"{X} y = unsqueeze(x, axes = range_of([0] * 1000000));",
                before=OPERATORS,
            ),
            "a tensor of rank 1000001 is not supported",
        ),
        (
            document(f"{X} y = concat([x] * 1000000, axis = 0);", before=OPERATORS),
            "1000000 items are more than 50000",
        ),
    ],
)
def test_what_is_too_large_is_refused_at_once(text: str, message: str) -> None:
    with pytest.raises(nnef_grad.InvalidGraphError) as caught:
        nnef_grad.loads(text)
    assert message in caught.value.message
    assert caught.value.span is not None
    assert steps(text) < 10**7


def test_a_rank_of_32_is_supported() -> None:
    body = f"x = external(shape = [{joined(32, lambda _: '1')}]); y = neg(x);"
    graph = nnef_grad.loads(document(body))
    assert len(nnef_grad.differentiate(graph).graph.outputs[0].shape) == 32
