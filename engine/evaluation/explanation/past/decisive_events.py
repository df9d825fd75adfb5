"""The decisive event of a temporal node: when it was, and until when the verdict that it settles stays.

`plan/temporal.py` says why the time of one event decides. What is read here is that memory as it was before
the event that is explained, and the truths of the operands at that event.
"""

from typing import NamedTuple, TypeAlias, assert_never

from engine.evaluation.explanation.past.futures import Future, negated, settled_until
from engine.language import condition as language

Temporal: TypeAlias = (
    language.Once
    | language.Historically
    | language.Since
    | language.OnceWithin
    | language.HistoricallyFor
    | language.SinceWithin
    | language.Previous
    | language.Earlier
    | language.EarlierWithin
)


class Settled(NamedTuple):
    """The verdict of a temporal node, and the time of the event that settles it."""

    future: Future
    witness_us: int | None = None
    """None if no single event does, as when an event is missing."""


def settle(node: Temporal, past_us: int | None, now_us: int, operands: tuple[bool, ...]) -> Settled:
    """Return the verdict at an event, from the time remembered before it and the operands' truths at it."""
    left, right = operands[0], operands[-1]
    match node:
        case language.Once():
            return _seen(now_us if right else past_us)
        case language.OnceWithin():
            return _seen_within(now_us if right else past_us, now_us, node.window_us)
        case language.Previous() | language.Earlier():
            return _seen(past_us)
        case language.EarlierWithin():
            return _seen_within(past_us, now_us, node.window_us)
        case language.Historically():
            return _negated(_seen(past_us if right else now_us))
        case language.HistoricallyFor(_, _, "strong"):
            return _run(past_us, now_us, node.window_us) if right else _broken(now_us)
        case language.HistoricallyFor():
            return _negated(_seen_within(past_us if right else now_us, now_us, node.window_us))
        case language.Since():
            return _seen(now_us if right else past_us) if left or right else _broken(now_us)
        case language.SinceWithin():
            latest_us = now_us if right else past_us
            return _seen_within(latest_us, now_us, node.window_us) if left or right else _broken(now_us)
        case _:
            assert_never(node)


def settled_since(node: Temporal, settled: Settled) -> int | None:
    """Return a time after which all events so far had the verdict, or None if none is known."""
    if settled.witness_us is None or not settled.future.verdict:
        return settled.witness_us
    match node:
        case language.HistoricallyFor(_, _, "strong"):
            # The witness is the start of the run, which has to last for the window.
            return settled.witness_us + node.window_us
        case _:
            return settled.witness_us


def _seen(latest_us: int | None) -> Settled:
    return Settled(Future(latest_us is not None), latest_us)


def _seen_within(latest_us: int | None, now_us: int, window_us: int) -> Settled:
    # An older event may have been forgotten already, so it is never named.
    if latest_us is None or latest_us < now_us - window_us:
        return Settled(Future(verdict=False))
    return Settled(settled_until(True, latest_us + window_us), latest_us)


def _run(start_us: int | None, now_us: int, window_us: int) -> Settled:
    """Return the verdict of a run that has lasted up to this event. It starts here if `start_us` is None."""
    # For a window of 0, any start will do: what is remembered may be older than the rule.
    start_us = now_us if start_us is None or not window_us else start_us
    if start_us <= now_us - window_us:
        return Settled(Future(verdict=True), start_us)
    return Settled(settled_until(False, start_us + window_us - 1), start_us)


def _broken(now_us: int) -> Settled:
    return Settled(Future(verdict=False), now_us)


def _negated(settled: Settled) -> Settled:
    return Settled(negated(settled.future), settled.witness_us)
