import json

import msgspec
import pytest

from api.cli.recordings.reading import RecordedEvent
from api.cli.recordings.times import now_us
from api.cli.replaying.replay import FiringsReport
from rule_detector_client import Action, Entry, Event, EventResult, Rule


def test_times_go_out_in_milliseconds_to_the_microsecond() -> None:
    times_us = [1_588_205_198_899_710, 1_588_205_198_899_000, 0, -1_500, 8_640_000_000_000_000_000]
    sent = [
        json.loads(Event(msgspec.Raw(b"{}"), time_us / 1_000).json())["timestamp_ms"] for time_us in times_us
    ]
    assert sent == [1588205198899.71, 1588205198899, 0, -1.5, 8640000000000000]
    assert [round(sent_ms * 1000) for sent_ms in sent] == times_us


def test_the_report_tells_count_and_first_place_of_rules_that_fired_and_of_those_that_did_not() -> None:
    report = FiringsReport()
    fired = EventResult([Action("match", "r", "rule", 1, notify=False)], messages=[Entry(2001, "late")])
    for n, result in enumerate([EventResult([]), EventResult([]), fired, fired, fired], 1):
        report.count(RecordedEvent("e", n, {}, n * 1000, b"{}"), result)
    rules = [
        Rule(one, {}, "d", enabled=True, name=name, notify=False, priority=1, shadow=name == "shadow")
        for one, name in (("q", "silent"), ("s", "shadow"), ("r", "rule"))
    ]
    assert report.rows(rules) == [
        ("silent", "0", "", ""),
        ("shadow", "shadow", "", ""),
        ("rule", "3", "1970-01-01T00:00:00.003Z", "e, line 3"),
    ]
    assert report.warnings() == ["message 2001, 3 times; first e, line 3: late"]


def test_the_report_tells_how_many_events_were_refused_and_why() -> None:
    report = FiringsReport()
    for n in range(1, 8):
        errors = [Entry(1001, "the reason")] if n in {3, 6} else []
        report.count(RecordedEvent("e", n, {}, n * 1000, b"{}"), EventResult([], errors))
    assert (report.events, report.refused) == (7, {1001: 2})
    assert report.refusals() == ["2 of 7 events refused with 1001; first e, line 3: the reason"]


def test_late_events_are_told_in_one_line_with_the_option_that_sorts_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = FiringsReport(is_live=True)
    for n, (second, code) in enumerate([(9_000, 0), (5_000, 0), (10, 1402), (20, 1402)], 1):
        errors = [Entry(code, f"{second} ms late")] if code else []
        report.count(RecordedEvent("e", n, {}, second * 1_000_000), EventResult([], errors))
    assert report.refusals() == [
        (
            "2 of 4 events refused with 1402; first e, line 3: 10 ms late; "
            "here events come up to 3h late, and `--max-late 3h` sorts them"
        )
    ]
    told = [line.partition(";")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == ["refused for the first time: e, line 3: 1402 10 ms late"]


def test_times_ahead_are_told_with_the_option_for_their_zone() -> None:
    report = FiringsReport()
    ahead = RecordedEvent("e", 1, {}, now_us() + 9 * 3_600_000_000)
    report.count(ahead, EventResult([], [Entry(1402, "ahead")]))
    assert "name it with --time-zone" in report.refusals()[0]
    assert "--max-late" not in report.refusals()[0]


def test_firings_are_counted_by_key_where_keys_are_told() -> None:
    report = FiringsReport()
    for number in range(1, 32):
        keys = {"ip": "a", "n": 1} if number <= 10 else {"ip": f"b{number}", "n": 1}
        fired = [Action("match", "r", "rule", 1, notify=False, keys=keys)]
        report.count(RecordedEvent("f/e", number, {}, number * 1000, b"{}"), EventResult(fired))
    rules = [Rule(one, {}, "d", enabled=True, name=one, notify=False, priority=1) for one in ("r", "silent")]
    first, *others, left, silent = report.rows_by_key(rules)
    assert first == ("r", "ip=a n=1", "10", "1970-01-01T00:00:00.001Z", "e, line 1")
    assert [row[1:3] for row in others] == [(f"ip=b{number} n=1", "1") for number in range(11, 30)]
    assert left == ("r", "other keys", "2", "", "")
    assert silent == ("silent", "", "0", "", "")


def test_the_report_tells_how_many_actions_were_held_back() -> None:
    report = FiringsReport()
    for n, held in enumerate((0, 9, 3), 1):
        action = Action("match", "r", "rule", 1, notify=False, suppressed=held, keys={"host": "a"})
        report.count(RecordedEvent("e", n, {}, n * 1000, b"{}"), EventResult([action]))
    rules = [Rule("r", {}, "d", enabled=True, name="rule", notify=False, priority=1)]
    assert report.rows(rules)[0][:2] == ("rule", "3 (12 held back)")
    assert [row[:3] for row in report.rows_by_key(rules)] == [("rule", "host=a", "3")]
