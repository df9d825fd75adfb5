"""Plays scripts with timed rules and ticks on the engine and on the reference, and compares the firings."""

import contextlib
from collections.abc import Sequence
from itertools import groupby

from engine import Refusal
from engine.evaluation.timed.timing import FiredByTime
from engine.language import condition as terms
from engine.language import terms as values
from tests.differential.comparison import Pair
from tests.reference_timed import ByTime, firings, members_of
from tests.worlds.scripts import Submit
from tests.worlds.timed import AddTimed, Reload, Tick, TimedStep


class TimedPair(Pair):
    """A detector of the engine and one of the reference, whose timed rules fire at the same times."""

    def __init__(self) -> None:
        super().__init__()
        self.fired: list[ByTime] = []

    def play(self, step: TimedStep) -> None:
        """Let one thing happen to both; what fires by time before it must be the same."""
        engine, reference = self.engine, self.reference
        before = reference.clock_us
        expected = list[ByTime]()
        given = list[FiredByTime]()
        match step:
            case AddTimed(name, condition):
                rule_id = engine.add_rule(name=name, condition=condition, timed=True)
                reference.add_rule(rule_id, name, condition, notify=False, timed=True)
            case Tick(time_us):
                expected = self._expected(before, time_us)
                given = engine.tick(time_us)
                reference.ticked_us = max([time_us, *before])
            case Reload():
                self.reload()
            case Submit():
                engine.fired_by_time = given
                seen, rules = len(reference.events), dict(reference.rules)
                self.apply(step)
                if len(reference.events) > seen:
                    events, now_us = reference.events[:seen], reference.events[-1].time_us
                    expected = (
                        firings(rules, events, reference.relations, max(before), now_us) if before else []
                    )
            case _:
                self.apply(step)
        told = [ByTime(one.time_us, one.rule.id, tuple(one.keys.items())) for one in given]
        ends = {
            key for key, rule in reference.rules.items() if any(map(_may_end, members_of(rule.condition)))
        }
        assert _plain(told, ends) == _plain(expected, ends), (
            f"{step}: the engine gives {told}, the reference {expected}"
        )
        self.fired += told
        due_us = engine.next_due_us
        is_ahead = due_us is None or not reference.clock_us or due_us > max(reference.clock_us)
        assert is_ahead, f"{step}: due at {due_us}, clock {reference.clock_us}"

    def _expected(self, before: list[int], until_us: int) -> list[ByTime]:
        one = self.reference
        return firings(one.rules, one.events, one.relations, max(before), until_us) if before else []


def _may_end(part: object) -> bool:
    # An event may leave nothing remembered. The engine goes on with the slice if another one comes in time.
    ends = terms.Since | terms.SinceWithin | terms.CountSince | terms.Previous | values.Prev
    return isinstance(part, ends) or getattr(part, "boundary", None) == "strong"


def _plain(fired: Sequence[ByTime], ends: set[str]) -> list[object]:
    # The number 1 and true are two keys.
    rows = [(us, rule, [(n, type(v) is bool, v) for n, v in sorted(keys)]) for us, rule, keys in fired]
    for (_, rule), tied in groupby([*enumerate(rows)], key=lambda row: row[1][:2]):
        places = [place for place, _ in tied]
        if rule in ends:
            first, last = places[0], places[-1] + 1
            rows[first:last] = sorted(rows[first:last], key=repr)
    return [*rows]


def run(script: Sequence[TimedStep]) -> TimedPair:
    """Let a whole script happen."""
    pair = TimedPair()
    for step in script:
        pair.play(step)
    return pair


def disagreement(script: Sequence[TimedStep]) -> str | None:
    """Tell where engine and reference differ, or None."""
    try:
        run(script)
    except AssertionError as error:
        return str(error)
    return None


def shortened(script: Sequence[TimedStep]) -> list[TimedStep]:
    """Give a script on which the two still differ, though none of its steps can be left out."""
    for number in range(len(script)):
        shorter = [*script[:number], *script[number + 1 :]]
        with contextlib.suppress(LookupError, Refusal):
            if disagreement(shorter):
                return shortened(shorter)
    return list(script)
