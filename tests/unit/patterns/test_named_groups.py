"""Named groups of a line: Python's syntax and answers where RE2 has them, and never its time."""

import re

import pytest

from engine.patterns.compiled_pattern import PatternError
from engine.patterns.named_groups import NamedGroups

PATTERNS = (
    r"^(?P<time>.{15}) .* password for (?P<user>\S+)",
    r"^(?P<time>.{15}) \S+ sshd.* password for (invalid user )?(?P<user>\S+) from (?P<ip>\S+)",
    r"(?P<b>b)?(?P<a>a)|(?P<c>c)",
    r"(?i)(?P<word>[a-z]+)(?: (?P<number>\d+))?$",
    r"(?P<accented>[à-ü]+)",
)
LINES = (
    "Dec 10 06:55:46 host sshd[1]: Failed password for invalid user ada from 192.0.2.7 port 22",
    "Dec 10 06:55:46 host sshd[1]: Failed password for eve from 192.0.2.8",
    "a",
    "ba",
    "xc",
    "Ada 17",
    "Ada",
    "",
    "é àü \x00 \ufffd",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_groups_are_those_of_python(pattern: str) -> None:
    mine, theirs = NamedGroups(pattern), re.compile(pattern)
    assert mine.names == list(theirs.groupindex)
    for line in LINES:
        found = theirs.search(line)
        assert mine.found_in(line) == (found and [found[name] or "" for name in mine.names])


def test_the_groups_may_be_numbered_otherwise_than_named() -> None:
    assert NamedGroups("(x)(?P<b>y)(?P<a>z)").found_in("xyz") == ["y", "z"]
    assert NamedGroups("(?P<b>y)(?P<a>z)").names == ["b", "a"]


def test_half_a_character_is_replaced() -> None:
    assert NamedGroups("(?P<a>.*)").found_in("a\ud800b") == ["a?b"]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", r"missing \): \("),
        ("(?P<a>(?=x))", r"invalid perl operator: \(\?="),
        (r"(?P<a>x)\1", r"invalid escape sequence: \\1"),
        (r"(?P<a>x)(?P=a)", r"invalid perl operator: \(\?P"),
        ("(?P<a>x)(?P<a>y)", "two groups are named a"),
        ("\ud800", "it is no Unicode text"),
    ],
)
def test_what_re2_has_not_is_refused_with_its_reason(pattern: str, said: str) -> None:
    with pytest.raises(PatternError, match=said):
        NamedGroups(pattern)


def test_a_hostile_line_takes_no_longer_than_another() -> None:
    # Python's own expressions would take more than the age of the universe.
    groups = NamedGroups("(?P<a>(a+)+)$")
    assert groups.found_in("a" * 100_000 + "!") is None
    assert groups.found_in("a" * 100_000) == ["a" * 100_000]
