"""`rule-detector replay`: a recorded stream sent through a running service."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import click
from rich.console import Console
from rich.table import Table

from api.commands.batches import batches, send
from api.commands.detectors import Named, add_rules, find_detector, list_rules
from api.commands.failures import fail
from api.commands.firings import Report
from api.commands.progress import BarGauge, Gauge, LineGauge
from api.commands.recordings import TIME_FIELDS, Recording, RecordingError
from api.commands.rule_files import RuleFileError, conditions_of
from api.commands.service import Service, ServiceError


@click.command(
    epilog="""\b
Examples:
  rule-detector replay events.ndjson.gz --detector shop --token rd_…
  rule-detector replay log.csv --detector shop --time-field when --rules shop.yaml
  zcat old/*.gz | rule-detector replay - --detector 0f3c…

Exit status: 0 done, 1 something was refused or could not be read, 2 wrong usage.
"""
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--url",
    default="http://127.0.0.1:8080",
    envvar="RULE_DETECTOR_URL",
    help="The service.  [env RULE_DETECTOR_URL; default http://127.0.0.1:8080]",
)
@click.option(
    "--token",
    required=True,
    envvar="RULE_DETECTOR_TOKEN",
    help="A token of the service.  [env RULE_DETECTOR_TOKEN; required]",
)
@click.option(
    "--detector", required=True, metavar="ID|NAME", help="The detector that evaluates the events.  [required]"
)
@click.option(
    "--time-field",
    metavar="NAME",
    help="The field with the event's time: ISO 8601, seconds or milliseconds, told apart.  "
    f"[default: the first of {', '.join(TIME_FIELDS)} that the first event has]",
)
@click.option(
    "--rules",
    metavar="FILE",
    help="First add the rules of this file to the detector: `name: condition`, in YAML or JSON.",
)
def replay(
    files: tuple[str, ...], url: str, token: str, detector: str, time_field: str | None, rules: str | None
) -> None:
    """Send recorded events through a running service and print which rules fire.

    Each FILE is NDJSON (a JSON object a line) or CSV with a header line, plain or gzipped; - is standard
    input. In CSV, cells that read as JSON numbers, true or false are such, empty cells are missing,
    and all else is text.

    The events are sent in batches, in the order in which they stand. A detector's clock never runs
    backwards: replay in order of time, and old recordings on a fresh detector.

    Prints for each rule of the detector how often it fired, and when and where first. Events that the service
    refuses are counted and reported; at a line that is no event the replay stops, and says which.
    """
    report = Report()
    console = Console()
    try:
        conditions = conditions_of(Path(rules).read_text("utf-8-sig"), rules) if rules else []
        with Service(url, token) as service:
            chosen = find_detector(service, detector)
            add_rules(service, chosen.id, conditions)
            failure = replay_files(service, chosen.id, files, time_field, report, console)
            print_report(report, list_rules(service, chosen.id), console)
    except (ServiceError, RuleFileError) as error:
        fail(str(error))
    except UnicodeDecodeError:
        fail(f"{rules}: it is not valid UTF-8")
    except OSError as error:
        fail(f"{rules}: {(error.strerror or str(error)).lower()}")
    if failure or report.refused:
        fail("\n".join([*report.refusals(), *([failure] if failure else [])]))


def replay_files(
    service: Service,
    detector_id: str,
    files: Sequence[str],
    time_field: str | None,
    report: Report,
    console: Console,
    standard_input: IO[bytes] | None = None,
) -> str | None:
    """Send the recordings one after another; give what stopped it early, None where nothing did."""
    for path in files:
        try:
            with Recording(path, standard_input or sys.stdin.buffer) as recording, _gauge(
                console, recording.size
            ) as gauge:
                for batch in batches(recording.events(time_field)):
                    send(service, detector_id, batch, report)
                    gauge.advance(len(batch), recording.position())
        except (RecordingError, ServiceError) as error:
            return str(error)
    return None


def print_report(report: Report, rules: Sequence[Named], console: Console) -> None:
    """Print what fired: a table on a terminal, aligned plain lines elsewhere."""
    rows = report.rows((rule.id, rule.name) for rule in rules)
    header = ("rule", "fired", "first at", "first event")
    if console.is_terminal:
        table = Table(*header)
        for row in rows:
            table.add_row(*row, style=None if row[1] != "0" else "dim")
        console.print(table)
    else:
        widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
        for row in [header, *rows]:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            click.echo("  ".join(cells).rstrip())
    for remark in report.remarks():
        click.echo(remark)


def _gauge(console: Console, size: int | None) -> Gauge:
    return BarGauge(console, size) if console.is_terminal else LineGauge(click.echo, size)
