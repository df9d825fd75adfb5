"""What rules files want of a detector: the rules and relations of all files that name it."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from api.cli.failures import CommandError
from api.cli.rule_files.members import RuleMembers, bodies_of
from api.cli.rule_files.reading import RulesFile
from api.cli.rule_files.relations import Tuple
from engine.language.diagnostics import quoted


@dataclass
class Wanted:
    """What a detector is to be."""

    detector: str
    """Its name or its id."""
    files: list[RulesFile] = field(default_factory=list)
    rules: dict[str, RuleMembers] = field(default_factory=dict)
    relations: dict[str, list[Tuple]] = field(default_factory=dict)

    def bodies(self, names: Container[str] | None = None, *, keep_history: bool) -> msgspec.Raw:
        """Return the rules of these names, or all, as the service takes them: the JSON of an array.

        With `keep_history`, all keep what they can.
        """
        rules = ((name, rule) for name, rule in self.rules.items() if names is None or name in names)
        return bodies_of(rules, keep_history=keep_history)


def wanted_of(files: Sequence[RulesFile], detector: str | None) -> list[Wanted]:
    """Return what files want of each detector that they name, or all of one detector.

    Raises CommandError if a file names none, or two files have a rule or a relation of the same name.
    """
    found: dict[str, Wanted] = {}
    places: dict[tuple[str, str, str], str] = {}
    for file in files:
        name = detector or file.detector
        if name is None:
            raise CommandError(
                f"{file.path}: it names no detector; add `detector: NAME`, or give --detector NAME"
            )
        wanted = found.setdefault(name, Wanted(name))
        wanted.files.append(file)
        _check_names(places, name, "rule", file.rules, file.path)
        _check_names(places, name, "relation", file.relations, file.path)
        wanted.rules |= file.rules
        wanted.relations |= file.relations
    return list(found.values())


def _check_names(
    places: dict[tuple[str, str, str], str], detector: str, kind: str, names: Iterable[str], path: str
) -> None:
    for name in names:
        other = places.setdefault((detector, kind, name), path)
        if other != path:
            raise CommandError(f"{other} and {path} both have a {kind} named {quoted(name)}")
