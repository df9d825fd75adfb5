"""Runs the tests of rules in this process and in further processes."""

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from textwrap import indent
from typing import Any, Final, NamedTuple

from msgspec import UnsetType

from api.cli.messages import counted
from api.cli.printing.output import value_text
from api.cli.recordings.reading import ReadingOptions, RecordedEvent, Recording
from api.cli.recordings.skipping import RecordingError
from api.cli.recordings.times import NotATimeError, TimeParser, iso
from api.cli.rule_files.members import Firing as Expected
from api.cli.rule_files.members import Moment, RuleTest
from api.cli.rule_files.reading import NamedCondition, RulesFile
from api.cli.rule_files.relations import Tuple
from api.cli.trying.trial import Firing, Trial, stored
from engine.language.diagnostics import quoted

_EXPLAINED_MAX: Final = 3
"""The maximum number of events of a test that are explained."""
_TESTS_EACH: Final = 50
"""The number of tests for which another process is started; a start takes as long as some dozens of tests."""


class Case(NamedTuple):
    """One test of a rule."""

    rule: NamedCondition
    test: RuleTest
    number: int
    place: str
    """File and line."""


class Outcome(NamedTuple):
    """The outcome of one test."""

    file: str
    place: str
    rule: str
    test: str
    """The number of the test, and its name if it has one."""
    failures: list[str]
    """The failures: what was expected, what happened, and why; empty if the test passed."""
    seconds: float


class _Chunk(NamedTuple):
    """Tests of one file that one process runs."""

    file: str
    relations: Mapping[str, Sequence[Tuple]]
    cases: Sequence[Case]


def run_tests(files: Sequence[RulesFile], processes: int | None) -> Iterator[Outcome]:
    """Yield the outcomes of all tests, in the order of the files. Raises RuleFileError.

    Without a number of processes, as many are started as pay off.
    """
    chunks: list[_Chunk] = []
    for file in files:
        cases = [
            Case(rule, test, number, file.place(rule.name, "tests", number - 1))
            for rule in file.conditions()
            for number, test in enumerate(rule.members.tests or (), 1)
        ]
        chunks += [
            _Chunk(file.path, file.relations, cases[start : start + _TESTS_EACH])
            for start in range(0, len(cases), _TESTS_EACH)
        ]
    if processes == 1 or len(chunks) <= 1:
        yield from chain.from_iterable(map(_outcomes, chunks))
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from chain.from_iterable(pool.map(_outcomes, chunks))


def _outcomes(chunk: _Chunk) -> list[Outcome]:
    found = []
    made = partial(Trial, relations=stored(chunk.relations))
    for case in chunk.cases:
        begun = time.perf_counter()
        try:
            failures = list(_failures(case, chunk.file, made))
        except RecordingError as error:
            failures = [str(error)]
        name = f" ({case.test.name})" if case.test.name else ""
        seconds = time.perf_counter() - begun
        outcome = Outcome(chunk.file, case.place, case.rule.name, f"{case.number}{name}", failures, seconds)
        found.append(outcome)
    return found


def _failures(case: Case, file: str, made: Callable[..., Trial]) -> Iterator[str]:
    """Yield the differences between a rule's firings and a test's expectations. Raises RecordingError."""
    events = _events(case.test, Path(file).parent)
    fired: dict[int, Firing] = {}
    by_time: list[Firing] = []

    def note(firing: Firing) -> None:
        if firing.timed:
            by_time.append(firing)
        else:
            fired[firing.event.line] = firing

    trial = made([case.rule], note)
    trial.evaluate(events)
    if events and not isinstance(case.test.until, UnsetType):
        trial.tick(_microseconds(case.test.until, "until"), events[-1])
    yield from trial.refusals()
    if trial.late_refused:
        yield f"{counted(trial.late_refused, 'event')} refused, more than five minutes late"
    expected = [Expected(each) if isinstance(each, int) else each for each in case.test.fires]
    wanted = {each.line: each for each in expected if not isinstance(each.line, UnsetType)}
    explained = 0
    for number in sorted(wanted.keys() | fired.keys()):
        said = _difference(case.rule, number, wanted.get(number), fired.get(number), len(events))
        if not said:
            continue
        yield said
        if (number in wanted) != (number in fired) and number <= len(events) and explained < _EXPLAINED_MAX:
            explained += 1
            again = made([case.rule], lambda _: None)
            again.evaluate(events[: number - 1])
            yield indent("\n".join(again.explain(events[number - 1])), "  ")
    yield from _differences_by_time(case.rule, expected, by_time)


def _differences_by_time(
    rule: NamedCondition, expected: Sequence[Expected], fired: list[Firing]
) -> Iterator[str]:
    """Yield the differences between firings by time and the expected ones. Raises RecordingError."""
    for each in expected:
        if isinstance(each.time, UnsetType):
            continue
        time = iso(_microseconds(each.time, "time"))
        there = [one for one in fired if iso(one.event.time_us) == time]
        same = [one for one in there if not _mismatch(rule, each, one)]
        if same:
            fired.remove(same[0])
        elif len(there) == 1:
            fired.remove(there[0])
            yield f"fired by time at {time} {_mismatch(rule, each, there[0])}"
        else:
            keys = "" if isinstance(each.keys, UnsetType) else f" with {_shown(each.keys)}"
            yield f"expected to fire by time at {time}{keys}, and did not"
    for one in fired:
        keys = f" with {_shown(one.key)}" if one.key else ""
        yield f"fired by time at {iso(one.event.time_us)}{keys}, which is not expected"


def _difference(
    rule: NamedCondition, number: int, wanted: Expected | None, firing: Firing | None, events: int
) -> str:
    """Describe how one event differs from the expectation; empty if it does not."""
    if number > events:
        return f"expected to fire at event {number}, but there are {counted(events, 'event')}"
    if wanted is None:
        assert firing is not None, "one of the two is there"
        keys = f" with {_shown(firing.key)}" if firing.key else ""
        return f"fired at event {number}{keys}, which is not expected"
    if firing is None:
        return f"expected to fire at event {number}, and did not"
    mismatch = _mismatch(rule, wanted, firing)
    return f"fired at event {number} {mismatch}" if mismatch else ""


def _mismatch(rule: NamedCondition, wanted: Expected, firing: Firing) -> str:
    """Describe how a firing differs from the expected one; empty if it does not."""
    labels = rule.members.labels
    pairs: list[tuple[str, Any, Mapping[str, Any]]] = [
        ("", wanted.keys, firing.key),
        ("labels ", wanted.labels, {} if isinstance(labels, UnsetType) else labels),
    ]
    for kind, expected, found in pairs:
        members = {} if isinstance(expected, UnsetType) else expected
        if any(name not in found or not _equal(found[name], value) for name, value in members.items()):
            came = _shown({name: found[name] for name in found if kind == "" or name in members})
            return f"with {kind}{came or 'none'}, expected {_shown(members)}"
    if not isinstance(wanted.suppressed, UnsetType) and wanted.suppressed != firing.suppressed:
        return f"with {firing.suppressed} held back, expected {wanted.suppressed}"
    return ""


def _microseconds(given: Moment, name: str) -> int:
    """Return a time of a test in microseconds since 1970. Raises RecordingError."""
    try:
        return TimeParser().microseconds_of(given, name)
    except NotATimeError as error:
        raise RecordingError(str(error)) from None


def _equal(one: object, other: object) -> bool:
    """Whether two values are equal as JSON: `true` is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _shown(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{quoted(name)[1:-1]}={value_text(value)}" for name, value in values.items())


def _events(test: RuleTest, folder: Path) -> list[RecordedEvent]:
    """Return the events of a test, numbered from 1. Raises RecordingError."""
    reading = ReadingOptions(strict=True)
    if isinstance(test.events, str):
        recording = Recording(str(folder / test.events), io.BytesIO(), reading)
    else:
        lines = "".join(
            json.dumps(event, ensure_ascii=False, allow_nan=False) + "\n" for event in test.events
        )
        recording = Recording("-", io.BufferedReader(io.BytesIO(lines.encode())), reading)
        recording.name = "events"
    with recording:
        return [event._replace(line=number) for number, event in enumerate(recording.events(), 1)]
