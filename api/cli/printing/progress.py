"""Shows the progress of a replay: a bar on a terminal, otherwise a line every few seconds."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from api.cli.counted import counted

LINE_EVERY_S: Final = 5.0


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
        # Rich's own redirection would send the bar through the stream that escapes control sequences.
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
        """Move the bar, by bytes, because the number of events is not known in advance."""
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
            # A task that never began has no duration.
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
"""Shows progress while it is entered."""
