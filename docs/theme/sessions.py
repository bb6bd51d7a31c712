"""Console sessions of a page: their copy buttons take the commands, without prompts and
output.
"""

from __future__ import annotations

import html
import re

CONSOLE = re.compile(
    r'<div (class="language-console highlight">)(.*?</pre>)', re.DOTALL
)
TAG = re.compile(r"<[^>]*>")


def with_commands(page: str) -> str:
    """A page in HTML whose console sessions say what is to be copied: the attribute is
    that of Material for MkDocs.
    """
    return CONSOLE.sub(_copied_as_commands, page)


def _copied_as_commands(session: re.Match[str]) -> str:
    """A console session with what its copy button takes: without prompts and output."""
    text = html.escape(commands(html.unescape(TAG.sub("", session[2]))))
    return f'<div data-copy="{text}" {session[1]}{session[2]}'


def commands(session: str) -> str:
    """The commands of a session: lines after a prompt, and those that continue them."""
    found, goes_on = [], False
    for line in session.splitlines():
        if line.startswith("$ ") or goes_on:
            found.append(line.removeprefix("$ "))
            goes_on = line.endswith("\\")
    return "\n".join(found)
