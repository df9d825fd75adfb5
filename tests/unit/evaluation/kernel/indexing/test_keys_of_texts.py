"""Rules that are found by how a text begins or ends, or by the network of an address, as they come and go."""

import random

import pytest

from engine import Detector
from engine.language.condition import Condition, InNetwork, Leaf
from tests.differential.modes import in_mode
from tests.reference import Event, verdict

TEXTS = ("a", "b", "ab", "ba", "bb", "aba", "abb", "abab")
NETWORKS = (
    *("0.0.0.0/0", "10.0.0.0/8", "11.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "10.1.2.4", "::ffff:10.1.0.0/112"),
    *("::/0", "2001:db8::/32", "2001:db9::/32", "2001:db8:1::/48", "2001:db8::1", "2001:db8::2", "fe80::/10"),
)
CONDITIONS: tuple[Condition, ...] = (
    *(Leaf("x", "matches", f"(?s)^{text}") for text in TEXTS),
    *(Leaf("x", "matches", f"(?s){text}$") for text in TEXTS),
    *(InNetwork("x", (network,)) for network in NETWORKS),
)
VALUES = (
    *(
        *TEXTS,
        "",
        "aab",
        "babab",
        "10.1.2.3",
        "10.1.2.4",
        "10.2.0.0",
        "11.9.9.9",
        "192.168.0.1",
        "::ffff:10.1.2.3",
    ),
    *("2001:db8::1", "2001:db8::2", "2001:db8:1::5", "2001:db9::", "fe80::1", "::1"),
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_those_that_are_there_fire_and_no_others(seed: int) -> None:
    drawn, rules = random.Random(seed), dict[str, Condition]()
    with in_mode("indexed"):
        detector = Detector()
        for _ in range(60):
            if rules and drawn.random() < 0.45:
                gone = drawn.choice([*rules])
                detector.remove_rule(gone)
                del rules[gone]
            else:
                condition = drawn.choice(CONDITIONS)
                rules[detector.add_rule("rule", condition)] = condition
            for value in VALUES:
                fired = [action["ruleId"] for action in detector.evaluate({"x": value}, 0)]
                history = [Event(0, {"x": value}, {})]
                assert fired == [one for one, condition in rules.items() if verdict(condition, history)], (
                    value
                )
