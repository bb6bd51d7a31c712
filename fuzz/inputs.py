"""An input of the fuzzer: bytes, and what is done with them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

# What may be examined besides a text: an option of the same name says how.
SUBJECTS = ("step", "loop", "changed")


@dataclass(frozen=True)
class Command:
    """A run of the command line on a stored model.

    Attributes:
        form: how the bytes are stored: as a `file`; as a `folder`, of which the bytes are
            a tar archive; `beside` the document, as the files around it; or as `stdin`.
        model: the name of the file or folder.
        output: the value of -o.
        existing: what is at the output before; a key of `fuzz.places.EXISTING`.
        arguments: the options, each with its value.
        size: the number of bytes before compression.
    """

    form: str
    model: str
    output: str
    existing: str
    arguments: list[list[str]]
    size: int

    def words(self) -> list[str]:
        """The command line."""
        model = "-" if self.form == "stdin" else self.model
        flat = [word for argument in self.arguments for word in argument]
        return [model, "-o", self.output, *flat]

    @property
    def is_check(self) -> bool:
        return ["--check"] in self.arguments

    def as_options(self) -> dict[str, Any]:
        """The command, as the options of an input."""
        return {"command": asdict(self)}


@dataclass(frozen=True)
class Input:
    """The bytes of a file, the options to compile them with, and their origin."""

    data: bytes
    options: dict[str, Any] = field(default_factory=dict)
    kind: str = "file"

    @property
    def command(self) -> Command | None:
        """The command to run, if the input is not for the library."""
        found = self.options.get("command")
        return None if found is None else Command(**found)

    @property
    def subject(self) -> str:
        """What is examined besides the text; empty if that is all."""
        return next((name for name in SUBJECTS if name in self.options), "")
