"""Feeds recordings to whatever evaluates them, in batches, and shows the progress."""

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
from rich.console import Console

from api.cli.printing.progress import BarGauge, Gauge, LineGauge
from api.cli.recordings.live_input import LiveInput
from api.cli.recordings.reading import ReadingOptions, RecordedEvent, Recording
from api.cli.recordings.rows import READ_BYTES, RecordingError
from api.cli.recordings.sorting import in_order
from api.client.sending import Batches


@dataclass(slots=True)
class Feeding:
    """How recordings are read and batched. The console shows the progress."""

    reading: ReadingOptions
    console: Console
    late_us_max: int = 0
    """Events that come out of order by up to this much are sorted."""
    size_bytes: Callable[[RecordedEvent], int] = lambda _: 0
    """The size of an event in a batch, where batches have a bound in bytes."""

    def feed(self, files: Sequence[str], take: Callable[[list[RecordedEvent]], None]) -> str | None:
        """Hand all events to `take`, batch by batch; give the error that stopped it, or None."""
        for path in files:
            try:
                self._feed_one(path, take)
            except RecordingError as error:
                return str(error)
        return None

    def _feed_one(self, path: str, take: Callable[[list[RecordedEvent]], None]) -> None:
        batches = Batches(self.size_bytes)

        def hand_over(batch: list[RecordedEvent]) -> None:
            if batch:
                take(batch)
                gauge.advance(len(batch), recording.position())

        def flush() -> None:
            hand_over(batches.take())

        live = (
            io.BufferedReader(LiveInput(sys.stdin.fileno(), on_idle=flush), READ_BYTES)
            if path == "-"
            else io.BytesIO()
        )
        with Recording(path, live, self.reading) as recording, self._gauge(recording.size) as gauge:
            events = recording.events()
            try:
                for event in in_order(events, self.late_us_max) if self.late_us_max else events:
                    hand_over(batches.add(event))
            except RecordingError:
                # Evaluate the events before the bad line.
                flush()
                raise
            flush()

    def _gauge(self, size: int | None) -> Gauge:
        if self.console.is_terminal:
            return BarGauge(self.console, size)
        return LineGauge(lambda line: click.echo(line, file=self.console.file), size)
