"""Other formats, and dialects of NNEF, read as graphs of standard operations. Strict reading
knows nothing of them, and each of them can be deleted.

tract/       the dialect of tract and torch-to-nnef
onnx/        ONNX files
torch/       PyTorch programs
khronos.py   graphs of the Khronos tools
constants.py inputs that become constants
expansions/  what operations of several formats become
"""

from __future__ import annotations

from nnef_grad.base.errors import UsageError, suggestion
from nnef_grad.base.source import Source

STANDARD = "nnef"
TRACT = "tract"
DIALECTS = (STANDARD, TRACT)


def dialect_of(source: Source, wanted: str | None) -> str:
    """The dialect of a document: a wanted one, or else that of its extension lines."""
    if wanted is not None and wanted not in DIALECTS:
        near = suggestion(wanted, DIALECTS) or f"; there are {' and '.join(DIALECTS)}"
        raise UsageError(f"there is no dialect '{wanted}'{near}")
    if wanted is None and "tract_" in source.text:
        from nnef_grad.frontends.tract.reading import is_tract

        return TRACT if is_tract(source.text) else STANDARD
    return wanted or STANDARD
