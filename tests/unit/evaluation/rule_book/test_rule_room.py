"""The size of all rules of a detector is bounded, as JSON, however they come, go and change."""

import json
from dataclasses import replace

import pytest

from engine import Detector, Refusal
from engine.evaluation.rule_book.rooms import Room, room_for_rules
from engine.evaluation.rules import Rule
from engine.language.limits import Limits

SMALL = "a == 1"
CONTROLS = "a == " + json.dumps("\x01" * 1_000)
LIMITS = Limits(rules_bytes_max=20_000)


def refused(detector: Detector, condition: str, rule_id: str | None = None, *, name: str = "r") -> bool:
    before = detector.dump()
    caught: Refusal | None = None
    try:
        if rule_id is None:
            detector.add_rule(name, condition)
        else:
            detector.change_rule(rule_id, condition=condition)
    except Refusal as refusal:
        caught = refusal
    if caught is None:
        return False
    assert caught.code == 1400
    assert "limit 20000" in caught.entries[0].message
    assert detector.dump() == before
    return True


def filled(limits: Limits = LIMITS) -> tuple[Detector, list[str]]:
    """Give a detector that has room for small rules only: each of its own takes six times its characters."""
    detector = Detector(limits=limits)
    return detector, [detector.add_rule(f"r{number}", CONTROLS) for number in range(3)]


def test_rules_past_the_bound_are_refused_by_their_size_as_json() -> None:
    detector, ids = filled()
    assert refused(detector, CONTROLS)
    assert not refused(detector, SMALL)
    detector.remove_rule(ids[0])
    assert not refused(detector, CONTROLS)
    assert refused(detector, CONTROLS)


def test_a_change_counts_by_what_it_adds() -> None:
    detector, ids = filled()
    assert not refused(detector, SMALL, ids[0])
    assert not refused(detector, CONTROLS, ids[0])
    assert refused(detector, f"{CONTROLS} or b == {json.dumps(chr(1) * 1_000)}", ids[0])
    for _ in range(20):
        detector.change_rule(ids[1], enabled=False)
        detector.change_rule(ids[1], enabled=True, name="another")
    assert refused(detector, CONTROLS)
    assert not refused(detector, SMALL)


def test_names_and_sources_count() -> None:
    detector, _ = filled()
    assert refused(detector, f"a == 1 # {'x' * 3_000}")
    while not refused(detector, SMALL, name="\U0001f600" * 255):
        assert len(detector.rules()) < 10


def test_a_loaded_detector_counts_the_same() -> None:
    detector, ids = filled()
    detector.add_rule("draft", "b == 1 # a source", shadow=True, draft_of=ids[2])
    detector.promote(ids[2])
    loaded = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=LIMITS)
    sizes = [rule.bytes_as_json() for rule in detector.rules()]
    assert [rule.bytes_as_json() for rule in loaded.rules()] == sizes
    assert refused(loaded, CONTROLS)
    loaded.remove_rule(ids[0])
    assert not refused(loaded, CONTROLS)


def test_promoted_rules_give_back_what_they_took() -> None:
    detector, ids = filled()
    draft = detector.add_rule("draft", SMALL, shadow=True, draft_of=ids[0])
    detector.promote(ids[0])
    assert refused(detector, CONTROLS)
    detector.remove_rule(draft)
    assert not refused(detector, CONTROLS)
    assert refused(detector, CONTROLS)


def test_a_detector_past_a_bound_that_was_lowered_can_lose_rules_and_gain_none() -> None:
    detector, ids = filled(Limits())
    lowered = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=Limits(rules_bytes_max=10_000))
    with pytest.raises(Refusal, match="limit 10000"):
        lowered.add_rule("r", SMALL)
    lowered.change_rule(ids[0], condition=SMALL)
    lowered.remove_rule(ids[1])
    lowered.add_rule("r", SMALL)


def test_the_bound_is_kept_to_the_byte() -> None:
    first, second = Detector(), Detector()
    first.add_rule("one", SMALL)
    second.add_rule("two", SMALL)
    (one,), (two,) = first.rules(), second.rules()
    size = one.bytes_as_json()
    assert two.bytes_as_json() == size

    def room(bytes_max: int, *rules: Rule) -> Room[Rule]:
        made = room_for_rules(Limits(rules_bytes_max=bytes_max))
        made.add(rules)
        return made

    room(size).check([one])
    room(2 * size, one).check([two])
    for full in (room(size - 1), room(2 * size - 1, one)):
        with pytest.raises(Refusal):
            full.check([two])
    # What takes no more than before can always be put in its place.
    room(1, one).check([two], [one])
    with pytest.raises(Refusal):
        room(size, one).check([replace(two, name="two and")], [one])


def test_nothing_is_kept_of_rules_that_are_gone() -> None:
    detector, _ = filled()
    one, two, _ = detector.rules()
    room = room_for_rules(LIMITS)
    for add, remove in (([one], []), ([two], [one]), ([one, one], [two])):
        room.add(add)
        room.remove(remove)
        assert room.taken == sum(rule.bytes_as_json() for rule in {*add})
    room.remove([one, one])
    assert room.taken == 0
    assert not room._uses
