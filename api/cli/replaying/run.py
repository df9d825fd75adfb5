"""One replay: recordings sent through a detector, the progress shown, the rules that fired printed."""

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import click
from rich.console import Console

from api.cli.printing.progress import BarGauge, Gauge, LineGauge
from api.cli.printing.tables import print_table
from api.cli.recordings.live_input import LiveInput
from api.cli.recordings.reading import Reading, RecordedEvent, Recording
from api.cli.recordings.rows import READ_BYTES, RecordingError
from api.cli.recordings.times import iso
from api.cli.replaying.batches import send
from api.cli.replaying.firings import Firing, Report
from api.client import Client, ServiceError, calls
from api.client.sending import Batches

HEADER: Final = ("rule", "fired", "first at", "first event")


@dataclass(slots=True)
class Replay:
    """Sends recordings through one detector and counts the results in `report`."""

    client: Client
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
        def flush() -> None:
            evaluate(batches.take())

        def evaluate(batch: list[RecordedEvent]) -> None:
            if batch:
                send(self.client, self.detector_id, batch, self.report)
                gauge.advance(len(batch), recording.position())

        batches = Batches[RecordedEvent](lambda event: len(event.json))
        self.report.on_first = _tell_first if path == "-" else None
        live = io.BufferedReader(LiveInput(sys.stdin.fileno(), on_idle=flush), READ_BYTES)
        with Recording(path, live, reading) as recording, self._gauge(recording) as gauge:
            try:
                for event in recording.events():
                    evaluate(batches.add(event))
            except RecordingError:
                # Evaluate the events before the bad line.
                flush()
                raise
            flush()

    def show(self) -> None:
        """Print which rules fired, and the service's messages. Raises ServiceError."""
        rules = self.client.send(calls.list_rules(self.detector_id))
        rows = self.report.rows((rule.id, rule.name) for rule in rules)
        print_table(HEADER, rows, self.console)
        for warning in self.report.warnings():
            click.echo(warning)

    def _gauge(self, recording: Recording) -> Gauge:
        if self.console.is_terminal:
            return BarGauge(self.console, recording.size)
        return LineGauge(click.echo, recording.size)


def _tell_first(firing: Firing) -> None:
    click.echo(f"`{firing.name}` fires first at {iso(firing.first.time_us)}, {firing.first.place}", err=True)
