"""Networks of torchvision, timm and transformers: their gradients, through all stages to
ONNX Runtime, next to those of torch.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from support.architectures.arrival import MOST, arrive_within
from support.architectures.catalog import ARRIVING, REFUSED, make, package_of
from support.architectures.page import PAGE, TABLE, page, read_results, table
from support.tables import hold, rows_of

import nnef_grad
from nnef_grad import interop

# Those of the packages.
pytestmark = pytest.mark.filterwarnings("ignore")

# The largest error in double precision: what a network computes from no input is a constant
# of single precision in its graph.
EXACT = 1e-6


def made(name: str, seed: int = 0) -> tuple[Any, Any]:
    pytest.importorskip("onnx", reason="torch exports modules by the package onnx")
    try:
        return make(name, seed)
    except ModuleNotFoundError as error:
        if error.name != package_of(name):
            raise
        pytest.skip(f"{error.name} is missing: pip install --group models")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ARRIVING)
def test_the_gradients_are_those_of_torch(name: str) -> None:
    pytest.importorskip("onnxruntime")
    found = arrive_within(partial(made, name))
    assert found.exact < EXACT
    errors = found.errors
    assert {n: error for n, error in errors.items() if not error <= MOST} == {}


@pytest.mark.thorough
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    with pytest.raises(nnef_grad.UnsupportedError, match=r"\.py:\d+"):
        interop.from_torch(*made(name))


def test_the_page_and_its_table_have_the_figures_of_all_architectures(
    request: pytest.FixtureRequest,
) -> None:
    results = read_results()
    rewrite = request.config.getoption("--rewrite-cases")
    hold({PAGE: page(results), TABLE: table(results)}, rewrite=rewrite)
    listed = [row["architecture"].strip("`") for row in rows_of("models")]
    assert listed == list(ARRIVING)
