"""One replay: recordings sent through a detector, the progress shown, the rules that fired printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click
import msgspec
from rich.console import Console

from api.cli.printing.tables import print_table
from api.cli.printing.terminal import on_one_line
from api.cli.recordings.reading import ReadingOptions, RecordedEvent
from api.cli.recordings.sorting import Sorter
from api.cli.recordings.times import iso
from api.cli.replaying.feeding import Feeding
from api.cli.replaying.firings import Firing, FiringsReport
from rule_detector_client import Client, ServiceError
from rule_detector_client.sending import Event

HEADER: Final = ("rule", "fired", "first at", "first event")
KEYED_HEADER: Final = ("rule", "key", "fired", "first at", "first event")


@dataclass(slots=True)
class Replay:
    """Sends recordings through one detector and counts the results in `report`."""

    client: Client
    detector_id: str
    console: Console
    report: FiringsReport = field(default_factory=FiringsReport)
    sorter: Sorter | None = None
    """Puts the events of all recordings in one order; without it, they are sent as they come."""
    variables: Mapping[str, Any] | None = None
    """The `context.vars` of every event."""

    keys: bool = False
    """Whether to ask for whom rules fire, which costs the service more."""

    def run(self, files: Sequence[str], reading: ReadingOptions) -> str | None:
        """Send the recordings one after another; give the error that stopped it, or None."""
        feeding = Feeding(reading, self.console, self.sorter, size_bytes=lambda event: len(event.json))
        try:
            for group in [files] if self.sorter else [[path] for path in files]:
                live = "-" in group
                self.report.on_first = _tell_first if live else None
                self.report.on_first_refusal = _tell_refusal if live else None
                if failure := feeding.feed(group, self.send):
                    return failure
        except ServiceError as error:
            return str(error)
        return None

    def send(self, batch: list[RecordedEvent]) -> None:
        """Evaluate a batch and count its results. Raises ServiceError."""
        # The time is exact to the microsecond.
        sent = [Event(msgspec.Raw(event.json), event.time_us / 1_000).json() for event in batch]
        results = self.client.evaluate_batch(self.detector_id, sent, self.variables, details=self.keys)
        for event, result in zip(batch, results, strict=True):
            self.report.count(event, result)

    def show(self) -> None:
        """Print which rules fired, and the service's messages. Raises ServiceError."""
        rules = list(self.client.rules(self.detector_id))
        if self.keys:
            print_table(KEYED_HEADER, list(self.report.rows_by_key(rules)), self.console)
        else:
            print_table(HEADER, self.report.rows(rules), self.console)
        for warning in self.report.warnings():
            click.echo(warning)


def _tell_refusal(example: str) -> None:
    click.echo(f"refused for the first time: {on_one_line(example)}", err=True)


def _tell_first(firing: Firing) -> None:
    name, place = on_one_line(firing.name), on_one_line(firing.first.place)
    click.echo(f"`{name}` fires first at {iso(firing.first.time_us)}, {place}", err=True)
