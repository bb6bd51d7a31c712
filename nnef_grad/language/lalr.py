"""Runs the tables of a grammar: text to whatever a builder makes of its rules.

The tables are those of an LALR(1) parser, which Lark makes; see generate.py. The loop
makes no turn for a rule that passes on its one part, such as the rungs of a ladder of
precedence, and its words are the matches of one regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

# A word of the text; `word[word.lastindex]` are its characters.
Word = re.Match[str]
# The value of a rule, from the values of the symbols at the end of a stack.
Make = Callable[[list[Any]], Any]
# For a rule to be closed before a kind of word: how many symbols it consists of, its value
# (None: it passes on its one part), and the rule with that kind.
Reduction = tuple[int, "Make | None", tuple[str, str]]

END = "$END"
UNKNOWN = "UNKNOWN"


class Rule(NamedTuple):
    """A rule of the tables.

    Attributes:
        name: what stands on its left side.
        size: how many symbols stand on the right side.
        method: the method of the builder that makes its value: LIST or MORE for what is
            repeated; None if it passes on its one part.
        parts: where the values of its parts are, from the end of the stack; None for one
            that is optional and missing.
    """

    name: str
    size: int
    method: str | None
    parts: list[int | None]


# What makes a list of the first of repeated parts, and adds to it.
LIST, MORE = "[]", "+="


class Tables(NamedTuple):
    """What is known of a grammar.

    Attributes:
        words: a regular expression for what is ignored and the word after it, in a group
            that is named after its kind.
        literals: the kinds of the words that the grammar gives as they are.
        rules: the rules.
        states: for each state, by the kind of the next word or by a rule that was closed,
            the number of the next state, or -1 - the number of a rule to close.
        starts: the first states of the rules that a text may be read by.
    """

    words: str
    literals: dict[str, str]
    rules: list[Rule]
    states: list[dict[str, int]]
    starts: dict[str, int]


class UnexpectedWordError(Exception):
    """A word that cannot follow those before it.

    Attributes:
        word: the word, empty at the end of the text.
        is_known: whether it is a word of the language.
        accepted: the kinds of words that could follow.
    """

    def __init__(self, word: Word, is_known: bool, accepted: set[str]) -> None:
        self.word = word
        self.is_known = is_known
        self.accepted = accepted
        super().__init__(word[0])


class _State(dict[Any, Any]):
    """A state of the automaton: by the kind of the next word, the next state or a
    reduction; by a rule that was closed, the next state.

    The state after a rule and before a kind of word is found once: rules that only pass on
    their part are closed at the same time.
    """

    def __missing__(self, key: tuple[str, str]) -> _State:
        rule, kind = key
        state: _State = self[rule]
        while type(step := state.get(kind)) is tuple and step[1] is None:
            *_, (rule, _) = step
            state = self[rule]
        self[key] = state
        return state


class Automaton:
    """Reads texts by a grammar.

    Attributes:
        literals: the kind of each word that the grammar gives as it is.
    """

    def __init__(self, tables: Tables, builder: object) -> None:
        """A rule is a method of the builder. It is called with the values of the parts of
        the rule: a word, what another rule returned, a list for what is repeated, None
        for what is optional and missing.
        """
        self.literals = tables.literals
        self._words = re.compile(tables.words)
        states = _states(tables, builder)
        self._starts = {rule: states[number] for rule, number in tables.starts.items()}

    def parse(self, rule: str, text: str, start: int, end: int) -> Any:
        """The value of a rule that a part of a text is read by.

        Raises:
            UnexpectedWordError: that part is not an instance of the rule.
        """
        literals = self.literals
        states, values = [self._starts[rule]], list[Any]()
        for word in self._words.finditer(text, start, end):
            kind = literals.get(word[word.lastindex or 0]) or word.lastgroup
            step = states[-1].get(kind)
            while step.__class__ is tuple:
                size, make, goal = step
                first = len(values) - size
                if make is not None:
                    values[first:] = (make(values),)
                state = states[first][goal]
                states[first + 1 :] = (state,)
                step = state.get(kind)
            if step is None:
                raise UnexpectedWordError(word, kind != UNKNOWN, _accepted(states))
            states.append(step)
            values.append(word)
        return values[0]


def _accepted(states: list[_State]) -> set[str]:
    """The kinds of words that can follow."""
    return {
        kind
        for kind in states[-1]
        if isinstance(kind, str) and kind.isupper() and _can_follow(kind, states)
    }


def _can_follow(kind: str, states: list[_State]) -> bool:
    states = list(states)
    while type(step := states[-1].get(kind)) is tuple:
        size, _, goal = step
        del states[len(states) - size :]
        states.append(states[-1][goal])
    return step is not None


# ---- From the tables ----


def _states(tables: Tables, builder: object) -> list[_State]:
    states = [_State() for _ in tables.states]
    rules = [(rule.size, _maker(rule, builder), rule.name) for rule in tables.rules]
    for state, row in zip(states, tables.states, strict=True):
        for symbol, step in row.items():
            if step >= 0:
                state[symbol] = states[step]
            else:
                size, make, name = rules[-1 - step]
                state[symbol] = (size, make, (name, symbol))
    return states


def _maker(rule: Rule, builder: object) -> Make | None:
    """What makes the value of a rule."""
    _, size, name, parts = rule
    if name is None:
        return None if size == 1 else itemgetter(*parts)
    method: Callable[..., Any] = _REPETITIONS.get(name) or getattr(builder, name)
    match parts:
        case [int(only)]:
            return lambda values: method(values[only])
        case [int(), *others] if None not in others:
            pick = itemgetter(*parts)
            return lambda values: method(*pick(values))
    return lambda values: method(*[p if p is None else values[p] for p in parts])


def _list(*items: Any) -> list[Any]:
    """The value of the first of repeated parts."""
    return list(items)


def _more(items: list[Any], *more: Any) -> list[Any]:
    """The same list with another part."""
    items += more
    return items


_REPETITIONS: dict[str, Callable[..., Any]] = {LIST: _list, MORE: _more}
