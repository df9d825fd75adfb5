"""Writes converted rules as a rules file: YAML, with what Sigma says about each rule as comments."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import indent, wrap
from typing import Final

from api.cli.sigma.conversion import Converted
from api.cli.sigma.sources import Rule

NAME_CHARS_MAX: Final = 255
_ID_CHARS: Final = 8
_WIDTH: Final = 110


def rules_file(converted: Sequence[Converted]) -> str:
    """Return the rules file of these rules, in their order."""
    named = zip(distinct_names([each.rule for each in converted]), converted, strict=True)
    return "\n".join(_entry(name, each) for name, each in named)


def distinct_names(rules: Sequence[Rule]) -> Iterator[str]:
    """Yield the name of each rule: its title, which is followed by the id where several have that title."""
    titles = [_one_line(rule.title) or "untitled" for rule in rules]
    shared = Counter(titles)
    taken = set[str]()
    for title, rule in zip(titles, rules, strict=True):
        suffix = f" ({str(rule.id)[:_ID_CHARS]})" if shared[title] > 1 and rule.id else ""
        number = 1
        while (name := title[: NAME_CHARS_MAX - len(suffix)] + suffix) in taken:
            number += 1
            suffix = f" ({number})"
        taken.add(name)
        yield name


def _entry(name: str, converted: Converted) -> str:
    """Return the lines of one rule. A block needs no escapes; text that a block cannot hold is quoted."""
    text = converted.text
    is_plain = all(line.isprintable() for line in text.splitlines())
    value = f"|-\n{indent(text, '  ')}" if is_plain else json.dumps(text, allow_nan=False)
    key = "'" + name.replace("'", "''") + "'" if name.isprintable() else json.dumps(name, allow_nan=False)
    return f"{''.join(_comments(converted.rule))}{key}: {value}\n"


def _comments(rule: Rule) -> Iterator[str]:
    if rule.description:
        yield _comment(rule.description)
    members: dict[str, object] = {
        "level": rule.level,
        "status": rule.status,
        "author": rule.author,
        "id": rule.id,
        "tags": ", ".join(map(str, rule.tags)),
    }
    for name, value in members.items():
        if value:
            yield _comment(f"{name}: {str(value).lower() if name in ('level', 'status') else value}")
    for reference in rule.references:
        yield _comment(f"reference: {reference}")


def _comment(text: str) -> str:
    lines = wrap(_one_line(text), _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "".join(f"#{'   ' if place else ' '}{line}\n" for place, line in enumerate(lines))


def _one_line(text: str) -> str:
    """Return a text with a space for each run of white space and characters that cannot be printed."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
