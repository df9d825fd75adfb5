"""What is counted: which events and values, what is kept of them, and for how long they count."""

import random

from engine import Detector
from engine.evaluation.operators.counting.distinct import nth_latest


def detector(*rules: str) -> Detector:
    made = Detector()
    for number, rule in enumerate(rules):
        made.add_rule(f"r{number}", rule)
    return made


def test_a_record_keeps_little_more_than_a_comparison_needs() -> None:
    """A list of times may be longer, so that it is not moved at each event; a short one by two."""
    rules = {
        "count(a == 1) within 1h >= 3": (3, 5),
        "per k count(a == 1) >= 4": (4, 6),
        "per k count(a == 1) > 1000": (1_001, 1_255),
        "distinct(n) >= 3": (3, 3),
    }
    for rule, (needed, most) in rules.items():
        made = detector(rule)
        (slices,) = made.histories.slices.values()
        lengths = set()
        for number in range(5_000):
            made.evaluate({"a": 1, "k": 1, "n": number}, number)
            ((_, entry),) = slices.held_in(slices.find(1 if slices.path else ()) or [])
            lengths.add(len(entry))
        assert (min(lengths - set(range(needed))), max(lengths)) == (needed, most), rule


def test_the_nth_latest_of_other_values_is_found_from_either_end() -> None:
    drawn = random.Random(1)
    for length in (0, 1, 2, 7, 30):
        entry = {f"v{number}": 10 * number for number in drawn.sample(range(100), length)}
        entry = dict(sorted(entry.items(), key=lambda each: each[1]))
        for current in (None, "other", *list(entry)[:2], *list(entry)[-1:]):
            latest = [stamp for value, stamp in reversed(entry.items()) if value != current]
            found = [nth_latest(entry or (), n, current) for n in range(1, length + 2)]
            assert found == [latest[n - 1] if n <= len(latest) else None for n in range(1, length + 2)]
