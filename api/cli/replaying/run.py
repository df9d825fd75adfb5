"""One replay: recordings sent through a detector, the progress shown, the rules that fired printed."""

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from api.cli.client.detectors import list_rules
from api.cli.client.service import Service, ServiceError
from api.cli.recordings.live_input import LiveInput
from api.cli.recordings.reading import READ_BYTES, Reading, RecordedEvent, Recording, RecordingError
from api.cli.recordings.times import iso
from api.cli.replaying.batches import Batches, send
from api.cli.replaying.firings import Firing, Report
from api.cli.replaying.progress import BarGauge, Gauge, LineGauge


@dataclass(slots=True)
class Replay:
    """Sends recordings through one detector and counts the results in `report`."""

    service: Service
    detector_id: str
    console: Console
    report: Report = field(default_factory=Report)

    def run(self, files: Sequence[str], reading: Reading) -> str | None:
        """Send the recordings one after another; give the error that stopped it, or None."""
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
                # Evaluate the events before the bad line.
                batches.flush()
                raise
            batches.flush()

    def show(self) -> None:
        """Print which rules fired, and the service's messages. Raises ServiceError."""
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
    """Print count, time and place of the first firing of each rule: as a table on a terminal."""
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
