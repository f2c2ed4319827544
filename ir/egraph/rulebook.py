"""The rules as commands: the `.egg` files in order."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from .. import rules
from .engine import split_commands

# In this order: a file may use the names of those before it.
RULE_SETS = (
    "core", "lift", "facts", "fuse", "views", "rows", "commute", "matmul", "siblings", "recognised", "attention", "products",
)  # fmt: skip

# The library's relu turns NaN into 0; a maximum keeps it.
RULES_THAT_DROP_NAN = ("ask-relu", "ask-relu-mirrored")

_NAME = re.compile(r':name "([^"]+)"')


@dataclass(frozen=True)
class Command:
    """One command of the rule language. `rule` is its name where it is a rule, else empty."""

    text: str
    rule: str
    rule_set: str


def rule_set_text(name: str) -> str:
    """Return the text of one rule file."""
    return (files(rules) / f"{name}.egg").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def all_commands() -> tuple[Command, ...]:
    """Return every declaration and rule, in an order in which names are declared before they are used."""
    commands = []
    for rule_set in RULE_SETS:
        commands += [as_command(text, rule_set) for text in split_commands(rule_set_text(rule_set))]
    return tuple(commands)


def as_command(text: str, rule_set: str) -> Command:
    """Return the command with the name of its rule, which is read from its text."""
    name = _NAME.search(text)
    return Command(text, name[1] if name else "", rule_set)


def selected(without: Collection[str] = (), extra: Sequence[str] = ()) -> list[Command]:
    """Return the commands but for the rules named in `without`, then the `extra` rules (text, each with a name)."""
    commands = [command for command in all_commands() if command.rule not in without or not command.rule]
    added = [as_command(text, "extra") for text in extra]
    return commands + [command for command in added if command.rule not in without]
