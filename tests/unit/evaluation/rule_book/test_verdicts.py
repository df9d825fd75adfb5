"""What is kept of the rules that fired: a checksum, and how often each did."""

from engine.evaluation.rule_book.verdicts import VerdictChecksum
from engine.evaluation.rules import Rule
from engine.language.text.parser import parse

CONDITION = parse("a == 1")


def rule(priority: int) -> Rule:
    return Rule(id=str(priority), name="rule", condition=CONDITION, priority=priority)


BOTH, ONE = (rule(3), rule(5)), (rule(5),)


def test_the_checksum_is_the_one_that_journals_hold() -> None:
    verdicts = VerdictChecksum()
    assert verdicts.checksum == 0
    for _ in range(2):
        verdicts.note(2**32 + 5, [(), BOTH, ONE, (), BOTH, ()])
        assert verdicts.take() == 1_930_529_774


def test_the_checksum_tells_events_and_rules_apart_but_not_batches() -> None:
    whole, parts, others = VerdictChecksum(), VerdictChecksum(), VerdictChecksum()
    whole.note(1, [BOTH, (), ONE])
    parts.note(1, [BOTH])
    parts.note(2, [(), (rule(5),)])
    assert parts.take() == whole.checksum
    for fired in ([(), BOTH, ONE], [BOTH, ONE], [BOTH, (), BOTH], [BOTH, (), ()]):
        others.note(1, fired)
        assert others.take() != whole.checksum


def test_how_often_a_rule_has_fired_is_known_until_it_is_gone() -> None:
    verdicts = VerdictChecksum()
    assert verdicts.note(1, [BOTH, (), ONE, BOTH]) == 5
    verdicts.note(5, [BOTH])
    verdicts.forget(3)
    for _ in range(2):
        assert (verdicts.times_fired(3), verdicts.times_fired(5)) == (0, 4)


def test_rules_that_fire_in_ever_new_combinations_are_not_all_remembered() -> None:
    verdicts = VerdictChecksum()
    verdicts.note(1, [(rule(number), rule(1)) for number in range(2, 5_002)])
    assert not verdicts._together
    assert verdicts.times_fired(1) == 5_000
