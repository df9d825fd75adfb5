"""What becomes of texts that are too long for patterns: no match, and message 2004 for each such name."""

import itertools
from collections.abc import Iterator

import re2

from engine import Detector, Limits
from engine.language.patterns import compile_pattern

LIMITS = Limits(pattern_text_chars_max=12, pattern_work_max=150)
TEXTS = [unit * count + "a" for unit in ("a", "é", "\U0001f600") for count in range(13)]
RULES = [
    ("t", "a$"),
    ("t", "(a|é|b){3}a$"),
    ("$t", "a$"),
    ("u", "(a|é|b){3}a$"),
    ("u", "(a|é|b){6}a$"),
    ("a.t", "a"),
]


def differences() -> Iterator[str]:
    """Give where verdicts or messages are not as they should be."""
    detector = Detector(limits=LIMITS)
    ids = [detector.add_rule(name="rule", condition=f"{name} matches '{pattern}'") for name, pattern in RULES]
    others = itertools.cycle([None, 5, "a", "bba", "b" * 12, "b" * 13, ["b" * 20]])
    for number, text in enumerate(TEXTS):
        values = {"t": next(others), "$t": text, "u": text if number % 3 else None, "a.t": next(others)}
        if number % 2:
            values |= {"t": text, "$t": next(others)}
        fields = {"t": values["t"], "u": values["u"], "a": {"t": values["a.t"]}}
        outcome = detector.submit(fields, number, {"t": values["$t"]})
        fired = {action["ruleId"] for action in outcome.actions}
        long = set[str]()
        for rule_id, (name, pattern) in zip(ids, RULES, strict=True):
            value = values[name]
            if too_long := isinstance(value, str) and compile_pattern(pattern, LIMITS).too_long(value):
                long.add(name)
            found = isinstance(value, str) and not too_long and re2.search(pattern, value) is not None
            if found is not (rule_id in fired):
                yield f"{name} matches {pattern}: {value!r}"
        said = [message.message.split("`")[1] for message in outcome.messages if message.code == 2004]
        if said != sorted(long):
            yield f"{values}: {said} was said of {long}"
