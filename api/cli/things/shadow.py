"""`rule-detector shadow`: a draft of a rule is compared with it over real events, then promoted or not."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import msgspec

from api.cli.failures import fail
from api.cli.lookup import find_detector, find_rule
from api.cli.options.service_options import service_options
from api.cli.printing.output import output_option, show, tell
from api.cli.recordings.times import iso
from api.client import Client, Comparison, Example, Rule, calls

_NAME_CHARS_MAX: Final = 255
_DRAFT: Final = ", draft"
KINDS: Final = {"only_rule": "only the rule", "only_draft": "only the draft", "both": "both"}
"""The three counts as they are headed, differences first."""


@click.command(
    epilog="""\b
Examples:
  rule-detector shadow "many failures" --detector shop --draft "per ip (count(ok == false) within 5m >= 20)"
  rule-detector shadow "many failures" --detector shop
  rule-detector shadow "many failures" --detector shop --promote
"""
)
@click.argument("rule", metavar="ID|NAME")
@click.option("--detector", required=True, metavar="ID|NAME", help="Detector that has the rule.")
@click.option("--draft", metavar="CONDITION", help="Add this draft of the rule, or replace the one it has.")
@click.option(
    "--draft-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the condition of the draft.",
)
@click.option("--follow", is_flag=True, help="Go on printing events at which only one fires, until Ctrl-C.")
@click.option("--promote", is_flag=True, help="Exchange rule and draft, each with all that it remembers.")
@click.option("--discard", is_flag=True, help="Remove the draft.")
@output_option
@service_options
def shadow(
    *,
    client: Client,
    rule: str,
    detector: str,
    draft: str | None,
    draft_file: Path | None,
    follow: bool,
    promote: bool,
    discard: bool,
    output: str,
) -> None:
    """Compare a rule with a draft of it over real events, before the draft takes its place.

    The draft is a shadow rule: it is evaluated, and nobody is told when it fires. The service counts
    exactly at how many events both fire and at how many only one does, also while nobody looks.

    Promoting exchanges the two conditions: the rule keeps its id and name, and acts as the draft
    would have from the next event on; the old condition is the draft, so promoting again undoes it.
    """
    if sum((draft is not None, draft_file is not None, follow, promote, discard)) > 1:
        raise click.UsageError(
            "`--draft`, `--draft-file`, `--follow`, `--promote` and `--discard` exclude each other."
        )
    detector_id = find_detector(client, detector).id
    found = find_rule(client, detector_id, rule)
    if draft_file is not None:
        draft = draft_file.read_text("utf-8")
    if draft is not None:
        _put_draft(client, detector_id, found, draft, output)
    elif promote:
        promoted = client.send(calls.promote(detector_id, found.id))
        said = f"`{found.name}` acts by its draft from now on. The draft is the old condition."
        tell(output, promoted, said)
    elif discard:
        there = _draft_of(client, detector_id, found)
        if there is None:
            fail(f"the rule `{found.name}` has no draft")
        removed = client.send(calls.remove_rule(detector_id, there.id))
        tell(output, removed, f"The draft of `{found.name}` is removed.")
    elif follow:
        _follow(client, detector_id, found, output)
    else:
        _report(client.send(calls.comparison(detector_id, found.id)), output)


def _draft_of(client: Client, detector_id: str, rule: Rule) -> Rule | None:
    listed = client.send(calls.list_rules(detector_id))
    return next((one for one in listed if one.draft_of == rule.id), None)


def _put_draft(client: Client, detector_id: str, rule: Rule, condition: str, output: str) -> None:
    there = _draft_of(client, detector_id, rule)
    if there is None:
        name = rule.name[: _NAME_CHARS_MAX - len(_DRAFT)] + _DRAFT
        add = calls.add_rule(detector_id, name, condition, shadow=True, draft_of=rule.id)
        draft_id = client.send(add).id
    else:
        draft_id = client.send(calls.change_rule(detector_id, there.id, condition=condition)).id
    said = f"The draft is compared with `{rule.name}` from the next event on."
    tell(output, {"id": draft_id}, said)


def _report(comparison: Comparison, output: str) -> None:
    """Print the three numbers, and examples of each."""
    header = ("events", *KINDS.values())
    row = (str(comparison.events), *(str(getattr(comparison, kind)) for kind in KINDS))
    show(output, comparison, header, [row])
    if output == "json":
        return
    for kind, heading in KINDS.items():
        for example in comparison.examples[kind]:
            click.echo(_line(heading, example))
    if comparison.young_until_ms is None:
        click.echo("The draft looks back without a window, and has seen fewer events than the rule.")
    elif not isinstance(comparison.young_until_ms, msgspec.UnsetType):
        until = iso(round(comparison.young_until_ms * 1_000))
        click.echo(f"Until {until} the draft may differ because it has seen fewer events than the rule.")


def _line(heading: str, example: Example) -> str:
    at = iso(round(example.timestamp_ms * 1_000))
    key = "".join(f"  {name}={_text(value)}" for name, value in example.key.items())
    return f"{heading}  {at}{key}  {json.dumps(example.fields, ensure_ascii=False)}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _follow(client: Client, detector_id: str, rule: Rule, output: str) -> None:
    """Print the events at which only one of the two fires, as they come."""
    first = client.send(calls.comparison(detector_id, rule.id))
    seen = first.since_event + first.events
    while True:
        time.sleep(1)
        comparison = client.send(calls.comparison(detector_id, rule.id))
        for kind, example in _differences(comparison, seen):
            if output == "json":
                click.echo(calls.encoded({"fired": kind, **msgspec.to_builtins(example)}))
            else:
                click.echo(_line(KINDS[kind], example))
        seen = comparison.since_event + comparison.events


def _differences(comparison: Comparison, seen: int) -> Iterator[tuple[str, Example]]:
    """Yield the examples of events behind the first so many at which only one fired, in order."""
    found = [
        (example.number, kind, example)
        for kind in ("only_rule", "only_draft")
        for example in comparison.examples[kind]
        if example.number > seen
    ]
    for _, kind, example in sorted(found, key=lambda one: one[:2]):
        yield kind, example
