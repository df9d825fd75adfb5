"""A rules file and a recording are read, or refused with an error that people can read."""

import gzip
import io
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cli.recordings.reading import ReadingOptions, Recording
from api.cli.recordings.skipping import RecordingError
from api.cli.rule_files.reading import RuleFileError, rules_file_of
from tests.api.fuzz.changes import changed, fuzz, tries

SAMPLE: Final = Path(__file__).parents[3] / "api/cli/sample"
DATA: Final = Path(__file__).parents[2] / "data"
RULES: Final = [path.read_bytes() for path in sorted([*SAMPLE.glob("*.yaml"), *DATA.glob("*.yaml")])]
RULES += [
    b"""detector: d
define: {failed: ok == false}
relations: {admins: [ada, [bob]], hosts: {file: hosts.csv, types: [string]}}
rules:
  a: {condition: failed and per user (once within 5m failed), labels: {x: y}, notify: true, every_secs: 60}
  b: &b
    condition: |
      a == 1
      and in_relation(admins, a)
    tests: [{events: [{a: 1, timestamp_ms: 5}], fires: [{event: 1, keys: {user: u}}]}]
  c: *b
""",
    b'{"rules": [{"name": "a", "condition": {"leaf": {"fact": "a", "op": "eq", "value": 1}}}]}',
    b"# lines\na: x == 1\n  and y == 2\n'b: c': once within 1h x == 1\n",
]
LINES: Final = gzip.decompress((SAMPLE / "logins.ndjson.gz").read_bytes()).splitlines(keepends=True)[:20]
RECORDINGS: Final = [
    b"".join(LINES),
    b'[{"time": "2024-03-04T09:00:00Z", "a": {"b": [1, 2]}}, {"time": 1709542800, "a": null}]',
    b'time,user,n\n2024-03-04 09:00:00,ada,1\n2024-03-04 09:00:01,"b,""ob",1e3\n',
    b'{"event": {"fields": {"a": 1}, "timestamp_ms": 1709542800000}, "context": {"vars": {"x": 1}}}\n',
    '{"time": 1709542800, "a": "ü"}\n'.encode("utf-16"),
    gzip.compress(b"".join(LINES), mtime=0),
]


def read_rules(data: bytes, name: str) -> None:
    """Read a rules file, and all of its conditions and tests."""
    with suppress(RuleFileError):
        list(rules_file_of(data.decode("utf-8", "replace"), name).defects())


def read_events(data: bytes, *, strict: bool) -> None:
    """Read all events of a recording."""
    source = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
    with suppress(RecordingError), Recording("-", source, ReadingOptions(strict=strict)) as recording:
        for event in recording.events():
            assert event.json


@pytest.mark.slow
@fuzz(200)
@given(changed(RULES), st.sampled_from(("rules.yaml", "rules.json", "rules.txt")))
def test_a_rules_file(data: bytes, name: str) -> None:
    for _ in tries():
        read_rules(data, name)


@fuzz(200)
@given(changed(RECORDINGS), st.booleans())
def test_a_recording(data: bytes, strict: bool) -> None:
    for _ in tries():
        read_events(data, strict=strict)
