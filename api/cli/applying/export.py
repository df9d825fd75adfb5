"""`rule-detector export`: writes a rules file from a running detector."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from api.cli.lookup import find_detector, relations_of, shown_rules
from api.cli.messages import CommandError
from api.cli.options.service_options import service_options
from api.cli.rule_files.relations import Scalar
from api.cli.rule_files.writing import rules_file_text
from engine.language.diagnostics import quoted
from rule_detector_client import Client
from rule_detector_client.results import ShownRule

FILE_CHARS_MAX: Final = 200
"""The maximum length of a relation's name in a file name. Longer names are cut, and their digests added."""
INLINE_MAX: Final = 100
"""The maximum number of tuples of a relation in the rules file if there is a folder for relations."""


@click.command(
    epilog="""\b
Examples:
  rule-detector export shop > shop.yaml
  rule-detector export shop --relations lists > shop.yaml
"""
)
@click.argument("detector", metavar="ID|NAME")
@click.option(
    "--relations",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Write relations of more than {INLINE_MAX} tuples to files in this folder, to which the rules file "
    "then refers. Without it, all tuples are in the rules file.",
)
@service_options
def export(*, client: Client, detector: str, folder: Path | None) -> None:
    """Write a rules file from a detector of a running service, on standard output.

    The file has the relations and the rules with all their members. Conditions are as they were written,
    comments included. Applying the file changes nothing.
    """
    found = find_detector(client, detector)
    rules = shown_rules(client, found.id)
    names = {rule.id: rule.name for rule in rules}
    if len(set(names.values())) < len(names):
        [name, *_] = [name for name in names.values() if list(names.values()).count(name) > 1]
        raise CommandError(f"several rules are named {quoted(name)}; in a file, each has a name of its own")
    written = {rule.name: _members(rule, names) for rule in rules}
    relations = {
        one.name: _relation(one.name, [*client.tuples(found.id, one.name)], folder)
        for one in relations_of(client, found.id)
    }
    click.echo(rules_file_text(written, found.name, relations), nl=False)


def _relation(name: str, tuples: list[list[Scalar]], folder: Path | None) -> list[list[Scalar]] | str:
    """Return the tuples of a relation, or the path of the file that they are written to."""
    if folder is None or len(tuples) <= INLINE_MAX:
        return tuples
    # A relation's name may contain slashes, and be longer than a file name.
    file = quote(name, safe="")
    if len(file) > FILE_CHARS_MAX:
        file = file[:FILE_CHARS_MAX] + sha256(name.encode()).hexdigest()[:16]
    path = folder / f"{file}.ndjson"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(each, ensure_ascii=False, allow_nan=False) for each in tuples)
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    return str(path)


def _members(rule: ShownRule, names: dict[str, str]) -> dict[str, Any]:
    """Return the members of a rule for a file, without those that have their defaults."""
    members: dict[str, Any] = {
        "description": rule.description,
        "labels": rule.labels,
        "condition": rule.source,
        "notify": rule.notify,
        "shadow": rule.shadow and rule.draft_of is None,
        "draftOf": names[rule.draft_of] if rule.draft_of else None,
    }
    members |= {"timed": rule.timed, "every_secs": rule.every_secs}
    given = {name: value for name, value in members.items() if value}
    if rule.every_by is not None:
        given["every_by"] = rule.every_by
    return given if rule.enabled else {**given, "enabled": False}
