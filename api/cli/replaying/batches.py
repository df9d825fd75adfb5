"""Sends recorded events to a detector in batches."""

from api.cli.recordings.reading import RecordedEvent
from api.cli.replaying.firings import Report
from api.client import Client


def send(client: Client, detector_id: str, batch: list[RecordedEvent], report: Report) -> None:
    """Evaluate a batch and count it into `report`. Raises ServiceError."""
    results = client.evaluate_batch(detector_id, [event_json(event) for event in batch])
    for event, result in zip(batch, results, strict=True):
        report.count(event, result)


def event_json(event: RecordedEvent) -> bytes:
    """Return an event as it stands in a batch; its time is exact to the microsecond."""
    whole, rest = divmod(event.time_us, 1000)
    timestamp = str(whole) if rest == 0 else repr(event.time_us / 1000)
    return b'{"fields":' + event.json + b',"timestamp_ms":' + timestamp.encode() + b"}"
