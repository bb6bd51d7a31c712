"""Generates the tables of the parser from the grammar, with Lark:

    python -m nnef_grad.language.generate

They are kept beside this file, so that a process need not generate them, nor import Lark.
After a change of the grammar it does, until they are written again.
"""

from __future__ import annotations

import json
import re
from typing import Any
from zlib import crc32

from lark import Lark
from lark.grammar import Rule, Terminal
from lark.lexer import TerminalDef

from nnef_grad.language.lalr import (
    END,
    LIST,
    MORE,
    TABLES,
    UNKNOWN,
    Production,
    Tables,
    grammar_path,
)

STARTS = ["document", "library", "quantization", "call"]


def main() -> None:
    """Writes the tables."""
    TABLES.write_text(text(grammar_path().read_bytes()), "utf-8")


def text(grammar: bytes) -> str:
    """A checksum of a grammar and its tables as JSON, a line for each rule and state."""
    tables = {"grammar": crc32(grammar), **generated(grammar)._asdict()}
    fields = (f"{json.dumps(name)}: {_lines(v)}" for name, v in tables.items())
    return f"{{{', '.join(fields)}}}\n"


def _lines(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"


def generated(grammar: bytes) -> Tables:
    """The tables of a grammar, numbered as they are reached: the same each time."""
    lark = Lark(grammar.decode(), parser="lalr", lexer="basic", start=STARTS)
    literals = {
        t.pattern.value: t.name for t in lark.terminals if t.pattern.type == "str"
    }
    table = lark.parse_interactive("", STARTS[0]).parser_state.parse_conf.parse_table
    # The symbols of each state, each with the state or the rule that follows.
    steps = {
        state: sorted((str(symbol), goal) for symbol, (_, goal) in row.items())
        for state, row in table.states.items()
    }
    starts = sorted((str(start), state) for start, state in table.start_states.items())
    numbers, rules = dict[int, int](), dict[Rule, int]()
    pending = [state for _, state in starts]
    for state in pending:
        if state not in numbers:
            numbers[state] = len(numbers)
            pending += [goal for _, goal in steps[state] if isinstance(goal, int)]

    def number(goal: int | Rule) -> int:
        if isinstance(goal, Rule):
            return -1 - rules.setdefault(goal, len(rules))
        return numbers[goal]

    states = [{symbol: number(goal) for symbol, goal in steps[s]} for s in numbers]
    for end in table.end_states.values():
        states[numbers[end]][END] = numbers[end]
    return Tables(
        words=_word_pattern(lark),
        literals={**dict(sorted(literals.items())), "": END},
        states=states,
        rules=[*map(_rule, rules)],
        starts={start: numbers[state] for start, state in starts},
    )


def _word_pattern(lark: Lark) -> str:
    """Ignored text, then a word: it always matches, so that neither is the other."""

    def order(t: TerminalDef) -> tuple[int, int, int, str]:
        return -t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name

    ignored = [t for t in lark.terminals if t.name in lark.lexer_conf.ignore]
    ordered = sorted((t for t in lark.terminals if t not in ignored), key=order)
    groups = [
        f"(?P<{t.name}>{t.pattern.value})" for t in ordered if t.pattern.type == "re"
    ]
    literals = [re.escape(t.pattern.value) for t in ordered if t.pattern.type == "str"]
    groups += [rf"(?P<LITERAL>{'|'.join(literals)}|\Z)", rf"(?P<{UNKNOWN}>[\s\S])"]
    return f"(?:{'|'.join(t.pattern.value for t in ignored)})*(?:{'|'.join(groups)})"


def _rule(rule: Rule) -> Production:
    """A rule of Lark: its method is that of its alias or its name."""
    name, parts = str(rule.origin.name), _parts(rule)
    method: str | None = str(rule.alias or name)
    if len(parts) == 1 and rule.options.expand1 and not rule.alias:
        method = None
    elif name.startswith("__"):
        method = MORE if rule.expansion[0] == rule.origin else LIST
    return Production(name, len(rule.expansion), method, parts)


def _parts(rule: Rule) -> list[int | None]:
    """Where the parts that a rule does not quote are, from the end of the stack."""
    parts: list[int | None] = []
    count = len(rule.expansion)
    symbols = iter(zip(range(-count, 0), rule.expansion, strict=True))
    for is_missing in rule.options.empty_indices or [False] * count:
        if is_missing:
            parts.append(None)
            continue
        place, symbol = next(symbols)
        if not (isinstance(symbol, Terminal) and symbol.filter_out):
            parts.append(place)
    return parts


if __name__ == "__main__":
    main()
