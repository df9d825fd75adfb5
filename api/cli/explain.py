"""`rule-detector explain`: why rules of a detector would fire at an event, or not."""

import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from api.cli.lookup import find_detector, find_rule
from api.cli.messages import CommandError
from api.cli.options.reading_options import reading_options
from api.cli.options.service_options import service_options
from api.cli.options.values import vars_option
from api.cli.printing.explained_rules import lines_of
from api.cli.recordings.reading import ReadingOptions, RecordedEvent, Recording
from api.cli.recordings.skipping import RecordingError
from engine.language.diagnostics import Refusal
from rule_detector_client import Client, ExplainedRule, calls
from rule_detector_client.call import list_in

_Asking = Callable[..., calls.Call[list[ExplainedRule]]]
"""Makes the call, given the id of a detector and `rule_id`."""


@click.command(
    epilog="""\b
Examples:
  echo '{"time": "2024-03-04T09:00:30Z", "user": "ada", "ok": true}' | rule-detector explain --detector shop
  rule-detector explain event.ndjson --data /backup/monday --detector shop
  rule-detector explain events.ndjson --number 17 --detector shop --rule "login after a failed one"
"""
)
@click.argument("file", default="-", metavar="[FILE|-]", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--number", default=1, type=click.IntRange(min=1), help="The number of the event in FILE.  [default: 1]"
)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Use the detector in this data folder, in its state after the next start, instead of a service.",
)
@service_options
@click.option("--detector", required=True, metavar="ID|NAME", help="Detector whose rules are explained.")
@click.option("--rule", metavar="ID|NAME", help="Only this rule.")
@reading_options
@vars_option
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Format.  [default: text]"
)
def explain(
    *,
    file: str,
    number: int,
    client: Client | None,
    data: Path | None,
    detector: str,
    rule: str | None,
    reading: ReadingOptions,
    variables: dict[str, Any] | None,
    output: str,
) -> None:
    """Explain why rules would fire at an event, or not. Nothing is recorded.

    FILE is read as by replay; - is standard input. The event is treated as the next one that the detector
    receives: all events so far count, and an event that is too late is refused.

    For each rule, the output has the tree of its condition: which parts are true, the values that were looked
    up, the time of the event that settles a part, and until when that holds if nothing else happens.
    """
    event = _event(file, number, reading)
    fields, time_ms = msgspec.Raw(event.json), event.time_us / 1_000
    call = partial(calls.explain, fields=fields, timestamp_ms=time_ms, variables=variables)
    result = _offline(data, detector, rule, call) if data else _asked(client, detector, rule, call)
    if output == "json":
        click.echo(result)
        return
    for explained in list_in(result, "rules", ExplainedRule):
        for line in lines_of(explained, event.time_us):
            click.echo(line)


def _asked(client: Client | None, detector: str, rule: str | None, call: _Asking) -> bytes:
    """Return the explanation of a running service. Raises ServiceError."""
    assert client is not None, "there is a client unless there is a data folder"
    chosen = find_detector(client, detector)
    rule_id = None if rule is None else find_rule(client, chosen.id, rule).id
    return client.send(calls.raw(call(chosen.id, rule_id=rule_id)))


def _offline(data: Path, detector: str, rule: str | None, call: _Asking) -> bytes:
    """Return the explanation of a detector in a data folder."""
    from api.cli.inspection.data_folder import stored_detector, stored_rule_id  # noqa: PLC0415 -- slow to import
    from engine.evaluation.inspecting.explanations import explain_body  # noqa: PLC0415

    stored = stored_detector(data, detector)
    rule_id = None if rule is None else stored_rule_id(stored, rule)
    body = call(detector, rule_id=rule_id).body
    assert body is not None, "it has an event"
    try:
        return explain_body(stored, body).result
    except Refusal as refusal:
        raise CommandError(str(refusal)) from None


def _event(file: str, number: int, reading: ReadingOptions) -> RecordedEvent:
    """Return one event of a recording. Raises RecordingError."""
    with Recording(file, sys.stdin.buffer, reading) as recording:
        event = next(islice(recording.events(), number - 1, None), None)
        if event is None:
            raise RecordingError(f"{recording.name}: there is no event {number}")
        return event
