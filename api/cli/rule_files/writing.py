"""Writes rules files in YAML, so that reading them gives the same rules, whatever names and texts are."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import indent
from typing import Any, Final

import yaml

from api.cli.rule_files.relations import Scalar

_WIDTH: Final = 1 << 20
"""The line width: longer than any line, so that none is folded."""


class _Dumper(yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper):  # type: ignore[misc]  # either
    """Writes texts of several lines as blocks, and tuples on one line."""


class _OneLine(list[Any]):
    """A list that is written on one line."""


def _style(text: str) -> str | None:
    """Return the style of a text: a block, if that keeps every character; quotes; or None for the default."""
    if "\n" not in text:
        return None if text.isprintable() else '"'
    lines = text.removesuffix("\n").split("\n")
    keeps = all(line.isprintable() and line == line.rstrip() for line in lines)
    return "|" if keeps and lines[0][:1].strip() and lines[-1] else '"'


_Dumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))
)
_Dumper.add_representer(
    _OneLine, lambda dumper, given: dumper.represent_sequence("tag:yaml.org,2002:seq", given, flow_style=True)
)


def rules_file_text(
    rules: Mapping[str, Mapping[str, Any]],
    detector: str | None = None,
    relations: Mapping[str, Iterable[Sequence[Scalar]] | str] | None = None,
) -> str:
    """Return the text of a file of rules, each with its members, and of relations.

    A relation is given as its tuples, or as the path of a file with them.
    """
    parts = [] if detector is None else [_yaml({"detector": detector})]
    if relations:
        parts.append(_yaml({"relations": {name: _relation(given) for name, given in relations.items()}}))
    entries = [_yaml({name: _short(rule)}) for name, rule in rules.items()]
    parts.append("rules:\n" + "\n".join(indent(each, "  ") for each in entries) if rules else "rules: {}\n")
    return "\n".join(parts)


def _short(rule: Mapping[str, Any]) -> Any:
    """Return a rule in the form for files: the condition alone if it has no other members."""
    is_text = rule.keys() == {"condition"} and isinstance(rule["condition"], str)
    return rule["condition"] if is_text else dict(rule)


def _relation(given: Iterable[Sequence[Scalar]] | str) -> Any:
    if isinstance(given, str):
        return {"file": given}
    return [each[0] if len(each) == 1 else _OneLine(each) for each in given]


def _yaml(document: object) -> str:
    text: str = yaml.dump(
        document, Dumper=_Dumper, allow_unicode=True, width=_WIDTH, sort_keys=False, default_flow_style=False
    )
    return text
