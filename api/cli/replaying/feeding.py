"""Feeds recordings, in batches, to a function that evaluates them, and shows the progress."""

import gc
import io
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from api.cli.messages import counted
from api.cli.recordings.reading import ReadingOptions, RecordedEvent, Recording
from api.cli.recordings.rows import READ_BYTES
from api.cli.recordings.skipping import RecordingError
from api.cli.recordings.sorting import Sorter, merged
from rule_detector_client.sending import Batches

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


LINE_EVERY_S: Final = 5.0
IDLE_S: Final = 0.2
"""A pipe is idle after this long without data."""
_OBJECTS_BETWEEN_COLLECTIONS: Final = 200_000


class _Count(ProgressColumn):
    """The events so far and their rate."""

    def render(self, task: Task) -> Text:
        events = task.fields["events"]
        rate = events / task.elapsed if task.elapsed else 0.0
        return Text(f"{events:,} events  {rate:,.0f}/s")


class BarGauge:
    """A bar with events and rate, and with the time left if the size is known."""

    def __init__(self, console: Console, size: int | None) -> None:
        columns: list[ProgressColumn] = [TextColumn("Replaying"), BarColumn(), _Count()]
        if size is not None:
            columns += [TextColumn("left"), TimeRemainingColumn()]
        # Rich's redirection would send the bar through the stream that escapes control sequences.
        self._progress = Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False)
        self._task = self._progress.add_task("replay", total=size, events=0)
        self._size = size
        self._events = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self, events: int, position: int) -> None:
        """Move the bar by bytes, because the number of events is unknown in advance."""
        self._events += events
        completed = position if self._size is not None else None
        self._progress.update(self._task, completed=completed, events=self._events)


@dataclass
class LineGauge:
    """A line every LINE_EVERY_S seconds, and one at the end."""

    echo: Callable[[str], None]
    size: int | None
    now_s: Callable[[], float] = time.monotonic
    _events: int = 0
    _position: int = 0

    def __enter__(self) -> Self:
        self._start_s = self._shown_s = self.now_s()
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if failure and not self._events:
            # A task that never started has no duration.
            return
        elapsed_s = self.now_s() - self._start_s
        self.echo(f"{counted(self._events, 'event')} in {elapsed_s:.1f} s{self._rate(elapsed_s)}")

    def advance(self, events: int, position: int) -> None:
        """Print a line if LINE_EVERY_S seconds have passed since the last one."""
        self._events += events
        self._position = position
        now_s = self.now_s()
        if now_s - self._shown_s < LINE_EVERY_S:
            return
        self._shown_s = now_s
        elapsed_s = now_s - self._start_s
        self.echo(f"{counted(self._events, 'event')} so far{self._rate(elapsed_s)}{self._left(elapsed_s)}")

    def _rate(self, elapsed_s: float) -> str:
        return f", {self._events / elapsed_s:.0f}/s" if elapsed_s > 0 else ""

    def _left(self, elapsed_s: float) -> str:
        if not self.size or not self._position:
            return ""
        left_s = elapsed_s * max(0, self.size - self._position) / self._position
        return f", {100 * self._position // self.size} %, {left_s:.0f} s left"


Gauge = BarGauge | LineGauge
"""A context manager that shows progress."""


class LiveInput(io.RawIOBase):
    """The bytes of a file descriptor. Calls `on_idle` once each time a read waits longer than IDLE_S.

    An exception from `on_idle` ends the read.
    """

    def __init__(self, descriptor: int, on_idle: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_idle = on_idle

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int | None:
        """Read the available bytes, or wait for some."""
        if not select.select([self._descriptor], [], [], IDLE_S)[0]:
            self._on_idle()
        return os.readv(self._descriptor, [buffer])


@dataclass(slots=True)
class Feeding:
    """How recordings are read and batched. The console shows the progress."""

    reading: ReadingOptions
    console: Console
    sorter: Sorter | None = None
    """Sorts the events of all recordings together; None to take the recordings one after another."""
    size_bytes: Callable[[RecordedEvent], int] | None = None
    """The size of an event in a batch, if batches are bounded in bytes."""
    _open: list[Recording] = field(default_factory=list)
    _ended_bytes: int = 0

    def feed(self, files: Sequence[str], take: Callable[[list[RecordedEvent]], None]) -> str | None:
        """Pass all events to `take`, batch by batch; return the error that stopped it, or None."""
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
    """Make garbage collections rare: waiting events are many objects without reference cycles."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _OBJECTS_BETWEEN_COLLECTIONS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def are_files(paths: Sequence[str]) -> bool:
    """Return whether all paths are regular files, not pipes."""
    return all(path != "-" and Path(path).is_file() for path in paths)


def _size_of(paths: Sequence[str]) -> int | None:
    """Return the total size of the files; None if one is no regular file."""
    return sum(Path(path).stat().st_size for path in paths) if are_files(paths) else None
