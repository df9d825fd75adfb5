"""A detector that is saved and loaded between any two events goes on as if it never had been."""

import pytest

from engine import Detector, parse
from engine.evaluation.slices import slices


def reloaded(detector: Detector) -> Detector:
    return Detector.load(detector.dump(), Detector.STATE_VERSION)


@pytest.mark.parametrize("keys", [("a", "b"), ("a", 1, True, 1.5, 10**30, "x" * 300), (1, 2)])
@pytest.mark.parametrize("path", ["per k", "per k per k"])
def test_keys_are_those_of_before(path: str, keys: tuple[object, ...]) -> None:
    detector = Detector()
    detector.add_rule("rule", f"{path} once q == 1")
    for key in keys:
        detector.evaluate({"k": key, "q": 1}, 0)
    found = []
    for one in (detector, reloaded(detector)):
        (slices,) = one.histories.slices.values()
        found.append([(key, type(key)) for shard in slices.shards for key in shard])
    assert found[0] == found[1]
    detector = reloaded(detector)
    assert all(detector.evaluate({"k": key}, 1) for key in keys)


def test_a_version_that_is_not_known_yet_is_no_detector() -> None:
    with pytest.raises(AssertionError, match="unknown"):
        Detector.load(b"", Detector.STATE_VERSION + 1)


WRITTEN = "per k  # a key\n  (once a == 1)"


def test_conditions_are_kept_as_they_were_written() -> None:
    made = Detector()
    given = (WRITTEN, "a == 1", '{"not": {"leaf": {"fact": "a", "op": "eq", "value": 1}}}', parse("a  == 2"))
    ids = [made.add_rule("rule", one) for one in given]

    def sources(detector: Detector) -> list[str | None]:
        return [detector.rule(one).source for one in ids]

    assert sources(made) == [WRITTEN, None, given[2], None]
    assert sources(reloaded(made)) == sources(made)
    made.evaluate({"k": 1, "a": 1}, 0)
    history = made.live[ids[0]].birth
    made.change_rule(ids[0], condition=f"{WRITTEN} # and more")
    made.change_rule(ids[0], name="other")
    assert made.rule(ids[0]).source == f"{WRITTEN} # and more"
    assert made.live[ids[0]].birth == history, "the same condition goes on with its history"
    made.change_rule(ids[0], condition="a == 1")
    assert made.rule(ids[0]).source is None


def size_of(detector: Detector) -> tuple[int, int, int]:
    histories = detector.histories
    return histories.live, histories.keyed_bytes, histories.unkeyed_bytes


@pytest.mark.parametrize("places", [1, 2, 16])
def test_sizes_go_on_as_they_did_when_rules_had_come_and_gone(
    places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "PLACES_MAX", slices.FIRST + places)
    made = Detector()
    conditions = (
        "per k count(p == 1) >= 30",
        "per k once q == 1",
        "per k count(p == 1) >= 2",
        "per k sum(p) > 2",
    )
    ids = [made.add_rule("rule", condition) for condition in conditions]
    for number in range(20):
        made.evaluate({"k": number % 2, "p": 1, "q": number % 3}, number)
    for rule_id, condition in zip(ids[:2], ("per k once r == 1", "per k distinct(q) > 1"), strict=True):
        # A record stays as long as the rule that is gone asked for. Another memory has its place.
        made.remove_rule(rule_id)
        made.add_rule("rule", condition)
    again = reloaded(made)
    for number in range(20, 90):
        for detector in (made, again):
            detector.evaluate({"k": number % 3, "p": 1, "q": number % 4, "r": number % 2}, number)
        assert size_of(again) == size_of(made), number
    assert again.dump() == made.dump()
