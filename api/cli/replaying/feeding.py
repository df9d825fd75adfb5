"""Feeds recordings to whatever evaluates them, in batches, and shows the progress."""

import gc
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from api.cli.printing.progress import BarGauge, Gauge, LineGauge
from api.cli.recordings.reading import ReadingOptions, RecordedEvent, Recording
from api.cli.recordings.rows import READ_BYTES
from api.cli.recordings.skipping import RecordingError
from api.cli.recordings.sorting import Sorter, merged
from api.cli.replaying.live_input import LiveInput
from rule_detector_client.sending import Batches

_OBJECTS_BETWEEN_COLLECTIONS: Final = 200_000


@dataclass(slots=True)
class Feeding:
    """How recordings are read and batched. The console shows the progress."""

    reading: ReadingOptions
    console: Console
    sorter: Sorter | None = None
    """Puts the events of all recordings in one order; without it, they come one after another as they are."""
    size_bytes: Callable[[RecordedEvent], int] | None = None
    """The size of an event in a batch, where batches have a bound in bytes."""
    _open: list[Recording] = field(default_factory=list)
    _ended_bytes: int = 0

    def feed(self, files: Sequence[str], take: Callable[[list[RecordedEvent]], None]) -> str | None:
        """Hand all events to `take`, batch by batch; give the error that stopped it, or None."""
        with _rare_collections():
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

        recorded = [self._portions(path, flush) for path in paths]
        portions: Iterator[list[RecordedEvent]] = recorded[0]
        if len(recorded) > 1:
            portions = ([event] for event in merged(map(chain.from_iterable, recorded)))
        with self._gauge(_size_of(paths)) as gauge:
            try:
                for portion in self.sorter.in_order(portions) if self.sorter else portions:
                    for batch in batches.add_all(portion):
                        hand_over(batch)
            except RecordingError:
                # Evaluate the events before the bad line.
                flush()
                raise
            flush()
            if self.sorter and self.sorter.interrupted:
                raise KeyboardInterrupt

    def _portions(self, path: str, on_idle: Callable[[], None]) -> Iterator[list[RecordedEvent]]:
        live = (
            io.BufferedReader(LiveInput(sys.stdin.fileno(), on_idle=on_idle), READ_BYTES)
            if path == "-"
            else io.BytesIO()
        )
        with Recording(path, live, self.reading) as recording:
            self._open.append(recording)
            try:
                yield from recording.portions()
            finally:
                self._ended_bytes += recording.size or 0
                self._open.remove(recording)

    def _position(self) -> int:
        return self._ended_bytes + sum(recording.position() for recording in self._open)

    def _gauge(self, size: int | None) -> Gauge:
        if self.console.is_terminal:
            return BarGauge(self.console, size)
        return LineGauge(lambda line: click.echo(line, file=self.console.file), size)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Have Python look for circles of objects rarely: events that wait are many objects, and form none."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _OBJECTS_BETWEEN_COLLECTIONS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def are_files(paths: Sequence[str]) -> bool:
    """Return whether all are files that lie on a disk; a pipe is none."""
    return all(path != "-" and Path(path).is_file() for path in paths)


def _size_of(paths: Sequence[str]) -> int | None:
    """Return the bytes of the files together; None if one is none."""
    return sum(Path(path).stat().st_size for path in paths) if are_files(paths) else None
