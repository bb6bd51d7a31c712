"""Runs the tables of a grammar: text to whatever a builder makes of its rules.

The tables are those of an LALR(1) parser, which Lark makes; see generate.py. The loop
makes no turn for a rule that passes on its one part, such as the rungs of a ladder of
precedence, and its words are the matches of one regular expression.

Which rules are closed depends on the kinds of the words alone. A text has many statements
and few sequences of kinds, so that of statements that are alike, one is traced: for the
others, values are made in the same order, without the tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

# A word of the text; `word[word.lastindex]` are its characters.
Word = re.Match[str]
# The value of a rule, from a list with the values of its symbols.
Make = Callable[[list[Any]], Any]

END = "$END"
UNKNOWN = "UNKNOWN"
# The methods of rules for what is repeated: a list of the first part, and a longer one.
LIST, MORE = "[]", "+="

# The output of generate.py, and a checksum of the grammar.
TABLES = Path(__file__).parent / "tables.json"


def grammar_path() -> Path:
    """The path of the grammar: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    path = package / "grammars" / "nnef.lark"
    return path if path.exists() else package.parent / "grammars" / "nnef.lark"


class Production(NamedTuple):
    """A rule: what stands on its left side, and how many symbols on the right."""

    name: str
    size: int
    # The method of the builder that makes its value: LIST or MORE for what is repeated;
    # None if it passes on its one part.
    method: str | None
    # Where the values of its parts are, from the end of the stack; None for one that is
    # optional and missing.
    parts: list[int | None]


class Tables(NamedTuple):
    """The tables of a grammar."""

    # A regular expression for ignored text and the word after it, in a group that is
    # named after its kind.
    words: str
    # The kinds of the words that the grammar gives as they are.
    literals: dict[str, str]
    rules: list[Production]
    # For each state, by the kind of the next word or by a rule that was closed, the
    # number of the next state, or -1 - the number of a rule to close.
    states: list[dict[str, int]]
    # The first states of the rules that a text may be read by.
    starts: dict[str, int]


class UnexpectedWordError(Exception):
    """A word that cannot follow, empty at the end, and the kinds that could."""

    def __init__(self, word: Word, accepted: set[str]) -> None:
        self.word, self.accepted = word, accepted
        super().__init__(word[0])


class Maker(NamedTuple):
    """Makes a rule's value: `make` takes a list that ends in those of its symbols."""

    method: Callable[..., Any]
    parts: list[int | None]
    make: Make


class _State(dict[Any, Any]):
    """A state of the automaton: by the kind of the next word, the next state, or, for a
    rule to be closed before it, how many symbols it consists of, what makes its value
    (None: it passes on its one part), and the rule with that kind; by a rule that was
    closed, the next state.

    The state after a rule and before a kind of word is found once: rules that only pass on
    their part are closed at the same time. A state equals none but itself.
    """

    __eq__ = object.__eq__

    def __missing__(self, key: tuple[str, str]) -> _State:
        rule, kind = key
        state: _State = self[rule]
        while type(step := state.get(kind)) is tuple and step[1] is None:
            *_, (rule, _) = step
            state = self[rule]
        self[key] = state
        return state


class Automaton:
    """Reads texts by a grammar, with `literals`: see `Tables`."""

    def __init__(self, tables: Tables, builder: object) -> None:
        """Rules are methods of the builder, which take the values of their parts."""
        self.literals = tables.literals
        self._words = re.compile(tables.words)
        states = _states(tables, builder)
        self._starts = {rule: states[number] for rule, number in tables.starts.items()}
        self._ends = {tables.literals.get(";"), END}

    def parse(self, rule: str, text: str, start: int, end: int) -> Any:
        """The value of a rule for a part of a text, or `UnexpectedWordError`."""
        literals, ends = self.literals, self._ends
        reader = _Reader(self._starts[rule])
        words, kinds = list[Word](), list[str]()
        for word in self._words.finditer(text, start, end):
            kind: Any = literals.get(word[word.lastindex or 0]) or word.lastgroup
            words.append(word)
            kinds.append(kind)
            if kind in ends:
                reader.read(words, tuple(kinds))
                words, kinds = [], []
        return reader.values[0]


class _Trace(NamedTuple):
    """The actions of the parser on the words of a statement: the states at the end of the
    stack that it depends on, and those in their place; what makes a value each, in order;
    and where those values are that stay on the stack.

    The values are those at the end of the stack, between the states before; then the
    words; then those that are made.
    """

    before: list[_State]
    after: list[_State]
    makes: list[Make]
    kept: list[int]


class _Reader:
    """Reads a text, statement by statement; `values` are not yet part of a rule."""

    def __init__(self, start: _State) -> None:
        self.values: list[Any] = []
        self._states = [start]
        self._met: set[tuple[str, ...]] = set()
        self._traces: dict[tuple[str, ...], _Trace] = {}

    def read(self, words: list[Word], kinds: tuple[str, ...]) -> None:
        """Reads a statement. It is traced when its kinds of words are met again."""
        trace = self._traces.get(kinds)
        if trace is not None and self._states[-len(trace.before) :] == trace.before:
            self._repeat(trace, words)
            return
        before = [*self._states]
        lowest, steps, places = self._advance(words, kinds)
        if kinds in self._met:
            makes = [
                _make(method, [p if p is None else symbols[p] - lowest for p in parts])
                for (method, parts, _), symbols in steps
            ]
            kept = [place - lowest for place in places[lowest:]]
            after = self._states[lowest:]
            self._traces[kinds] = _Trace(before[lowest:], after, makes, kept)
        self._met.add(kinds)

    def _advance(
        self, words: list[Word], kinds: tuple[str, ...]
    ) -> tuple[int, list[tuple[Maker, list[int]]], list[int]]:
        """Reads words by the tables. Returns how much of the stack stays, and, with the
        places of values as in a trace of the whole stack, what made values, of which
        symbols, and those on the stack.
        """
        states, values = self._states, self.values
        depth = lowest = len(values)
        places, last = [*range(depth)], depth + len(words)
        steps: list[tuple[Maker, list[int]]] = []
        for position, kind in enumerate(kinds):
            step = states[-1].get(kind)
            while step.__class__ is tuple:
                size, maker, goal = step
                first = len(values) - size
                if first < lowest:
                    lowest = first
                if maker is not None:
                    steps.append((maker, places[first:]))
                    values[first:] = (maker.make(values),)
                    places[first:] = (last,)
                    last += 1
                state = states[first][goal]
                states[first + 1 :] = (state,)
                step = state.get(kind)
            if step is None:
                raise UnexpectedWordError(words[position], _accepted(states))
            states.append(step)
            values.append(words[position])
            places.append(depth + position)
        return lowest, steps, places

    def _repeat(self, trace: _Trace, words: list[Word]) -> None:
        """Reads words like those of a trace."""
        first = len(self.values) - len(trace.before) + 1
        values = self.values[first:] + words
        for make in trace.makes:
            values.append(make(values))
        self.values[first:] = [values[place] for place in trace.kept]
        self._states[first:] = trace.after


def _accepted(states: list[_State]) -> set[str]:
    """The kinds of words that can follow."""

    def can_follow(kind: str) -> bool:
        stack = [*states]
        while type(step := stack[-1].get(kind)) is tuple:
            size, _, goal = step
            del stack[len(stack) - size :]
            stack.append(stack[-1][goal])
        return step is not None

    # States get further entries where they are looked up.
    kinds = [kind for kind in states[-1] if isinstance(kind, str) and kind.isupper()]
    return {*filter(can_follow, kinds)}


# ---- From the tables ----


def _states(tables: Tables, builder: object) -> list[_State]:
    states = [_State() for _ in tables.states]
    rules = [(rule.size, _maker(rule, builder), rule.name) for rule in tables.rules]
    for state, row in zip(states, tables.states, strict=True):
        for symbol, step in row.items():
            if step >= 0:
                state[symbol] = states[step]
            else:
                size, maker, name = rules[-1 - step]
                state[symbol] = (size, maker, (name, symbol))
    return states


def _maker(rule: Production, builder: object) -> Maker | None:
    _, size, name, parts = rule
    if name is None and size == 1:
        return None
    method = _METHODS.get(name) or getattr(builder, str(name))
    return Maker(method, parts, _make(method, parts))


def _make(method: Callable[..., Any], parts: list[int | None]) -> Make:
    """Calls a method of the builder with some of the values of a list."""
    match parts:
        case [int(only)]:
            return lambda values: method(values[only])
        case [int(), *others] if None not in others:
            pick = itemgetter(*parts)
            return lambda values: method(*pick(values))
    return lambda values: method(*[p if p is None else values[p] for p in parts])


def _more(items: list[Any], *more: Any) -> list[Any]:
    items += more
    return items


# None: a rule of one part and of words that it quotes.
_METHODS: dict[str | None, Callable[..., Any]] = {
    LIST: lambda *items: [*items],
    MORE: _more,
    None: lambda part: part,
}
