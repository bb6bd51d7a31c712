"""Dialects: NNEF with operations beyond the standard, read as graphs of standard
operations. Strict reading knows nothing of them.

tract/   that of tract and torch-to-nnef
"""

from __future__ import annotations

from nnef_grad.base.errors import UsageError, suggestion
from nnef_grad.base.source import Source
from nnef_grad.frontends.tract.header import is_tract

STANDARD = "nnef"
TRACT = "tract"
DIALECTS = (STANDARD, TRACT)


def dialect_of(source: Source, wanted: str | None) -> str:
    """The dialect of a document: the wanted one, or else the one that its extension lines
    name.

    Raises:
        UsageError: there is no such dialect.
    """
    if wanted is not None and wanted not in DIALECTS:
        near = suggestion(wanted, DIALECTS) or f"; there are {' and '.join(DIALECTS)}"
        raise UsageError(f"there is no dialect '{wanted}'{near}")
    return wanted or (TRACT if is_tract(source.text) else STANDARD)
