"""A failure that goes on does not fill the log: the same message comes once in ten seconds, with a count."""

import io
import logging

import pytest

from api.observability.logs import EVERY_S, JsonFormatter, RepeatsHandler, TextFormatter

FULL = "/data/journal-%d has no room for %d more bytes: No space left on device"


class Log:
    """A log whose time a test sets."""

    def __init__(self, formatter: logging.Formatter | None = None) -> None:
        self.sink = io.StringIO()
        self.now_s = 0.0
        self.handler = RepeatsHandler(self.sink, lambda: self.now_s)
        self.handler.setFormatter(formatter or logging.Formatter("%(message)s"))

    def write(self, message: str, *arguments: object, level: int = logging.ERROR, name: str = "a") -> None:
        self.handler.handle(logging.LogRecord(name, level, "", 0, message, arguments, None))

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        self.handler.write_due()

    @property
    def lines(self) -> list[str]:
        return self.sink.getvalue().splitlines()


def test_a_full_disk_leaves_a_line_in_ten_seconds() -> None:
    log = Log(TextFormatter())
    for second in range(32):
        for number in range(113):
            log.write(FULL, second, number)
        log.later(1.0)
    log.handler.close()
    assert len(log.lines) == 5
    assert "repeated" not in log.lines[0]
    counted = [int(line.rpartition("repeated=")[2]) for line in log.lines[1:]]
    assert sum(counted) + 1 == 32 * 113
    assert FULL % (31, 112) in log.lines[-1], "the last one is written"


def test_messages_that_say_something_else_are_all_written() -> None:
    log = Log()
    for detector in ("0a3f", "0b3f"):
        log.write("detector %s: full", detector)
    log.write("full", name="a")
    log.write("full", name="b")
    log.write("full", level=logging.WARNING)
    assert len(log.lines) == 5


def test_what_is_no_failure_and_the_log_of_requests_are_not_held_back() -> None:
    log = Log()
    for _ in range(3):
        log.write("started", level=logging.INFO)
        log.write("a slow request", level=logging.WARNING, name="rule_detector.requests")
    assert len(log.lines) == 6


def test_a_message_that_returns_after_ten_seconds_is_written_at_once() -> None:
    log = Log()
    log.write("full")
    log.later(EVERY_S)
    log.write("full")
    log.later(EVERY_S)
    assert log.lines == ["full", "full"]


def test_the_number_of_known_messages_is_bounded() -> None:
    log = Log()
    for number in range(1500):
        log.write(f"name{number}x")
    assert len(log.lines) == 1500
    log.later(EVERY_S)
    log.write("full")
    log.write("full")
    assert len(log.lines) == 1501


def test_what_was_held_back_is_written_without_another_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.observability.logs._LOOK_S", 0.0)
    log = Log(JsonFormatter())
    log.write("full")
    log.now_s = EVERY_S
    log.write("full")
    timer = log.handler._timer
    assert timer is not None
    timer.join()
    assert '"repeated": 1' in log.lines[-1]
