"""`rule-detector export`: writes a rules file from a running detector."""

from typing import Any

import click

from api.cli.failures import CommandError
from api.cli.lookup import find_detector
from api.cli.options.service_options import service_options
from api.cli.rule_files.writing import rules_file_text
from engine.language.diagnostics import quoted
from rule_detector_client import Client, Rule, calls


@click.command(
    epilog="""\b
Examples:
  rule-detector export shop > shop.yaml
"""
)
@click.argument("detector", metavar="ID|NAME")
@service_options
def export(*, client: Client, detector: str) -> None:
    """Write a rules file from a detector of a running service, on standard output.

    It has the rules with all their members, and the conditions as they were written, comments included.
    `apply` of the file changes nothing.
    """
    found = find_detector(client, detector)
    rules = list(client.rules(found.id))
    names = {rule.id: rule.name for rule in rules}
    if len(set(names.values())) < len(names):
        [name, *_] = [name for name in names.values() if list(names.values()).count(name) > 1]
        raise CommandError(f"several rules are named {quoted(name)}; in a file, each has a name of its own")
    written = {rule.name: _members(client, found.id, rule, names) for rule in rules}
    click.echo(rules_file_text(written, found.name), nl=False)


def _members(client: Client, detector_id: str, rule: Rule, names: dict[str, str]) -> dict[str, Any]:
    """Return a rule as a file has it: without what is as if it were left out."""
    members: dict[str, Any] = {
        "description": rule.description,
        "labels": rule.labels,
        "condition": client.send(calls.get_rule(detector_id, rule.id)).source,
        "notify": rule.notify,
        "shadow": rule.shadow and rule.draft_of is None,
        "draftOf": names[rule.draft_of] if rule.draft_of else None,
    }
    given = {name: value for name, value in members.items() if value}
    return given if rule.enabled else {**given, "enabled": False}
