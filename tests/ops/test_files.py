"""The table of the files that know something of each operation, which a newcomer begins with."""

from __future__ import annotations

import pytest
from support.operation_files import TABLES, row, table
from support.tables import FOLDER, hold

from nnef_grad.language.library import STDLIB
from nnef_grad.ops import SHAPES


def test_the_table_of_files(request: pytest.FixtureRequest) -> None:
    rewrite = request.config.getoption("--rewrite-cases")
    hold({FOLDER / "files.csv": table()}, rewrite=rewrite)


def test_the_files_of_some_operations() -> None:
    assert row("gather")[1] == "ops/join.py"
    assert row("gather")[4:6] == ("interpreter/shape.py", "targets/shape.py")
    assert {"ops/costs.py", "targets/tract/own.py"} <= {*row("gather")[7].split()}
    assert row("softmax")[1:5] == (
        "ops/normalize.py",
        "batching_rule place_rule range_rule cost_rule",
        "derivatives.nnef",
        "interpreter/elementwise.py",
    )


@pytest.mark.parametrize("kind", TABLES)
def test_an_entry_is_that_of_an_operation(kind: str) -> None:
    assert TABLES[kind].keys() <= SHAPES.keys() | STDLIB.keys()
