"""Matches the arguments of an invocation with the parameters of its declaration."""

from __future__ import annotations

from collections.abc import Collection

from nnef_grad.base.errors import InvalidGraphError, suggestion
from nnef_grad.base.source import Span
from nnef_grad.language.syntax import (
    Expression,
    Fragment,
    Invocation,
    Keyword,
    Parameter,
)


def match(fragment: Fragment, invocation: Invocation) -> tuple[str, ...]:
    """The parameter that each argument is for; `InvalidGraphError` if one has none. Each
    form of an invocation is matched once.
    """
    keywords, matches = invocation.keywords, fragment.matches()
    names = matches.get(keywords)
    if names is None:
        names = matches[keywords] = _names(fragment, invocation)
    return names


def _names(fragment: Fragment, invocation: Invocation) -> tuple[str, ...]:
    names: dict[str, None] = {}
    has_keywords = False
    for position, argument in enumerate(invocation.arguments):
        if isinstance(argument, Keyword):
            has_keywords = True
            name = _checked(fragment, argument)
        elif has_keywords:
            message = "a positional argument cannot follow a keyword argument"
            raise InvalidGraphError(message, argument.span)
        else:
            name = _at_position(fragment, argument, position)
        if name in names:
            message = f"argument '{name}' of '{fragment.name}' is given twice"
            raise InvalidGraphError(message, argument.span)
        names[name] = None
    refuse_missing(fragment, names, invocation.span)
    return tuple(names)


def parameter_at(fragment: Fragment, argument: Expression, position: int) -> Parameter:
    """The parameter at the position of an argument."""
    count = len(fragment.parameters)
    if position >= count:
        parameters = f"{count} parameter{'s' if count != 1 else ''}"
        message = f"too many arguments: '{fragment.name}' has {parameters}"
        raise InvalidGraphError(message, argument.span)
    return fragment.parameters[position]


def _at_position(fragment: Fragment, argument: Expression, position: int) -> str:
    name = parameter_at(fragment, argument, position).name
    if position >= len(fragment.operands):
        message = f"an attribute needs its keyword: write {name} = {argument.span.text}"
        raise InvalidGraphError(message, argument.span, remedy="lenient")
    return name


def _checked(fragment: Fragment, argument: Keyword) -> str:
    """The name in a keyword, which is that of a parameter."""
    names = [p.name for p in fragment.parameters]
    if argument.name not in names:
        advice = suggestion(argument.name, names) or f"; it has {', '.join(names)}"
        message = f"'{fragment.name}' has no parameter '{argument.name}'{advice}"
        raise InvalidGraphError(message, argument.span)
    return argument.name


def refuse_missing(fragment: Fragment, names: Collection[str], span: Span) -> None:
    """Raises InvalidGraphError where a parameter without a default is not given."""
    needed = (p.name for p in fragment.parameters if p.default is None)
    missing = " and ".join(f"'{name}'" for name in needed if name not in names)
    if missing:
        is_known = (fragment.name, missing) == ("transpose", "'axes'")
        message = f"'{fragment.name}' needs {missing}"
        raise InvalidGraphError(message, span, remedy="lenient" if is_known else None)
