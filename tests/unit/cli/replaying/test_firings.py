import json

import msgspec

from api.cli.recordings.reading import RecordedEvent
from api.cli.replaying.firings import FiringsReport
from api.client import Action, Entry, Event, EventResult, Rule


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
