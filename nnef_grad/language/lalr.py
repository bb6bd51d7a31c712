"""Runs the tables that Lark makes of a grammar: text to whatever a builder makes of its
rules.

The tables are Lark's own, and so is what they mean. Only the loop is another: it makes no
turn for a rule that passes on its one part, such as the rungs of a ladder of precedence,
and its words are the matches of one regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

from lark import Lark
from lark.grammar import Rule, Terminal
from lark.lexer import TerminalDef

# A word of the text; `word[word.lastindex]` are its characters.
Word = re.Match[str]
# The value of a rule, from the values of the symbols at the end of a stack.
Make = Callable[[list[Any]], Any]
# For a rule to be closed before a kind of word: how many symbols it consists of, its value
# (None: it passes on its one part), and the rule with that kind.
Reduction = tuple[int, "Make | None", tuple[str, str]]

_END = "$END"
_UNKNOWN = "UNKNOWN"


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

    def __init__(self, lark: Lark, builder: object) -> None:
        """A rule is the method of the builder of its name or alias. It is called with the
        values of the parts of the rule: a word, what another rule returned, a list for
        what is repeated, None for what is optional and missing. Words that the rule quotes
        are left out.
        """
        terminals = [t for t in lark.terminals if t.name not in lark.lexer_conf.ignore]
        ignored = [t for t in lark.terminals if t.name in lark.lexer_conf.ignore]
        self.literals = {
            t.pattern.value: t.name for t in terminals if t.pattern.type == "str"
        }
        self.literals[""] = _END
        self._words = re.compile(_word_pattern(terminals, ignored))
        self._starts = _states(lark, builder)

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
                del states[first + 1 :]
                state = states[-1][goal]
                states.append(state)
                step = state.get(kind)
            if step is None:
                raise UnexpectedWordError(word, kind != _UNKNOWN, _accepted(states))
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


# ---- From Lark's tables ----


def _word_pattern(terminals: list[TerminalDef], ignored: list[TerminalDef]) -> str:
    """What is ignored, then a word in a group that is named after its kind. As something
    is always found, nothing that is ignored is ever looked at as a word.
    """
    ordered = sorted(
        terminals,
        key=lambda t: (
            -t.priority,
            -t.pattern.max_width,
            -len(t.pattern.value),
            t.name,
        ),
    )
    groups = [
        f"(?P<{t.name}>{t.pattern.value})" for t in ordered if t.pattern.type == "re"
    ]
    literals = [re.escape(t.pattern.value) for t in ordered if t.pattern.type == "str"]
    groups += [rf"(?P<LITERAL>{'|'.join(literals)}|\Z)", rf"(?P<{_UNKNOWN}>[\s\S])"]
    return f"(?:{'|'.join(t.pattern.value for t in ignored)})*(?:{'|'.join(groups)})"


def _states(lark: Lark, builder: object) -> dict[str, _State]:
    """The state that each start rule begins in; all others follow from these."""
    configuration = lark.parse_interactive(
        "", lark.options.start[0]
    ).parser_state.parse_conf
    table = configuration.parse_table
    states = {number: _State() for number in table.states}
    makers: dict[Rule, Make | None] = {}
    for number, row in table.states.items():
        for symbol, (_, goal) in row.items():
            if not isinstance(goal, Rule):
                states[number][symbol] = states[goal]
                continue
            if goal not in makers:
                makers[goal] = _maker(goal, builder)
            size, rule = len(goal.expansion), str(goal.origin.name)
            states[number][symbol] = (size, makers[goal], (rule, symbol))
    for end in table.end_states.values():
        states[end][_END] = states[end]
    return {str(start): states[number] for start, number in table.start_states.items()}


def _maker(rule: Rule, builder: object) -> Make | None:
    """What makes the value of a rule: the method of its name."""
    name = str(rule.alias or rule.origin.name)
    slots = _slots(rule)
    if len(slots) == 1 and rule.options.expand1 and not rule.alias:
        return None if len(rule.expansion) == 1 else itemgetter(*slots)
    if name.startswith("__"):
        method: Callable[..., Any] = (
            _list if rule.expansion[0] != rule.origin else _more
        )
    else:
        method = getattr(builder, name)
    match slots:
        case [int(only)]:
            return lambda values: method(values[only])
        case [int(), *others] if None not in others:
            pick = itemgetter(*slots)
            return lambda values: method(*pick(values))
    return lambda values: method(*[s if s is None else values[s] for s in slots])


def _slots(rule: Rule) -> list[int | None]:
    """Where the parts of a rule are, from the end of the stack: None if one is missing."""
    slots: list[int | None] = []
    places: Iterator[int] = iter(range(-len(rule.expansion), 0))
    symbols = iter(rule.expansion)
    for is_missing in rule.options.empty_indices or [False] * len(rule.expansion):
        if is_missing:
            slots.append(None)
            continue
        place, symbol = next(places), next(symbols)
        if not (isinstance(symbol, Terminal) and symbol.filter_out):
            slots.append(place)
    return slots


def _list(*items: Any) -> list[Any]:
    """The value of the first of repeated parts."""
    return list(items)


def _more(items: list[Any], *more: Any) -> list[Any]:
    """The same list with another part."""
    items += more
    return items
