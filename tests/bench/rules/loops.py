"""Temporal members as one writes them by hand for a single rule: loops that keep one number, or one a key.

`past` carries what is remembered from one stretch of events to the next; a loop reads it once and writes it
once, so that in between it works with what is at hand.
"""

from typing import Any

from tests.bench.measuring.race import Event

NEVER = float("-inf")


def once_within(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`once within`: the latest alarm is young enough."""
    seen_ms = past.get("", NEVER)
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        if fields["alarm"] == 1:
            seen_ms = time_ms
        answers.append([0] if seen_ms >= time_ms - window_ms else [])
    past[""] = seen_ms
    return answers


def held_weak(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`historically for`: the latest event that was not calm is too old to matter."""
    broken_ms = past.get("", NEVER)
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        if fields["calm"] != 1:
            broken_ms = time_ms
        answers.append([0] if broken_ms < time_ms - window_ms else [])
    past[""] = broken_ms
    return answers


def held_strong(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`historically for … strong`: calm without a break since long enough ago."""
    since_ms = past.get("")
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        if fields["calm"] != 1:
            since_ms = None
        elif since_ms is None:
            since_ms = time_ms
        answers.append([0] if since_ms is not None and since_ms <= time_ms - window_ms else [])
    past.clear()
    if since_ms is not None:
        past[""] = since_ms
    return answers


def since_within(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`since within`: the latest alarm is young enough, and all was calm after it."""
    seen_ms = past.get("", NEVER)
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        if fields["alarm"] == 1:
            seen_ms = time_ms
        elif fields["calm"] != 1:
            seen_ms = NEVER
        answers.append([0] if seen_ms >= time_ms - window_ms else [])
    past[""] = seen_ms
    return answers


def once_within_keyed(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`once within`: the latest alarm is young enough. Per user."""
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        user = fields["user"]
        if fields["alarm"] == 1:
            past[user] = time_ms
        answers.append([0] if past.get(user, NEVER) >= time_ms - window_ms else [])
    return answers


def held_weak_keyed(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`historically for`: the latest event that was not calm is too old to matter. Per user."""
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        user = fields["user"]
        if fields["calm"] != 1:
            past[user] = time_ms
        answers.append([0] if past.get(user, NEVER) < time_ms - window_ms else [])
    return answers


def held_strong_keyed(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`historically for … strong`: calm without a break since long enough ago. Per user."""
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        user = fields["user"]
        if fields["calm"] != 1:
            past.pop(user, None)
            answers.append([])
        else:
            answers.append([0] if past.setdefault(user, time_ms) <= time_ms - window_ms else [])
    return answers


def since_within_keyed(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`since within`: the latest alarm is young enough, and all was calm after it. Per user."""
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        user = fields["user"]
        if fields["alarm"] == 1:
            past[user] = time_ms
        elif fields["calm"] != 1:
            past.pop(user, None)
        answers.append([0] if past.get(user, NEVER) >= time_ms - window_ms else [])
    return answers
