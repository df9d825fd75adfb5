"""`rule-detector explain`: why rules of a running service would fire at an event, or not."""

import sys
from itertools import islice

import click
import msgspec

from api.cli.client.detectors import find_detector, list_rules
from api.cli.client.service import Service, ServiceError
from api.cli.client.token_options import token_options
from api.cli.explained_rules import ExplainedRule, lines_of
from api.cli.failures import fail
from api.cli.reading_options import reading_options
from api.cli.recordings.reading import Reading, RecordedEvent, Recording
from api.cli.recordings.rows import RecordingError


@click.command(
    epilog="""\b
Examples:
  echo '{"time": "2024-03-04T09:00:30Z", "user": "ada", "ok": true}' | rule-detector explain --detector shop
  rule-detector explain events.ndjson --number 17 --detector shop --rule "login after a failed one"
"""
)
@click.argument("file", default="-", metavar="[FILE|-]", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--number", default=1, type=click.IntRange(min=1), help="Which event of FILE.  [default: the first]"
)
@click.option(
    "--url",
    default="http://127.0.0.1:8080",
    envvar="RULE_DETECTOR_URL",
    help="Address of the service.  [env RULE_DETECTOR_URL; default http://127.0.0.1:8080]",
)
@token_options
@click.option("--detector", required=True, metavar="ID|NAME", help="Detector whose rules are explained.")
@click.option("--rule", metavar="ID|NAME", help="Only this rule.")
@reading_options
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Format.  [default: text]"
)
def explain(
    *,
    file: str,
    number: int,
    url: str,
    token: str,
    detector: str,
    rule: str | None,
    reading: Reading,
    output: str,
) -> None:
    """Tell why rules would fire at an event, or not. Nothing is recorded.

    FILE is read as by replay; - is standard input. The event is explained as the next one that
    the detector receives: what came since a recorded event counts, and one that is too late is refused.

    For each rule, the output has the tree of its condition: what is true, the values that were looked up,
    since which event it is so, and until when it stays so if nothing else happens.
    """
    try:
        event = _event(file, number, reading)
        with Service(url, token) as service:
            chosen = find_detector(service, detector)
            asked = {
                "event": {"fields": msgspec.Raw(event.json), "timestamp_ms": event.time_us / 1_000},
                **({} if rule is None else {"ruleId": _rule_id(service, chosen.id, rule)}),
            }
            result = service.call("POST", f"/api/detectors/{chosen.id}/explain", msgspec.json.encode(asked))
    except (ServiceError, RecordingError) as error:
        fail(str(error))
    if output == "json":
        click.echo(msgspec.json.encode(result))
        return
    for explained in msgspec.convert(result["rules"], list[ExplainedRule]):
        for line in lines_of(explained, event.time_us):
            click.echo(line)


def _event(file: str, number: int, reading: Reading) -> RecordedEvent:
    """Return one event of a recording. Raises RecordingError."""
    with Recording(file, sys.stdin.buffer, reading) as recording:
        event = next(islice(recording.events(), number - 1, None), None)
        if event is None:
            raise RecordingError(f"{recording.name}: there is no event {number}")
        return event


def _rule_id(service: Service, detector_id: str, wanted: str) -> str:
    """Return the id of the rule with that id or name. Raises ServiceError."""
    rules = list_rules(service, detector_id)
    with_id = [rule.id for rule in rules if rule.id == wanted]
    match with_id or [rule.id for rule in rules if rule.name == wanted]:
        case [rule_id]:
            return rule_id
        case []:
            raise ServiceError(f"no rule has the id or name `{wanted}`")
        case several:
            raise ServiceError(
                f"{len(several)} rules are named `{wanted}`; give the id of one: {', '.join(several)}"
            )
