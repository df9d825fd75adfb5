"""Feeds recordings to whatever evaluates them, in batches, and shows the progress."""

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console

from api.cli.printing.progress import BarGauge, Gauge, LineGauge
from api.cli.recordings.live_input import LiveInput
from api.cli.recordings.reading import ReadingOptions, RecordedEvent, Recording
from api.cli.recordings.rows import READ_BYTES
from api.cli.recordings.skipping import RecordingError
from api.cli.recordings.sorting import Sorter, merged
from rule_detector_client.sending import Batches


@dataclass(slots=True)
class Feeding:
    """How recordings are read and batched. The console shows the progress."""

    reading: ReadingOptions
    console: Console
    sorter: Sorter | None = None
    """Puts the events of all recordings in one order; without it, they come one after another as they are."""
    size_bytes: Callable[[RecordedEvent], int] = lambda _: 0
    """The size of an event in a batch, where batches have a bound in bytes."""
    _open: list[Recording] = field(default_factory=list)
    _ended_bytes: int = 0

    def feed(self, files: Sequence[str], take: Callable[[list[RecordedEvent]], None]) -> str | None:
        """Hand all events to `take`, batch by batch; give the error that stopped it, or None."""
        for group in [files] if self.sorter else [[path] for path in files]:
            try:
                self._feed_together(group, take)
            except RecordingError as error:
                return str(error)
        return None

    def _feed_together(self, paths: Sequence[str], take: Callable[[list[RecordedEvent]], None]) -> None:
        batches = Batches(self.size_bytes)
        self._ended_bytes = 0

        def hand_over(batch: list[RecordedEvent]) -> None:
            if batch:
                take(batch)
                gauge.advance(len(batch), self._position())

        def flush() -> None:
            hand_over(batches.take())

        recorded = [self._events(path, flush) for path in paths]
        events = merged(recorded) if len(recorded) > 1 else recorded[0]
        with self._gauge(_size_of(paths)) as gauge:
            try:
                for event in self.sorter.in_order(events) if self.sorter else events:
                    hand_over(batches.add(event))
            except RecordingError:
                # Evaluate the events before the bad line.
                flush()
                raise
            flush()
            if self.sorter and self.sorter.interrupted:
                raise KeyboardInterrupt

    def _events(self, path: str, on_idle: Callable[[], None]) -> Iterator[RecordedEvent]:
        live = (
            io.BufferedReader(LiveInput(sys.stdin.fileno(), on_idle=on_idle), READ_BYTES)
            if path == "-"
            else io.BytesIO()
        )
        with Recording(path, live, self.reading) as recording:
            self._open.append(recording)
            try:
                yield from recording.events()
            finally:
                self._ended_bytes += recording.size or 0
                self._open.remove(recording)

    def _position(self) -> int:
        return self._ended_bytes + sum(recording.position() for recording in self._open)

    def _gauge(self, size: int | None) -> Gauge:
        if self.console.is_terminal:
            return BarGauge(self.console, size)
        return LineGauge(lambda line: click.echo(line, file=self.console.file), size)


def are_files(paths: Sequence[str]) -> bool:
    """Return whether all are files that lie on a disk; a pipe is none."""
    return all(path != "-" and Path(path).is_file() for path in paths)


def _size_of(paths: Sequence[str]) -> int | None:
    """Return the bytes of the files together; None if one is none."""
    return sum(Path(path).stat().st_size for path in paths) if are_files(paths) else None
