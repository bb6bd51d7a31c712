"""Files of fragments: the standard library and the derivatives."""

from __future__ import annotations

from pathlib import Path

import nnef
import pytest

from nnef_grad.autodiff.rules import DERIVATIVES
from nnef_grad.base.source import Source
from nnef_grad.language.library import STDLIB, FragmentFile
from nnef_grad.language.parser import parse_fragments


def test_all_standard_operations_are_declared_as_in_the_khronos_parser() -> None:
    library = STDLIB
    assert len(library) == 119
    text = STDLIB.path.read_text("utf-8")
    source = "version 1.0;\ngraph net( x ) -> ( y ) { x = external(shape = [1]); y = relu(x); }"
    assert nnef.parse_string(source, stdlib=text).name == "net"


@pytest.mark.parametrize("path", [STDLIB.path, DERIVATIVES.path])
def test_definitions_read_one_by_one_are_those_of_the_whole_file(path: Path) -> None:
    whole = parse_fragments(Source(path.name, path.read_text("utf-8")))
    lazy = FragmentFile(path)
    assert [f.name for f in whole] == list(lazy)
    assert all(lazy[f.name] == f for f in whole)
    assert all(lazy[f.name].span.line == f.span.line for f in whole)
