"""Limits that change: what is stored keeps them, and what an older program stored is taken up."""

from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.runtime.contract.requests import operations as ops
from tests.local_runtime.owners import ONE, codes, event
from tests.unit.runtime.detector.executor.requests import add, fired


def test_limits_that_are_set_anew_hold_and_are_in_the_journal(make, actor):
    add(actor, "per k once a == 1")
    for key in range(6):
        fired(actor, 1000, k=key, a=1)
    for epoch in (2, 3):
        fewer = make(limits=Limits(keys_max=3))
        fewer.activate(ONE, epoch)
        assert fewer._active.detector.limits.keys_max == 3
        fired(fewer, 2000, k=7, a=1)
    expected = [fired(fewer, 3000, k=key) for key in range(8)]
    again = make()
    again.activate(ONE, 4)
    assert sum(map(len, expected)) == 3
    assert again._active.detector.limits == DEFAULT_LIMITS


def test_a_stored_pattern_is_not_held_to_a_bound_that_was_lowered(make, actor):
    rule_id = add(actor, "a matches '[a-z]{200}x'")
    lowered = {"limits": Limits(pattern_program_max=10)}
    other = make(**lowered)
    other.activate(ONE, 2)
    assert codes(other.handle([ops.add_rule("r", "a matches '[a-z]{200}x'")]).answers[0]) == [1302]
    assert fired(other, a="b" * 200 + "x") == [rule_id]
    other.handle([ops.change_rule(rule_id, name="new")])
    again = make(**lowered)
    again.activate(ONE, 3)
    assert fired(again, a="b" * 200 + "x") == [rule_id]


def test_limits_that_were_lowered_below_what_is_stored_undo_nothing_of_it(make, actor):
    long = add(actor, "a matches '(abc|de+f){50}'")
    add(actor, "per u (once b == 1) and c == 1")
    actor.handle([event(1000 + number, u=number, b=1) for number in range(40)])
    actor.discard()
    names = (
        "text_bytes_max",
        "nodes_max",
        "depth_max",
        "pattern_program_max",
        "rules_max",
        "batch_events_max",
    )
    lower = make(limits=Limits(keys_max=5, **dict.fromkeys(names, 1)))
    lower.activate(ONE, 2)
    assert fired(lower, 2000, a="abc" * 50) == [long]
    lower.handle([event(2000 + number, u=number, c=1) for number in range(40)])
    for epoch, begins in ((3, True), (4, False)):
        if begins:
            lower.begin_saving()
            lower.finish_saving()
        lower.discard()
        lower = make()
        lower.activate(ONE, epoch)
        assert fired(lower, 3000 + epoch, a="abc" * 50) == [long]
