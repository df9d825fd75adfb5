"""Texts too long for patterns: no pattern matches them, and message 2004 names each such fact."""

import itertools
from collections.abc import Iterator

import re2

from engine import Detector, Limits
from engine.patterns.compiled_pattern import compile_pattern

LIMITS = Limits(pattern_text_chars_max=12, pattern_work_max=150)
TEXTS = [unit * count + "a" for unit in ("a", "é", "\U0001f600") for count in range(13)]
SMALL, MIDDLE, LARGE = "a$", "(a|é|b){3}a$", "(a|é|b){6}a$"
RULES = [
    ("t", [SMALL]),
    ("t", [MIDDLE]),
    ("$t", [SMALL]),
    ("u", [LARGE, SMALL]),
    ("a.t", ["a"]),
    ("u", [MIDDLE]),
]
"""Names, and the patterns that may match their texts."""


def differences() -> Iterator[str]:
    """Yield where verdicts or messages are wrong."""
    detector = Detector(limits=LIMITS)
    conditions = [" or ".join(f"{name} matches '{one}'" for one in patterns) for name, patterns in RULES]
    ids = [detector.add_rule(name="rule", condition=condition) for condition in conditions]
    others = itertools.cycle([None, 5, "a", "bba", "b" * 12, "b" * 13, ["b" * 20]])
    for number, text in enumerate(TEXTS):
        values = {"t": next(others), "$t": text, "u": text if number % 3 else None, "a.t": next(others)}
        if number % 2:
            values |= {"t": text, "$t": next(others)}
        fields = {"t": values["t"], "u": values["u"], "a": {"t": values["a.t"]}}
        outcome = detector.submit(fields, number, {"t": values["$t"]})
        fired = {action["ruleId"] for action in outcome.actions}
        long = set[str]()
        for rule_id, (name, patterns) in zip(ids, RULES, strict=True):
            value = values[name]
            tried = [] if not isinstance(value, str) else patterns
            short = [one for one in tried if not compile_pattern(one, LIMITS).too_long(value)]
            long |= {name} if len(short) < len(tried) else set()
            if any(re2.search(one, value) for one in short) is not (rule_id in fired):
                yield f"{name} matches {patterns}: {value!r}"
        said = [message.message.split("`")[1] for message in outcome.messages if message.code == 2004]
        if said != sorted(long):
            yield f"{values}: {said} was said of {long}"
