"""`rule-detector shadow`: compares a rule with a draft over real events; promotes or removes the draft."""

import json
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from api.cli.lookup import find_detector, find_rule
from api.cli.messages import CommandError
from api.cli.options.service_options import service_and_output_options
from api.cli.printing.explained_rules import node_lines
from api.cli.printing.output import show, tell, tell_messages, value_text, yes_option
from api.cli.recordings.times import iso
from api.cli.rule_files.reading import read_text
from rule_detector_client import Client, Comparison, Example, Identified, Rule, calls

_NAME_CHARS_MAX: Final = 255
_DRAFT: Final = ", draft"
KINDS: Final = {"only_rule": "only the rule", "only_draft": "only the draft", "both": "both"}
"""The headings of the three counts, differences first."""


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
@click.option("--follow", is_flag=True, help="Keep printing events at which only one fires, until Ctrl-C.")
@click.option("--explain", is_flag=True, help="Print why only one fired, if that was stored.")
@click.option("--promote", is_flag=True, help="Swap the conditions and histories of rule and draft.")
@click.option("--discard", is_flag=True, help="Remove the draft.")
@yes_option
@service_and_output_options
def shadow(
    *,
    client: Client,
    rule: str,
    detector: str,
    draft: str | None,
    draft_file: Path | None,
    follow: bool,
    explain: bool,
    promote: bool,
    discard: bool,
    yes: bool,
    output: str,
) -> None:
    """Compare a rule with a draft of it over real events, before the draft replaces it.

    The draft is a shadow rule: it is evaluated, but never acts. The service counts the events at which both
    fire, and those at which only one fires.

    Promoting swaps the two conditions. The rule keeps its id and name, and from the next event on acts as the
    draft would have acted. The draft gets the old condition, so promoting again undoes it.
    """
    if sum((draft is not None, draft_file is not None, follow, promote, discard)) > 1:
        raise click.UsageError(
            "`--draft`, `--draft-file`, `--follow`, `--promote` and `--discard` exclude each other."
        )
    if explain and (draft is not None or draft_file is not None or promote or discard):
        raise click.UsageError("`--explain` explains examples, or with `--follow` new differences.")
    detector_id = find_detector(client, detector).id
    found = find_rule(client, detector_id, rule)
    if draft_file is not None:
        draft = read_text(str(draft_file))
    if draft is not None:
        _put_draft(client, detector_id, found, draft, output)
        return
    there = _draft_of(client, detector_id, found)
    if there is None and found.draft_of is not None:
        of = client.send(calls.get_rule(detector_id, found.draft_of)).name
        raise CommandError(f"`{found.name}` is itself a draft, that of the rule `{of}`")
    if there is None:
        raise CommandError(f"the rule `{found.name}` has no draft; add one with --draft CONDITION")
    if promote:
        promoted = client.send(calls.promote(detector_id, found.id))
        said = f"`{found.name}` acts by its draft from now on. The draft is the old condition."
        tell(output, promoted, said)
    elif discard:
        if not yes:
            click.confirm(f"Remove the draft of `{found.name}` with its history?", abort=True, err=True)
        removed = client.send(calls.remove_rule(detector_id, there.id))
        tell(output, removed, f"The draft of `{found.name}` is removed.")
    elif follow:
        _follow(client, detector_id, found, output, explain=explain)
    else:
        _report(client.send(calls.comparison(detector_id, found.id)), output, explain=explain)


def _draft_of(client: Client, detector_id: str, rule: Rule) -> Rule | None:
    return next((one for one in client.rules(detector_id) if one.draft_of == rule.id), None)


def _put_draft(client: Client, detector_id: str, rule: Rule, condition: str, output: str) -> None:
    there = _draft_of(client, detector_id, rule)
    if there is None:
        name = rule.name[: _NAME_CHARS_MAX - len(_DRAFT)] + _DRAFT
        add = calls.add_rule(detector_id, name, condition, shadow=True, draft_of=rule.id)
        put: Identified | Rule = client.send(add)
    else:
        name = there.name
        put = client.send(calls.change_rule(detector_id, there.id, condition=condition))
    tell_messages(name, put.messages)
    said = f"The draft is compared with `{rule.name}` from the next event on."
    tell(output, {"id": put.id}, said)


def _report(comparison: Comparison, output: str, *, explain: bool) -> None:
    """Print the three counts, and examples of each."""
    header = ("events", *KINDS.values())
    row = (str(comparison.events), *(str(getattr(comparison, kind)) for kind in KINDS))
    show(output, comparison, header, [row])
    if output == "json":
        return
    for kind, heading in KINDS.items():
        for example in comparison.examples[kind]:
            _tell(heading, example, explain=explain)
    if comparison.young_until_ms is None:
        click.echo("One of the two has seen fewer events than the other, and looks back without a bound.")
    elif not isinstance(comparison.young_until_ms, msgspec.UnsetType):
        until = iso(round(comparison.young_until_ms * 1_000))
        click.echo(f"Up to {until} they may differ because one has seen fewer events than the other.")


def _line(heading: str, example: Example) -> str:
    at = iso(round(example.timestamp_ms * 1_000))
    key = "".join(f"  {value_text(name)}={value_text(value)}" for name, value in example.key.items())
    return f"{heading}  {at}{key}  {json.dumps(example.fields, ensure_ascii=False, allow_nan=False)}"


def _follow(client: Client, detector_id: str, rule: Rule, output: str, *, explain: bool) -> None:
    """Print the events at which only one of the two fires, as they come."""
    before = client.send(calls.comparison(detector_id, rule.id, after=0))
    while True:
        time.sleep(1)
        seen = before.since_event + before.events
        now = client.send(calls.comparison(detector_id, rule.id, after=seen))
        if _began_anew(before, now):
            click.echo("The comparison began anew.", err=True)
            before = msgspec.structs.replace(now, only_rule=0, only_draft=0)
        for one in now.differences:
            if output == "json":
                click.echo(msgspec.json.encode(one))
            else:
                _tell(KINDS[one.fired], one, explain=explain)
        missed = _differing(now) - _differing(before) - len(now.differences)
        if missed > 0:
            click.echo(f"{missed} more, which the service counted but did not keep.", err=True)
        before = now


def _began_anew(before: Comparison, now: Comparison) -> bool:
    of_before = before.since_event, before.draft_id
    return (now.since_event, now.draft_id) != of_before or _differing(now) < _differing(before)


def _differing(comparison: Comparison) -> int:
    return comparison.only_rule + comparison.only_draft


def _tell(heading: str, one: Example, *, explain: bool) -> None:
    click.echo(_line(heading, one))
    for name, node in (("rule", one.rule), ("draft", one.draft)) if explain else ():
        if node is not None:
            click.echo("\n".join([f"  {name}", *node_lines(node, round(one.timestamp_ms * 1_000), "    ")]))
