"""Makes a history that no order explains shorter, for a person to read."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.linearizability.history import ANYTHING, READS, Call
from tests.linearizability.search import Model, Unexplained, explain

STEPS_MAX = 20_000
FORGET_STEPS_MAX = 1_500
FORGET_MAX = 30
"""How many answers before the violation are tried to be left out, one by one; older ones stay."""

MakeModel = Callable[[Sequence[Call]], Model]


def minimized(calls: Sequence[Call], make_model: MakeModel, forget_max: int = FORGET_MAX) -> list[Call]:
    """Return the shortest beginning of a history that no order explains, and only the answers that matter.

    That asks for less: what had not returned was executed perhaps, and a forgotten answer fits any order.
    """

    def fails(some: Sequence[Call], steps_max: int = STEPS_MAX) -> bool:
        found = explain(some, make_model(some), steps_max)
        return isinstance(found, Unexplained) and found.decided

    ends = sorted(call.returned_ns for call in calls if call.returned_ns is not None)
    low, high = 0, len(ends) - 1
    if not fails(calls):
        return list(calls)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(until(calls, ends[middle])) else (middle + 1, high)
    left = sorted(until(calls, ends[high]), key=lambda call: call.called_ns)
    return _without_answers(left, lambda some: fails(some, FORGET_STEPS_MAX), forget_max)


def until(calls: Sequence[Call], end_ns: int) -> list[Call]:
    """Return what was known at a time: what had not returned by then has no answer."""
    return [
        replace(call, returned_ns=None, answer=None)
        if call.returned_ns and call.returned_ns > end_ns
        else call
        for call in calls
        if call.called_ns <= end_ns
    ]


def _without_answers(
    calls: list[Call], fails: Callable[[Sequence[Call]], bool], forget_max: int
) -> list[Call]:
    """Forget answers, and drop questions and what was executed perhaps, while no order explains the rest."""
    for place in reversed(range(max(0, len(calls) - forget_max), len(calls))):
        call = calls[place]
        dropped = not call.answered or isinstance(call.asked, READS)
        instead = [] if dropped else [replace(call, answer=ANYTHING)]
        fewer = [*calls[:place], *instead, *calls[place + 1 :]]
        if fails(fewer):
            calls = fewer
    return calls


def told(calls: Sequence[Call], last: int = 40) -> str:
    """Write a history, one request a line, with its times in milliseconds before the end."""
    end_ns = max((call.returned_ns or call.called_ns for call in calls), default=0)
    lines = [f"({len(calls) - last} requests before)"] if len(calls) > last else []
    for call in sorted(calls, key=lambda call: call.called_ns)[-last:]:
        returned = "never" if call.returned_ns is None else f"{(call.returned_ns - end_ns) / 1e6:.1f}"
        began = f"{(call.called_ns - end_ns) / 1e6:.1f}"
        lines.append(f"{call.client} [{began} .. {returned}] {call.asked} -> {call.answer}")
    return "\n".join(lines)
