"""Warnings follow changes of rules and of stored relations after the first event."""

from engine.evaluation.detector import Detector


def codes(detector: Detector) -> list[int]:
    return [entry.code for entry in detector.submit({"user": "a", "friend": "b"}, 0).messages]


def test_warnings_follow_rules_and_relations_that_change_after_an_event() -> None:
    detector = Detector()
    detector.add_rule("first", "a == 1")
    assert codes(detector) == []
    rule_id = detector.add_rule("second", "friends(user, friend)")
    assert codes(detector) == [2003]
    detector.put_relation("friends", [("a", "b")], 0)
    assert codes(detector) == []
    detector.change_rule(rule_id, notify=True)
    assert codes(detector) == []
    detector.delete_relation("friends")
    assert codes(detector) == [2003]
    detector.remove_rule(rule_id)
    assert codes(detector) == []
