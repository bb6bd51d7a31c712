"""The one family of errors.

An `NnefGradError` is a mistake of the user, or a model that the compiler does not
support. Any other exception is a bug in the compiler; an `InternalError` says where.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nnef_grad.base.source import Span

# The most problems reported in one run, and the most callers shown for each.
MAX_PROBLEMS = 20
MAX_CALLERS = 5
# Messages that quote the user's text may get too long.
LONG_MESSAGE = 400
# The names that are listed of many.
_SHOWN = 3


def brief(message: str) -> str:
    """The message, truncated if it is too long."""
    return message if len(message) <= LONG_MESSAGE else f"{message[:LONG_MESSAGE]}..."


def listed(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    if not names:
        return "none"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:_SHOWN]) + more


def visible(text: str) -> str:
    """The text, with escapes in place of letters that would move the cursor, change colours
    or turn the direction of a terminal; lines and tabs stay.
    """
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode()
        for c in text
    )


def suggestion(name: str, known: Sequence[str]) -> str:
    """`; did you mean 'x'?` if a known name is similar, otherwise nothing."""
    from difflib import get_close_matches  # nothing else needs it

    near = get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean '{near[0]}'?" if near else ""


# What the text of an extent has for those that compare texts: see graph/extents.py.
_MARKS = re.compile(r"\{[\d#]*#[\d#]*\}")


# Lenient reading repairs known mistakes of exporters; overwriting replaces a file; a
# smaller batch or input takes less memory; a symbol of a dialect needs a number; an input
# may be a constant.
Remedy = Literal[
    "constant",
    "dialect",
    "lenient",
    "onnx",
    "overwrite",
    "smaller",
    "symbol",
    "unroll",
]


# The argument that would help, for callers of functions.
_ARGUMENTS: Mapping[str | None, str] = {
    "constant": "; constants={name: x} makes an input one",
    "dialect": ": read it with dialect='tract'",
    "lenient": ", or read it with lenient=True",
    "overwrite": ": overwrite=True replaces it",
    "symbol": ": give it one with symbols={name: n}, or by batch or input_shapes",
    "unroll": ": read it with unroll=n, for so many steps",
}


class Problem(NamedTuple):
    """A problem and its place.

    Attributes:
        message: what is wrong, and what to do about it where that is known.
        span: the place in the source, or None where there is no text to point at.
        remedy: the option that would help, if there is one.
    """

    message: str
    span: Span | None = None
    remedy: Remedy | None = None

    def position(self) -> int:
        """The offset in its source, to sort by."""
        return self.span.start if self.span is not None else 0

    def __str__(self) -> str:
        return self.render("error")

    def render(self, kind: str) -> str:
        """The message, its place, line and callers; `kind` is error or warning."""
        # A line of a name of the file would look like one of ours.
        message = f"{kind}: {self.message}".replace("\n", "\\n")
        if self.span is None or not self.span.source.name:
            return visible(message)
        lines = [f"{self.span}: {message}"]
        lines += [self.span.excerpt()] if self.span.source.text else []
        callers = list(self.span.callers)
        for place in callers[:MAX_CALLERS]:
            lines += [f"{place}: called from here", place.excerpt()]
        if len(callers) > MAX_CALLERS:
            lines.append(f"... and from {len(callers) - MAX_CALLERS} more invocations")
        return visible("\n".join(lines))

    def as_data(self) -> dict[str, Any]:
        """The same for programs: the message, its place, and those of its callers."""
        places = [] if self.span is None else [self.span, *self.span.callers]
        data = [place.as_data() for place in places]
        return {"message": self.message, "places": data}


class NnefGradError(Exception):
    """A mistake of the user, or an unsupported model.

    Attributes:
        message: what is wrong, and what to do about it where that is known.
        span: the place in the source, or None where there is no text to point at.
        problems: all problems; the first one gives `message` and `span`.
        sizes: a number for each symbol of the model, as an example, where numbers are needed.
        constants: a number for an input, by its name, as an example, where a constant helps.
    """

    sizes: Mapping[str, int] = {}
    constants: Mapping[str, float] = {}

    def __init__(
        self, message: str, span: Span | None = None, *, remedy: Remedy | None = None
    ) -> None:
        told = _MARKS.sub("", message)
        self.problems: tuple[Problem, ...] = (Problem(told, span, remedy),)
        super().__init__(told)

    @property
    def message(self) -> str:
        """The message of the first problem."""
        return self.problems[0].message

    @property
    def span(self) -> Span | None:
        """The place of the first problem."""
        return self.problems[0].span

    def __str__(self) -> str:
        told = [
            p._replace(message=f"{p.message}{_ARGUMENTS.get(p.remedy, '')}")
            for p in self.problems
        ]
        # Python says that it is an error.
        return "\n".join(line.removeprefix("error: ") for line in _lines(told))

    def render(self) -> str:
        """All problems as a compiler prints them: `model.nnef:3:5: error: ...`."""
        return "\n".join(_lines(self.problems))

    def called_from(self, caller: Span | None) -> None:
        """Adds the invocation whose expansion met the error to problems without one."""
        self.problems = tuple(
            p._replace(span=p.span._replace(caller=caller))
            if p.span is not None and p.span.caller is None
            else p
            for p in self.problems
        )

    @classmethod
    def collect(cls, problems: list[Problem]) -> NnefGradError:
        """One error that reports several problems, in the order given."""
        error = cls(problems[0].message)
        error.problems = tuple(problems)
        return error


def _lines(problems: Sequence[Problem]) -> list[str]:
    """The first problems, each with its place, and how many more there are. What is the same
    for several operations that have no lines in a text is said once.
    """
    lines = list(dict.fromkeys(map(str, problems)))
    if len(lines) > MAX_PROBLEMS:
        lines[MAX_PROBLEMS:] = [f"... and {len(lines) - MAX_PROBLEMS} more errors"]
    return lines


class NnefSyntaxError(NnefGradError):
    """The text is not a document of NNEF 1.0."""


class InvalidGraphError(NnefGradError):
    """The text is well-formed, but breaks a rule of the language or of an operation."""


class NoDerivativeError(NnefGradError):
    """Operations between the outputs and the `wrt` tensors have no derivative."""


class UnsupportedError(NnefGradError):
    """A target cannot express operations of the graph."""


class UsageError(NnefGradError):
    """A request does not fit the model: an unknown name, an option out of range."""


class InternalError(Exception):
    """A bug: what the compiler was doing, and the exception that nobody foresaw."""

    def __init__(self, place: str, error: Exception) -> None:
        what = f"{place}: {type(error).__name__}: {error}"
        super().__init__(f"this is a bug in nnef-grad, at {brief(what)}")


# What is no operation that failed: it ends what is done, whatever that is.
ENDING = (InternalError, MemoryError, RecursionError)

_PACKAGE = str(Path(__file__).parents[1])
# What no value of a user's file leads to, where other code has checked its types.
_OF_CODE = (AssertionError, AttributeError, NameError, TypeError)


@contextmanager
def bugs_at(place: str, *expected: type[Exception]) -> Iterator[None]:
    """Turns exceptions that are not expected into ones that say where the bug is."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (NnefGradError, *ENDING, *expected)):
            raise
        raise InternalError(place, error) from error


def is_bug(error: Exception) -> bool:
    """Whether an exception is a mistake in code of this package, among those of a library
    that it calls with data of the user.
    """
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    is_own = place is None or place.tb_frame.f_code.co_filename.startswith(_PACKAGE)
    return is_own and isinstance(error, _OF_CODE)


def refuse_unknown(names: Iterable[str], known: Collection[str], what: str) -> None:
    """Raises `UsageError` for a name that is not known: `what` says who has none."""
    for name in names:
        if name not in known:
            raise UsageError(f"{what} '{name}'{suggestion(name, [*known])}")


@contextmanager
def located(span: Span | None) -> Iterator[None]:
    """Gives errors that are raised inside without a place this one."""
    try:
        yield
    except InvalidGraphError as error:
        if error.span is not None:
            raise
        remedy = error.problems[0].remedy
        raise InvalidGraphError(error.message, span, remedy=remedy) from None


@contextmanager
def bounded_nesting(span: Span) -> Iterator[None]:
    """Refuses a text that is nested too deeply for Python's recursion limit."""
    try:
        yield
    except RecursionError:
        raise nested_too_deeply(span) from None


def nested_too_deeply(span: Span) -> InvalidGraphError:
    """The error for a text whose nesting has come to Python's recursion limit."""
    return InvalidGraphError("this is nested too deeply", span)
