"""Labels of variables: each is the path of a file below the folder of the model, without
its ending.
"""

from __future__ import annotations

import re

_LABEL = re.compile(r"[A-Za-z0-9_\-./\\]+")
# Folders are separated by either, depending on the system.
_SEPARATOR = re.compile(r"[/\\]")


def label_steps(label: str) -> tuple[str, ...]:
    """The steps of the path in a label: folders, and a file.

    Raises:
        ValueError: the label is not the path of a file in the folder of the model.
    """
    steps = tuple(_SEPARATOR.split(label))
    if not _LABEL.fullmatch(label):
        what = "must consist of letters, digits and _ - . / \\"
    elif ".." in steps or steps[0] == "":
        what = "leads out of the folder of the model"
    elif {"", "."} & set(steps):
        what = "has a step without a name"
    else:
        return steps
    raise ValueError(f"label {label!r} {what}")


# The folder of the data of constants that are stored as variables: one that no model has.
CONSTANTS = "nnef-grad/constants"


def is_constant(label: str) -> bool:
    """Whether a label is one of those that constants get which become variables: what the
    compiler has made is no parameter of the model.
    """
    return re.fullmatch(rf"{CONSTANTS}(_\d+)?/\d+(_\d+)?", label) is not None
