"""Requests for the state of a detector, and their answers as JSON."""

from typing import Any, Final, Literal, assert_never

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.looking.holdings import (
    FIRST,
    KeyPlace,
    SeenKey,
    costliest,
    listed_keys,
    memories,
    overview,
    rules,
    seen_keys,
)
from engine.evaluation.explanation.looking.standing import standing, true_keys
from engine.evaluation.times import milliseconds
from engine.evaluation.wire.events import Done
from engine.language.condition import Scalar
from engine.language.json.writer import json_bytes

PAGE: Final = 100
"""The most entries of one page."""


class StateAsked(msgspec.Struct):
    """What is asked: the whole in numbers, a page of a list, or the tree of a rule."""

    about: Literal["all", "keys", "seen", "nodes", "rules", "costs", "rule", "true"] = "all"
    prefix: str = ""
    limit: int = PAGE
    after: tuple[int, int] | None = None
    """The last entry before the page: the event and the path of a key, the number of a node or a rule, or the
    cost and the number of a rule."""
    place: KeyPlace = KeyPlace()
    """Where reading all keys, all rules, or the keys of a rule continues."""
    rule_id: str = ""
    key: dict[str, Scalar] = {}


class Ranked(msgspec.Struct):
    """The part of a long list that one call has read, and where the next call continues."""

    entries: list[tuple[int, int, msgspec.Raw]]
    """Two numbers to sort by, and the entry as it is shown. Of a key, they are the event at which it was seen
    last and its path; of a rule, its cost and its number. The highest first number comes first; among equal
    ones, the lowest second number."""
    place: KeyPlace | None = None


def state_of(detector: Detector, payload: bytes) -> Done:
    """Return what is asked for. Raises Refusal 1201 for the rule, and 1400 if its keys cannot be listed."""
    asked = msgspec.json.decode(payload, type=StateAsked)
    return Done(json_bytes(_document(detector, asked)))


def _document(detector: Detector, asked: StateAsked) -> dict[str, Any]:
    match asked.about:
        case "all":
            return overview(detector)
        case "keys":
            return _keys(*listed_keys(detector.histories, asked.prefix, asked.limit, asked.place))
        case "seen":
            before = asked.after or FIRST
            return _keys(*seen_keys(detector.histories, asked.prefix, before, asked.limit, asked.place))
        case "true":
            return _keys(*true_keys(detector, asked.rule_id, asked.prefix, asked.limit, asked.place))
        case "nodes":
            nodes = memories(detector, _number(asked), asked.limit)
            more = {"after": str(_number(asked) + len(nodes))} if len(nodes) == asked.limit else {}
            return {"nodes": nodes, **more}
        case "rules":
            listed, after = rules(detector, asked.prefix, _number(asked), asked.limit)
            return {"rules": listed, **({} if after is None else {"after": str(after)})}
        case "costs":
            before = asked.after or FIRST
            most, after = costliest(detector, asked.prefix, before, asked.limit, asked.place.slot)
            return {"entries": most, "place": None if after is None else KeyPlace(slot=after)}
        case "rule":
            clock_us = detector.clock_us
            clock = {} if clock_us is None else {"clock_ms": milliseconds(clock_us)}
            return clock | standing(detector, asked.rule_id, asked.key)
        case _:
            assert_never(asked.about)


def _keys(found: list[SeenKey], place: KeyPlace | None) -> dict[str, Any]:
    keys = [
        (one.event, one.path, {"key": one.key, "last_event": one.event, "memories": one.memories})
        for one in found
    ]
    return {"entries": keys, "place": place}


def after_of(text: str) -> tuple[int, int]:
    """Return `StateAsked.after` for the text that a page gave."""
    number, _, path = text.partition("-")
    return int(number), int(path or 0)


def _number(asked: StateAsked) -> int:
    return 0 if asked.after is None else asked.after[0]
