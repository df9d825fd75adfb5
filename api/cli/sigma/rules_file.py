"""The rules file that rules are written to: what Sigma says about a rule becomes description and labels."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from api.cli.rule_files.writing import rules_file_text
from api.cli.sigma.conversion import Converted
from api.cli.sigma.sources import Rule
from engine.evaluation.rules import DESCRIPTION_CHARS_MAX, LABEL_CHARS_MAX

NAME_CHARS_MAX: Final = 255
_ID_CHARS: Final = 8


def rules_file(converted: Sequence[Converted]) -> str:
    """Return the rules file of these rules, in their order."""
    named = zip(distinct_names([each.rule for each in converted]), converted, strict=True)
    return rules_file_text({name: _members(each) for name, each in named})


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


def _members(converted: Converted) -> dict[str, Any]:
    rule = converted.rule
    members: dict[str, Any] = {}
    if rule.description:
        members["description"] = _one_line(rule.description)[:DESCRIPTION_CHARS_MAX]
    said = {
        "level": str(rule.level or "").lower(),
        "status": str(rule.status or "").lower(),
        "author": rule.author,
        "id": str(rule.id or ""),
        "tags": ", ".join(map(str, rule.tags)),
        "references": " ".join(map(str, rule.references)),
    }
    labels = {name: _one_line(value)[:LABEL_CHARS_MAX] for name, value in said.items() if value}
    return {**members, **({"labels": labels} if labels else {}), "condition": converted.text}


def _one_line(text: str) -> str:
    """Return a text with a space for each run of white space and characters that cannot be printed."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
