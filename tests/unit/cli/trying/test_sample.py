import gzip
import json

from api.cli.recordings.reading import ReadingOptions, Recording
from api.cli.rule_files.reading import conditions_of
from api.cli.sample import RECORDING, RULES
from engine.language.json.writer import condition_to_document
from tests.worlds.online_shop import recording


def test_the_committed_recording_is_the_one_that_the_script_writes() -> None:
    assert gzip.decompress(RECORDING.read_bytes()) == recording()


def test_the_recording_is_in_order_of_time_and_of_modest_size() -> None:
    with Recording(str(RECORDING), None, ReadingOptions("time")) as sample:  # type: ignore[arg-type]
        times_us = [event.time_us for event in sample.events()]
    assert times_us == sorted(times_us)
    assert 1_000 < len(times_us) < 5_000


def test_the_sample_rules_show_off_the_language() -> None:
    shown = json.dumps(
        [
            condition_to_document(rule.condition)
            for rule in conditions_of(RULES.read_text("utf-8"), RULES.name)
        ]
    )
    members = ("once_within", "count", "since_within", "historically_for", "keyed", "not", "all")
    operators = ("eq", "nin", "between", "matches", "contains")
    assert [name for name in members + operators if f'"{name}"' not in shown] == []
