"""`rule-detector apply`: makes a running detector equal to rules files, and shows the difference first."""

import sys
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import click
import msgspec
from msgspec.structs import astuple

from api.cli.applying.difference import ChangedRelation, Difference, changed_relations
from api.cli.lookup import relations_of, shown_rules, with_id_or_name
from api.cli.messages import CommandError, warn
from api.cli.options.service_options import service_and_output_options
from api.cli.printing.output import yes_option
from api.cli.printing.terminal import on_one_line
from api.cli.rule_files.members import RuleMembers, bodies_of
from api.cli.rule_files.reading import RulesFile, read_rules_file
from api.cli.rule_files.relations import Tuple
from engine.language.diagnostics import quoted
from rule_detector_client import Client, Entry, ServiceError, calls


@dataclass
class Wanted:
    """The wanted state of a detector."""

    detector: str
    """Its name or its id."""
    files: list[RulesFile] = field(default_factory=list)
    rules: dict[str, RuleMembers] = field(default_factory=dict)
    relations: dict[str, list[Tuple]] = field(default_factory=dict)


def wanted_of(files: Sequence[RulesFile], detector: str | None) -> list[Wanted]:
    """Return the wanted state of each detector that files name, or of the given one.

    Raises CommandError if a file names no detector, or two files have a rule or relation of the same name.
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


_BEGINS_ANEW: Final = 2005
"""The code of messages that the shown difference makes redundant."""


@click.command(
    epilog="""\b
Examples:
  rule-detector apply rules.yaml --dry-run
  rule-detector apply detections/*.yaml --prune --yes

Exit status: 0 done, or nothing to do; 1 something was refused; 2 wrong usage.
"""
)
@click.argument("paths", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--detector", metavar="ID|NAME", help="Detector to change, instead of the one that the files name."
)
@click.option("--dry-run", is_flag=True, help="Only show the difference.")
@click.option("--prune", is_flag=True, help="Remove rules and relations that are in no file.")
@click.option(
    "--keep-history",
    is_flag=True,
    help="When a condition changes, keep the history that the old and the new one have in common. `history: "
    "keep` in a file does so for one rule.",
)
@yes_option
@service_and_output_options
def apply(
    *,
    client: Client,
    paths: tuple[str, ...],
    detector: str | None,
    dry_run: bool,
    prune: bool,
    keep_history: bool,
    yes: bool,
    output: str,
) -> None:
    """Make a detector of a running service match rules files.

    The files name the detector, which is created if it does not exist. The command shows what it would add,
    change and remove, and which rules would restart their histories. On a terminal it asks, and asks again
    if somebody else has changed the same things meanwhile; otherwise it needs --yes. Then it changes the
    rules of a detector as one change: all of them, or none.

    Rules and relations that are in no file stay, unless --prune is given. Applying the same files again
    changes nothing.
    """
    every = wanted_of([read_rules_file(path) for path in paths], detector)
    asks = not dry_run and not yes and is_terminal()

    def compared() -> list[_Plan]:
        plans = [
            _Plan(client, wanted, prune=prune, keep_history=keep_history, is_asked=asks) for wanted in every
        ]
        if output == "table":
            for plan in plans:
                click.echo("\n".join(plan.difference.lines()))
                plan.warn()
        return plans

    plans = compared()
    while asks and any(plan.has_work for plan in plans):
        click.confirm("Change it?", abort=True, err=True)
        if not (outdated := [plan for plan in plans if plan.is_outdated()]):
            break
        for plan in outdated:
            warn(f"{plan} was changed by somebody else meanwhile; this is the difference now")
        plans = compared()
    to_do = [plan for plan in plans if plan.has_work]
    if to_do and not dry_run:
        if not yes and not asks:
            raise CommandError("nothing was changed; give --yes to change it without a terminal")
        for plan in to_do:
            plan.carry_out()
    if output == "json":
        shown = [plan.difference for plan in plans]
        click.echo(msgspec.json.encode({"detectors": shown, "applied": bool(to_do) and not dry_run}))
    elif not to_do:
        click.echo("There is nothing to change.")
    elif not dry_run:
        for plan in to_do:
            click.echo(plan.difference.summary())
            if plan.difference.is_new:
                plan.warn()


def is_terminal() -> bool:
    """Whether the command can ask."""
    return sys.stdin.isatty()


class _Plan:
    """The changes to make to one detector."""

    def __init__(
        self, client: Client, wanted: Wanted, *, prune: bool, keep_history: bool, is_asked: bool
    ) -> None:
        """Compare without changing anything; note what there is if the user `is_asked`.

        Raises RuleFileError and ServiceError.
        """
        self._client = client
        self._wanted = wanted
        self._prune = prune
        self._keep_all = keep_history
        self._messages: list[Entry] = []
        """The service's messages about the rules; for a new detector, once its rules exist."""
        self._compared = self._replaced() if is_asked else None
        """What there was before the comparison."""
        self._id = self._found()
        self.difference = self._new() if self._id is None else self._changes(self._id)

    def __str__(self) -> str:
        return f"`{on_one_line(self._wanted.detector)}`"

    @property
    def has_work(self) -> bool:
        """Whether anything differs."""
        return not self.difference.is_empty

    def is_outdated(self) -> bool:
        """Whether what the plan would replace has changed since the comparison. Raises ServiceError."""
        return self._replaced() != self._compared

    def _found(self) -> str | None:
        found = with_id_or_name(list(self._client.detectors()), self._wanted.detector, "detectors")
        return None if found is None else found.id

    def _replaced(self) -> object:
        """Return the detector's id, rules and relations, as far as the plan may replace them."""
        if (detector_id := self._found()) is None:
            return None
        rules, relations = self._wanted.rules, self._wanted.relations
        return (
            detector_id,
            [one for one in shown_rules(self._client, detector_id) if self._prune or one.name in rules],
            [one for one in relations_of(self._client, detector_id) if self._prune or one.name in relations],
        )

    def carry_out(self) -> None:
        """Make the change. Raises ServiceError; a new detector is deleted if any part of it is refused."""
        if self._id is not None:
            self._change(self._id)
            return
        self._id = self._client.send(calls.create_detector(self._wanted.detector)).id
        try:
            self._change(self._id)
        except ServiceError as error:
            if not error.in_doubt and error.status is not None:
                self._client.send(calls.delete_detector(self._id))
            raise

    def _change(self, detector_id: str) -> None:
        # Relations are created before, and deleted after, the rules that use them.
        for relation in self.difference.relations:
            if not relation.is_removed:
                tuples = self._wanted.relations[relation.name]
                self._client.send(calls.put_relation(detector_id, relation.name, tuples))
        if self.difference.has_rules:
            # Without removals, unchanged rules need not be sent.
            prune = bool(self.difference.removed)
            names = {*self.difference.created, *(rule.name for rule in self.difference.changed)}
            asked = calls.put_rules(detector_id, self._bodies(None if prune else names), prune=prune)
            self._messages = self._client.send(asked).messages
        for relation in self.difference.relations:
            if relation.is_removed:
                self._client.send(calls.delete_relation(detector_id, relation.name))

    def warn(self) -> None:
        """Print the service's messages, except those that the shown difference makes redundant."""
        coming = [f"in the relation {quoted(name)}, which is not known" for name in self._wanted.relations]
        for code, said in map(astuple, self._messages):
            if code != _BEGINS_ANEW and not any(each in said for each in coming):
                warn(on_one_line(f"{code} {said}"))

    def _bodies(self, names: Container[str] | None = None) -> msgspec.Raw:
        """Return the rules of these names, or all, as JSON for the service."""
        rules = ((name, rule) for name, rule in self._wanted.rules.items() if names is None or name in names)
        return bodies_of(rules, keep_history=self._keep_all)

    def _new(self) -> Difference:
        # The conditions have not been parsed yet.
        for file in self._wanted.files:
            file.conditions()
        for name, rule in self._wanted.rules.items():
            if rule.draft_of and rule.draft_of not in self._wanted.rules:
                raise CommandError(f"{quoted(name)}: draftOf: no file has a rule {quoted(rule.draft_of)}")
        return Difference(
            self._wanted.detector,
            is_new=True,
            created=list(self._wanted.rules),
            relations=changed_relations(self._wanted.relations, {}, prune=False),
        )

    def _changes(self, detector_id: str) -> Difference:
        try:
            asked = calls.put_rules(detector_id, self._bodies(), prune=True, dry_run=True, details=True)
            found = self._client.send(asked)
        except ServiceError:
            # The service names places in its own copy of a condition; parsing the files names places in them.
            for file in self._wanted.files:
                file.conditions()
            raise
        self._messages = found.messages
        return Difference(
            self._wanted.detector,
            created=found.created,
            changed=found.details,
            removed=found.removed if self._prune else [],
            unchanged=len(found.unchanged),
            left=0 if self._prune else len(found.removed),
            relations=self._relations(detector_id),
        )

    def _relations(self, detector_id: str) -> list[ChangedRelation]:
        wanted = self._wanted.relations
        if not wanted and not self._prune:
            return []
        stored = {
            # Of a relation in no file, only the number of tuples is shown.
            one.name: self._client.tuples(detector_id, one.name) if one.name in wanted else one.tuples
            for one in relations_of(self._client, detector_id)
        }
        return changed_relations(wanted, stored, prune=self._prune)
