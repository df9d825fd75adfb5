"""`rule-detector replay`: a recorded stream sent through a running service."""

import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from api.cli.client.detectors import add_rules, find_detector, list_rules
from api.cli.client.rule_files import RuleFileError, read_rules
from api.cli.client.service import Service, ServiceError
from api.cli.client.token_options import token_options
from api.cli.failures import fail
from api.cli.recorded.batches import Batches, send
from api.cli.recorded.columns import COLUMN_TYPES, ColumnType
from api.cli.recorded.firings import Firing, Report
from api.cli.recorded.live_input import LiveInput
from api.cli.recorded.progress import BarGauge, Gauge, LineGauge
from api.cli.recorded.reading import (
    READ_BYTES,
    TIME_FIELDS,
    Reading,
    RecordedEvent,
    Recording,
    RecordingError,
)
from api.cli.recorded.times import iso


def _column_types(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> dict[str, ColumnType]:
    """Read `--types user=text,n=number`."""
    found: dict[str, ColumnType] = {}
    for part in ",".join(given).split(",") if given else ():
        name, equals, type_ = part.rpartition("=")
        known = [known for known in COLUMN_TYPES if known == type_]
        if not (name and equals and known):
            raise click.BadParameter(f"`{part}`: expected COLUMN=TYPE, with one of {', '.join(COLUMN_TYPES)}")
        found[name] = known[0]
    return found


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
@click.option("--create", is_flag=True, help="Create the detector if none has this id or name.")
@click.option(
    "--time-field",
    metavar="NAME",
    help="The field with the event's time: ISO 8601, seconds or milliseconds, told apart.  "
    f"[default: the first of {', '.join(TIME_FIELDS)} that the first event has]",
)
@click.option(
    "--old-times", is_flag=True, help="Believe numbers that mean a time before 1980, without asking."
)
@click.option(
    "--types",
    "types",
    metavar="COLUMN=TYPE[,…]",
    multiple=True,
    callback=_column_types,
    help=f"Types of CSV columns ({', '.join(COLUMN_TYPES)}), where the cells would decide otherwise.",
)
@click.option(
    "--rules",
    "rule_files",
    metavar="FILE",
    multiple=True,
    help="First add the rules of this file to the detector: `name: condition`, in YAML or JSON. "
    "Rules that it has already stay as they are. May be given several times.",
)
def replay(
    *,
    files: tuple[str, ...],
    url: str,
    token: str,
    detector: str,
    create: bool,
    time_field: str | None,
    old_times: bool,
    types: Mapping[str, ColumnType],
    rule_files: tuple[str, ...],
) -> None:
    """Send recorded events through a running service and print which rules fire.

    Each FILE is NDJSON (a JSON object a line) or CSV with a header line, plain or gzipped; - is standard
    input. A CSV column holds numbers, or true and false, where all its cells in the first megabyte do, and
    text otherwise; the command says what it decided. Empty cells are missing.

    The events are sent in batches, in the order in which they stand. A detector's clock never runs
    backwards: replay in order of time, and old recordings on a fresh detector.

    What is lost on the way is sent again for a minute, also over a restart of the service, and no event
    is evaluated twice.

    Prints for each rule of the detector how often it fired, and when and where first. From standard input,
    which may be a live pipe, events are sent as they come, and each rule is named when it first fires.
    Events that the service refuses are counted and reported; at a line that is no event the replay stops,
    and says which.
    """
    reading = Reading(
        time_field, types=types, tell=_note, accept_old=lambda said: old_times or _confirmed(said)
    )
    try:
        conditions = [condition for path in rule_files for condition in read_rules(path)]
        with Service(url, token) as service:
            chosen = find_detector(service, detector, create=create)
            add_rules(service, chosen.id, conditions)
            if not list_rules(service, chosen.id):
                fail(f"the detector `{chosen.name}` has no rules, so nothing can fire; add some with --rules")
            run = Replay(service, chosen.id, Console())
            failure = run.run(files, reading)
            run.show()
    except (ServiceError, RuleFileError) as error:
        fail(str(error))
    refusals = run.report.refusals()
    if failure or refusals:
        fail("\n".join([*refusals, *([failure] if failure else [])]))


def _note(said: str) -> None:
    click.echo(said, err=True)


def _confirmed(said: str) -> bool:
    """Ask about a time that can hardly be meant. Nobody is asked where there is no terminal."""
    if not sys.stdin.isatty():
        return False
    return click.confirm(f"{said}. Is that right?", err=True)


@dataclass(slots=True)
class Replay:
    """A run of recordings through one detector, counted into `report`."""

    service: Service
    detector_id: str
    console: Console
    report: Report = field(default_factory=Report)

    def run(self, files: Sequence[str], reading: Reading) -> str | None:
        """Send the recordings one after another; give what stopped it early, None where nothing did."""
        for path in files:
            try:
                self._run_one(path, reading)
            except (RecordingError, ServiceError) as error:
                return str(error)
        return None

    def _run_one(self, path: str, reading: Reading) -> None:
        def evaluate(batch: list[RecordedEvent]) -> None:
            send(self.service, self.detector_id, batch, self.report)
            gauge.advance(len(batch), recording.position())

        batches = Batches(evaluate)
        self.report.on_first = _tell_first if path == "-" else None
        live = io.BufferedReader(LiveInput(sys.stdin.fileno(), on_idle=batches.flush), READ_BYTES)
        with Recording(path, live, reading) as recording, self._gauge(recording) as gauge:
            try:
                for event in recording.events():
                    batches.add(event)
            except RecordingError:
                # What came before the bad line is still evaluated.
                batches.flush()
                raise
            batches.flush()

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


def _tell_first(firing: Firing) -> None:
    click.echo(f"`{firing.name}` fires first at {iso(firing.first.time_us)}, {firing.first.place}", err=True)


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
