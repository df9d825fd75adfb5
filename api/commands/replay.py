"""`rule-detector replay`: a recorded stream sent through a running service."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from api.commands.batches import batches, send
from api.commands.detectors import add_rules, find_detector, list_rules
from api.commands.failures import fail
from api.commands.firings import Report
from api.commands.progress import BarGauge, Gauge, LineGauge
from api.commands.recordings import TIME_FIELDS, Recording, RecordingError
from api.commands.rule_files import RuleFileError, conditions_of
from api.commands.service import Service, ServiceError
from api.commands.token_options import token_options


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
@token_options
@click.option("--detector", required=True, metavar="ID|NAME", help="The detector that evaluates the events.")
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
    *, files: tuple[str, ...], url: str, token: str, detector: str, time_field: str | None, rules: str | None
) -> None:
    """Send recorded events through a running service and print which rules fire.

    Each FILE is NDJSON (a JSON object a line) or CSV with a header line, plain or gzipped; - is standard
    input. In CSV, cells that read as JSON numbers, true or false are such, empty cells are missing,
    and all else is text.

    The events are sent in batches, in the order in which they stand. A detector's clock never runs
    backwards: replay in order of time, and old recordings on a fresh detector.

    What is lost on the way is sent again for a minute, also over a restart of the service, and no event
    is evaluated twice.

    Prints for each rule of the detector how often it fired, and when and where first. Events that the service
    refuses are counted and reported; at a line that is no event the replay stops, and says which.
    """
    try:
        conditions = conditions_of(Path(rules).read_text("utf-8-sig"), rules) if rules else []
        with Service(url, token) as service:
            chosen = find_detector(service, detector)
            add_rules(service, chosen.id, conditions)
            run = Replay(service, chosen.id, Console())
            failure = run.run(files, time_field)
            run.show()
    except (ServiceError, RuleFileError) as error:
        fail(str(error))
    except UnicodeDecodeError:
        fail(f"{rules}: it is not valid UTF-8")
    except OSError as error:
        fail(f"{rules}: {(error.strerror or str(error)).lower()}")
    refusals = run.report.refusals()
    if failure or refusals:
        fail("\n".join([*refusals, *([failure] if failure else [])]))


@dataclass(frozen=True, slots=True)
class Replay:
    """A run of recordings through one detector, counted into `report`."""

    service: Service
    detector_id: str
    console: Console
    report: Report = field(default_factory=Report)

    def run(self, files: Sequence[str], time_field: str | None) -> str | None:
        """Send the recordings one after another; give what stopped it early, None where nothing did."""
        for path in files:
            try:
                with Recording(path, sys.stdin.buffer) as recording, self._gauge(recording) as gauge:
                    for batch in batches(recording.events(time_field)):
                        send(self.service, self.detector_id, batch, self.report)
                        gauge.advance(len(batch), recording.position())
            except (RecordingError, ServiceError) as error:
                return str(error)
        return None

    def show(self) -> None:
        """Print what fired: a table on a terminal, aligned plain lines elsewhere. Raises ServiceError."""
        rules = list_rules(self.service, self.detector_id)
        print_rows(self.report.rows((rule.id, rule.name) for rule in rules), self.console)
        for remark in self.report.remarks():
            click.echo(remark)

    def _gauge(self, recording: Recording) -> Gauge:
        if self.console.is_terminal:
            return BarGauge(self.console, recording.size)
        return LineGauge(click.echo, recording.size)


def print_rows(rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print rule, count, time and place of the first firing; rules that stayed silent are dimmed."""
    header = ("rule", "fired", "first at", "first event")
    if console.is_terminal:
        name, fired, first_at, first_event = header
        table = Table()
        table.add_column(name, overflow="fold")
        table.add_column(fired, justify="right")
        table.add_column(first_at, no_wrap=True)
        table.add_column(first_event, overflow="fold")
        for row in rows:
            table.add_row(*map(escape, row), style="dim" if row[1] == "0" else None)
        console.print(table)
        return
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())
