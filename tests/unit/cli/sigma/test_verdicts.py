"""Converted rules of SigmaHQ and what an independent matcher says about events made from them."""

import os
import re
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sigma.conditions import ConditionFieldEqualsValueExpression, ConditionValueExpression
from sigma.rule import SigmaRule
from sigma.types import SigmaFieldReference

from api.cli.recordings.reading import ReadingOptions, Recording
from api.cli.sigma.conversion import Conversion, Converted, Converter
from api.cli.sigma.sources import Rule, path_of
from engine import Detector
from tests.reference_values import look_up
from tests.thoroughness import WHOLE
from tests.unit.cli.sigma.events import others, positive
from tests.unit.cli.sigma.matcher import Event, matcher

EVERY = 20 if WHOLE else 60
CHUNK = 60
# It asks for a command line that is "RunWizard", and that holds a GUID.
NEVER_TRUE = {"COM Object Execution via Xwizard.EXE"}
KEYWORD_FIELDS = ("Message", "CommandLine")
WHOLE = ""
"""Stands for all fields of an event."""
Texts = dict[str, bytes]
Written = Callable[[Iterable[str]], list[str]]


def data(name: str) -> Path:
    path = Path(os.environ.get("RULE_DETECTOR_TEST_DATA", "/nonexistent")) / name
    if not path.is_file():
        pytest.skip("RULE_DETECTOR_TEST_DATA names no folder with the recordings")
    return path


@pytest.fixture(scope="module")
def texts() -> Texts:
    """The rules of SigmaHQ by their paths."""
    with tarfile.open(data("sigmahq-rules.tar.gz")) as archive:
        read = ((each.name, archive.extractfile(each)) for each in archive if each.name.endswith(".yml"))
        return dict(sorted((name, file.read()) for name, file in read if file is not None))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, texts: Texts) -> Written:
    """Writes some of the rules to files, and gives their paths."""
    folder = tmp_path_factory.mktemp("sigmahq")

    def write(names: Iterable[str]) -> list[str]:
        for name in (names := list(names)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(texts[name])
        return [str(folder / name) for name in names]

    return write


def check(converted: Sequence[Converted], keyword_fields: tuple[str, ...] = ()) -> None:
    """Compare the verdicts of the engine and the matcher for events that are made from each rule."""
    random = Random(20)
    for start in range(0, len(converted), CHUNK):
        chunk = converted[start : start + CHUNK]
        detector = Detector()
        for place, each in enumerate(chunk):
            detector.add_rule(str(place), each.condition)
        for place, each in enumerate(chunk):
            assert isinstance(each.rule, SigmaRule)
            matches = matcher(each.rule, keyword_fields)
            event = positive(each.rule, matches, random, keyword_fields)
            events = [event, *others(each.rule, event, random, keyword_fields)]
            expected = [matches(one) for one in events]
            assert set(expected) == {each.rule.title not in NEVER_TRUE, False}, each.rule.title
            for one, verdict in zip(events, expected, strict=True):
                fired = {action["name"] for action in detector.evaluate(one, 1_700_000_000_000)}
                assert (str(place) in fired) is verdict, (each.rule.title, one, each.text)


def test_each_rule_of_a_sample_means_what_the_matcher_says(texts: Texts, written: Written) -> None:
    conversion = Converter().convert(written([*texts][::EVERY]))
    assert conversion.left_out == []
    check(conversion.converted)


@pytest.mark.parametrize("fields", [(), KEYWORD_FIELDS])
def test_keyword_rules_mean_what_the_matcher_says(
    texts: Texts, written: Written, fields: tuple[str, ...]
) -> None:
    begins = re.compile(rb"^ +keywords?\w*:", re.MULTILINE)
    searching = [name for name, text in texts.items() if begins.search(text)]
    conversion = Converter(keyword_fields=fields).convert(written(searching))
    found = [each for each in conversion.converted if "anywhere (" in each.text]
    assert len(found) >= (0 if fields else 70)
    check(conversion.converted, fields)


@pytest.fixture(scope="module")
def everything(texts: Texts, written: Written) -> Conversion:
    return Converter().convert(written(texts))


@pytest.mark.storm
def test_all_rules_mean_what_the_matcher_says(everything: Conversion) -> None:
    # Its list of hashes has 330 kB, and a condition at most 64 KiB.
    assert [each.title for each in everything.left_out] == ["Vulnerable Driver Load"]
    check(everything.converted)


@pytest.mark.long
def test_all_windows_rules_fire_at_the_events_of_a_recorded_attack_that_match(everything: Conversion) -> None:
    rules = [each for each in everything.converted if "windows" in path_of(each.rule).parts]
    detector = Detector()
    for place, each in enumerate(rules):
        detector.add_rule(str(place), each.condition)
    with Recording(str(data("windows-dcsync.ndjson.gz")), None, ReadingOptions("@timestamp")) as recording:
        recorded = [(event.fields, event.time_us / 1000, None) for event in recording.events()]
    found: dict[int, list[int]] = {}
    for at, fired in enumerate(detector.evaluate_many(recorded)):
        for rule in fired:
            found.setdefault(int(rule.name), []).append(at)
    # If no rule fired, or all, agreement would mean little.
    assert 5 < len(found) < len(rules)
    expected = matched([each.rule for each in rules], [fields for fields, *_ in recorded])
    assert {place: at for place, at in expected.items() if at} == found


def matched(rules: Sequence[Rule], events: Sequence[Event]) -> dict[int, list[int]]:
    """Return the events that each rule matches. Those that agree in all its fields are judged once."""
    by_fields: dict[tuple[str, ...], list[int]] = {}
    for place, rule in enumerate(rules):
        by_fields.setdefault(tuple(sorted(fields_of(rule))), []).append(place)
    found: dict[int, list[int]] = {}
    for fields, places in by_fields.items():
        alike: dict[str, list[int]] = {}
        for at, event in enumerate(events):
            read = [event if field == WHOLE else look_up(field, event, {}) for field in fields]
            alike.setdefault(repr(read), []).append(at)
        for place in places:
            matches = matcher(rules[place])
            found[place] = sorted(at for same in alike.values() if matches(events[same[0]]) for at in same)
    return found


def fields_of(rule: Rule) -> set[str]:
    fields = set[str]()
    pending: list[Any] = [condition.parsed for condition in rule.detection.parsed_condition]
    while pending:
        node = pending.pop()
        pending += getattr(node, "args", [])
        if isinstance(node, ConditionValueExpression):
            fields.add(WHOLE)
        if isinstance(node, ConditionFieldEqualsValueExpression):
            fields.add(node.field)
            if isinstance(node.value, SigmaFieldReference):
                fields.add(node.value.field)
    return fields
