"""Feeds recordings to a trial, in batches, and shows the progress."""

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import click
from rich.console import Console

from api.cli.printing.progress import BarGauge, Gauge, LineGauge
from api.cli.recordings.live_input import LiveInput
from api.cli.recordings.reading import Reading, RecordedEvent, Recording
from api.cli.recordings.rows import READ_BYTES, RecordingError
from api.cli.recordings.sorting import in_order

BATCH_EVENTS: Final = 1_000


@dataclass(slots=True)
class Feeding:
    """Recordings, and how they are read."""

    files: Sequence[str]
    reading: Reading
    late_us_max: int
    console: Console
    """Shows the progress."""

    def feed(self, take: Callable[[list[RecordedEvent]], None]) -> str | None:
        """Hand all events to `take`, batch by batch; give the error that stopped it, or None."""
        for path in self.files:
            try:
                self._feed_one(path, take)
            except RecordingError as error:
                return str(error)
        return None

    def _feed_one(self, path: str, take: Callable[[list[RecordedEvent]], None]) -> None:
        batch: list[RecordedEvent] = []

        def flush() -> None:
            # A live pipe calls this in the midst of a read.
            events, batch[:] = batch[:], []
            if events:
                take(events)
                gauge.advance(len(events), recording.position())

        live = (
            io.BufferedReader(LiveInput(sys.stdin.fileno(), on_idle=flush), READ_BYTES)
            if path == "-"
            else io.BytesIO()
        )
        with Recording(path, live, self.reading) as recording, self._gauge(recording.size) as gauge:
            events = recording.events()
            try:
                for event in in_order(events, self.late_us_max) if self.late_us_max else events:
                    batch.append(event)
                    if len(batch) >= BATCH_EVENTS:
                        flush()
            finally:
                # Also the events before a bad line.
                flush()

    def _gauge(self, size: int | None) -> Gauge:
        if self.console.is_terminal:
            return BarGauge(self.console, size)
        return LineGauge(lambda line: click.echo(line, file=self.console.file), size)
