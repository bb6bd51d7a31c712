"""How names are spelled. The standard's are letters, digits and underscores. tract takes any
text as a name, in quotes after an `i`: `i"conv2d_5/kernel:0.0"`, an extended identifier.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from nnef_grad.language.syntax import KEYWORDS

_ESCAPED = re.compile(r"\\([\s\S])")
# tract ends a string at either quote, whichever it began with.
_SPECIAL = re.compile(r"[\\'\"]")


def is_plain(name: str) -> bool:
    """Whether a name can be written as it is."""
    return name.isidentifier() and name.isascii() and name not in KEYWORDS


def are_plain(names: Collection[str]) -> bool:
    """Whether all names can be: a graph has thousands, and nearly all are."""
    in_letters = all(map(str.isidentifier, names)) and all(map(str.isascii, names))
    return in_letters and KEYWORDS.isdisjoint(names)


def spelled(name: str) -> str:
    """A name as a text has it: an extended identifier, where it is not plain."""
    return name if is_plain(name) else f'i"{escaped(name)}"'


def plain_name(name: str) -> str:
    """A name of the standard for any name: other characters become underscores."""
    valid = re.sub(r"\W+", "_", name, flags=re.ASCII)
    return f"_{valid}" if valid[:1].isdigit() or not valid else valid


def escaped(text: str) -> str:
    """The inside of a string in quotes, as tract reads it."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def unescaped(text: str) -> str:
    """The text between the quotes of a string: a backslash takes the next character."""
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text
