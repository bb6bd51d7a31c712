"""Generates the tables of the parser from the grammar, with Lark:

    python -m nnef_grad.language.generate

They are kept beside this file, so that a process need not generate them, nor import Lark.
After a change of the grammar it does, until they are written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from zlib import crc32

from lark import Lark
from lark.grammar import Rule as LarkRule
from lark.grammar import Terminal
from lark.lexer import TerminalDef

from nnef_grad.language.grammar import TABLES, grammar_path
from nnef_grad.language.lalr import END, LIST, MORE, UNKNOWN, Rule, Tables

STARTS = ["document", "library", "quantization", "call"]


def main() -> None:
    """Writes the tables."""
    TABLES.write_text(text(grammar_path().read_bytes()), "utf-8")


def text(grammar: bytes) -> str:
    """A checksum of a grammar and its tables as JSON, a line for each rule and state."""
    tables = {"grammar": crc32(grammar), **generated(grammar)._asdict()}
    fields = (f"{json.dumps(name)}: {_lines(v)}" for name, v in tables.items())
    return f"{{{', '.join(fields)}}}\n"


def generated(grammar: bytes) -> Tables:
    """The tables of a grammar. States and rules are numbered in the order in which they
    are reached: the same grammar has the same tables.
    """
    lark = Lark(grammar.decode(), parser="lalr", lexer="basic", start=STARTS)
    is_ignored = set(lark.lexer_conf.ignore).__contains__
    terminals = [t for t in lark.terminals if not is_ignored(t.name)]
    ignored = [t for t in lark.terminals if is_ignored(t.name)]
    literals = {t.pattern.value: t.name for t in terminals if t.pattern.type == "str"}
    table = lark.parse_interactive("", STARTS[0]).parser_state.parse_conf.parse_table
    starts = {str(start): number for start, number in table.start_states.items()}
    numbers, rules = _numbers(table.states, starts), dict[LarkRule, int]()

    def row(state: int) -> Iterator[tuple[str, int]]:
        for symbol, goal in _steps(table.states[state]):
            is_rule = isinstance(goal, LarkRule)
            number = (
                -1 - rules.setdefault(goal, len(rules)) if is_rule else numbers[goal]
            )
            yield symbol, number
        if state in table.end_states.values():
            yield END, numbers[state]

    return Tables(
        words=_word_pattern(terminals, ignored),
        literals={**dict(sorted(literals.items())), "": END},
        states=[dict(row(state)) for state in numbers],
        rules=[*map(_rule, rules)],
        starts={start: numbers[state] for start, state in sorted(starts.items())},
    )


def _lines(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"


def _steps(row: dict[str, tuple[Any, Any]]) -> list[tuple[str, Any]]:
    """The symbols of a state, each with the state or the rule that follows."""
    return sorted((str(symbol), goal) for symbol, (_, goal) in row.items())


def _numbers(states: dict[int, Any], starts: dict[str, int]) -> dict[int, int]:
    """New numbers for the states, in the order in which they are reached."""
    reached = dict.fromkeys(state for _, state in sorted(starts.items()))
    pending = [*reached]
    for state in pending:
        goals = [goal for _, goal in _steps(states[state]) if isinstance(goal, int)]
        pending += [goal for goal in dict.fromkeys(goals) if goal not in reached]
        reached.update(dict.fromkeys(goals))
    return {state: number for number, state in enumerate(reached)}


def _word_pattern(terminals: list[TerminalDef], ignored: list[TerminalDef]) -> str:
    """Ignored text, then a word in a group that is named after its kind. As the pattern
    always matches, ignored text is never taken for a word.
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
    groups += [rf"(?P<LITERAL>{'|'.join(literals)}|\Z)", rf"(?P<{UNKNOWN}>[\s\S])"]
    return f"(?:{'|'.join(t.pattern.value for t in ignored)})*(?:{'|'.join(groups)})"


def _rule(rule: LarkRule) -> Rule:
    """A rule of Lark: its method is that of its alias or its name."""
    name, parts = str(rule.origin.name), _parts(rule)
    method: str | None = str(rule.alias or name)
    if len(parts) == 1 and rule.options.expand1 and not rule.alias:
        method = None
    elif name.startswith("__"):
        method = MORE if rule.expansion[0] == rule.origin else LIST
    return Rule(name, len(rule.expansion), method, parts)


def _parts(rule: LarkRule) -> list[int | None]:
    """Where the parts of a rule are, from the end of the stack; None if one is missing.
    Words that the rule quotes are left out.
    """
    parts: list[int | None] = []
    places: Iterator[int] = iter(range(-len(rule.expansion), 0))
    symbols = iter(rule.expansion)
    for is_missing in rule.options.empty_indices or [False] * len(rule.expansion):
        if is_missing:
            parts.append(None)
            continue
        place, symbol = next(places), next(symbols)
        if not (isinstance(symbol, Terminal) and symbol.filter_out):
            parts.append(place)
    return parts


if __name__ == "__main__":
    main()
