"""Comparisons of terms at an event: what their terms found, and when time alone turns a verdict.

A value steps when something leaves a window, or when the time of day changes. Between two steps it stays, or
changes in one direction, so a binary search finds when a comparison turns.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice, pairwise
from math import isfinite
from typing import Any, Final

from engine.evaluation.explanation.nodes import Future
from engine.evaluation.explanation.past import After, Deciding, turns
from engine.evaluation.operators.compare import crossings, found_in, motion_of, steps_us
from engine.evaluation.operators.table import parts_of, remembering
from engine.evaluation.operators.term_interface import Motion, PastTerm, together
from engine.evaluation.stamps import LATEST_US, NUMBER_BITS
from engine.language.condition import Compare, Predicate, Some, walk
from engine.language.diagnostics import json_type
from engine.language.nodes import TermNode
from engine.language.terms import Fact, Term
from engine.language.text.printer import format_term

STEPS_MAX: Final = 1_500
"""The most changes of the time of day that are looked at: those of the minutes of a day, or of the hours of
two months. A verdict that stays longer is known to stay until the last of them."""


class Comparing:
    """A comparison at an event, if the conditions that its terms observe have some truths there."""

    def __init__(self, deciding: Deciding, truths: tuple[bool, ...]) -> None:
        node = deciding.node
        assert isinstance(node, Compare), node
        self._node, self._deciding, self._truths = node, deciding, truths
        self.verdict = deciding.verdict(truths)

    def found(self) -> Mapping[TermNode, Any]:
        """Return the values of its terms, but not those of facts and constants; None for a missing one."""
        one = self._deciding
        pasts = [past.at(self._truths) for past in one.pasts]
        values = one.code.found(pasts, one.now_us << NUMBER_BITS, one.values)
        return {
            term: None if type(value) is float and not isfinite(value) else value
            for term, value in zip(found_in(self._node), values, strict=True)
        }

    def notes(self, found: Mapping[TermNode, Any], value: Callable[[str], Any]) -> list[str]:
        """Say which of the terms have no value, and where two values are of types that never compare."""

        def value_of(term: Term) -> Any:
            if isinstance(term, Fact):
                held = value(term.fact)
                return None if isinstance(held, list | dict) else held
            return found[term] if isinstance(term, TermNode) else term

        notes = [f"`{format_term(term)}` has no value" for term, held in found.items() if held is None]
        left, right = value_of(self._node.left), value_of(self._node.right)
        if left is not None and right is not None and json_type(left) != json_type(right):
            sides = [
                f"{format_term(term)} is {json_type(held)}"
                for term, held in ((self._node.left, left), (self._node.right, right))
            ]
            notes.append(f"{sides[0]} and {sides[1]}, which never compare")
        return notes

    def witness_us(self) -> int | None:
        """Return the time of the event that settles it, if its terms ask for a single one."""
        pasts, parts = self._deciding.pasts, parts_of(self._node)
        if len(parts) != 1:
            return None
        operator = remembering(parts[0])
        assert isinstance(operator, PastTerm), parts
        *past, born = pasts[0].at(self._truths)
        return operator.witness_us(tuple(past), born, self._deciding.now_us)

    def future(self) -> Future:
        """Return the verdict, and when it turns if nothing else happens. No event comes after LATEST_US."""
        node, now_us = self._node, self._deciding.now_us
        after = self._deciding.after(self._truths)
        steps = [*islice(merge(*steps_us(node, now_us)), STEPS_MAX)]
        horizon_us = steps[-1] if len(steps) == STEPS_MAX else None
        end_us = LATEST_US if horizon_us is None else horizon_us
        knots = {*steps, *(us for each in _leaving(node, after) for us in each)}
        motion = together([motion_of(node.left), motion_of(node.right)])
        if motion is Motion.BENT:
            return Future(self.verdict, (), now_us)
        if motion is not Motion.STILL:
            for crossing in crossings(node):
                decided = self._deciding.for_node(crossing).after(self._truths)
                knots.update(_crossed(decided, now_us, sorted(knots), end_us))
        flips = turns(after.verdict_at, sorted(knots), now_us, end_us)
        return Future(self.verdict, tuple(flips), horizon_us)


def future_of(predicate: Predicate, now_us: int, *, verdict: bool) -> Future:
    """Return the verdict of a predicate, and until when it is known to stay if nothing else happens.

    Of predicates, only `some` can ask for the time: in a comparison about each element.
    """
    inside = walk(predicate.inner) if isinstance(predicate, Some) else ()
    compared = [node for node, _ in inside if isinstance(node, Compare)]
    if any(motion_of(side) is not Motion.STILL for node in compared for side in (node.left, node.right)):
        return Future(verdict, (), now_us)
    steps = merge(*(each for node in compared for each in steps_us(node, now_us)))
    return Future(verdict, (), next(steps, None))


def _leaving(node: Compare, after: After) -> Iterator[Iterable[int]]:
    """Yield the times at which something leaves the windows of the terms."""
    for part, (_, entry, *_) in zip(parts_of(node), after.pasts, strict=True):
        yield remembering(part).turns_us(part, entry)


def _crossed(after: After, now_us: int, knots: list[int], end_us: int) -> Iterator[int]:
    """Yield the times just after which a comparison turns that turns at most once between two knots."""
    starts = [now_us, *(knot + 1 for knot in knots if now_us <= knot < end_us)]
    for start_us, stop_us in pairwise([*starts, end_us + 1]):
        verdict = after.verdict_at(start_us)
        if after.verdict_at(stop_us - 1) is not verdict:
            times = range(start_us, stop_us)
            turned = bisect_left(times, True, key=lambda us: after.verdict_at(us) is not verdict)
            yield times[turned] - 1
