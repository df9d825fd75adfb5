"""`rule-detector changes`: the changes log of a running service."""

from collections.abc import Iterator

import click

from api.cli.options.service_options import service_and_output_options
from api.cli.printing.output import show
from api.cli.recordings.times import iso
from rule_detector_client import Client, LoggedChange, calls


@click.command()
@click.option("--after", default=0, type=click.IntRange(min=0), help="Only changes after this number.")
@click.option("--limit", default=None, type=click.IntRange(min=1), help="At most so many. [default: all]")
@click.option("--detector", "wanted", metavar="ID", help="Only changes of this detector and of what it has.")
@service_and_output_options
def changes(*, client: Client, after: int, limit: int | None, wanted: str | None, output: str) -> None:
    """Print who changed what: tokens, detectors, rules, relations and nodes, oldest first.

    The log keeps a change for as many days as the setting `--changes-kept-days` of the service says.
    """
    found = [one for one in _changes(client, after) if wanted is None or wanted in (one.id, one.detector_id)]
    found = found[:limit]
    rows = (
        (
            *(str(one.seq), iso(one.time_ms * 1_000), _who(one), f"{one.action} {one.kind}"),
            *(one.name or one.id, _text(one)),
        )
        for one in found
    )
    show(output, {"changes": found}, ("number", "at", "by", "what", "name", "old and new"), rows)


def _changes(client: Client, after: int) -> Iterator[LoggedChange]:
    while (page := client.send(calls.changes(after))).changes:
        yield from page.changes
        after = page.next


def _who(change: LoggedChange) -> str:
    if change.token is None:
        return "the service"
    return change.token.name or change.token.id or ""


def _text(change: LoggedChange) -> str:
    old, new = (bytes(one).decode() for one in (change.old, change.new))
    return " -> ".join(text for text in (old, new) if text != "{}")
