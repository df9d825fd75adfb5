"""How far a detector's clock is behind the server's, which decides whether the service ticks it."""

from engine.evaluation.detector import Detector


def note_lag(detector: Detector, before: tuple[int | None, int], now_us: int) -> None:
    """Note the lag after events or ticks, if there were any since the clock and the event count `before`."""
    if detector.clock_us is not None and (detector.clock_us, detector.events_seen) != before:
        detector.behind_us = now_us - detector.clock_us


def due_of(detector: Detector) -> int | None:
    """When the service must tick a detector, by the server's clock; None if never.

    It must not if the detector's clock was far behind at the last event or tick: recorded events are being
    replayed, and a tick would make the following ones too late.
    """
    due_us, behind_us = detector.next_due_us, detector.behind_us
    if due_us is None or behind_us is None or behind_us > detector.limits.late_ms_max * 1_000:
        return None
    return due_us
