"""Labels of variables: each is the path of a file below the folder of the model, without
its ending. A label may be any text that such a path can be.
"""

from __future__ import annotations

import re

# Control characters, and halves of characters, which no text in UTF-8 has.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# Folders are separated by either, depending on the system.
_SEPARATOR = re.compile(r"[/\\]")
# The beginnings of paths that are not below a folder: `C:x` is below one of a drive.
_ABSOLUTE = re.compile(r"([A-Za-z]:)?[/\\]")


def path_steps(path: str) -> tuple[str, ...] | None:
    """The steps of a path below a folder, or None if it may lead out on any system."""
    steps = tuple(_SEPARATOR.split(path))
    return None if ".." in steps or _ABSOLUTE.match(path) else steps


def label_steps(label: str) -> tuple[str, ...]:
    """The steps of the path in a label: folders, and a file. As in tract, slashes at the
    beginning are left out: exporters name tensors after paths of a framework.

    Raises:
        ValueError: the label is not the path of a file in the folder of the model.
    """
    steps = path_steps(label.lstrip("/"))
    if _UNPRINTABLE.search(label):
        what = "contains a control character"
    elif steps is None:
        what = "leads out of the folder of the model"
    elif {"", "."} & set(steps):
        what = "has a step without a name"
    else:
        return steps
    raise ValueError(f"label {label!r} {what}")


def label_key(label: str) -> str:
    """The key of a label: equal for labels of the same file, in any case."""
    return label.replace("\\", "/").lstrip("/").lower()


# The folder of the data of constants that are stored as variables: one that no model has.
CONSTANTS = "nnef-grad/constants"


def is_constant(label: str) -> bool:
    """Whether a label is one of those that constants get which become variables: what the
    compiler has made is no parameter of the model.
    """
    return re.fullmatch(rf"{CONSTANTS}(_\d+)?/\d+(_\d+)?", label) is not None
