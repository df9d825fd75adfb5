"""Traces as in pages: a condition, then events with their time, fields and verdict."""

import json
import re
from dataclasses import dataclass
from typing import Any

from engine.language.condition import Condition
from engine.language.text.parser import parse

_EVENT = re.compile(r" *([0-9.]+)s +(\{.*\}) +(true|false)")
_DRAWN = re.compile(
    r"^```trace\n((?:(?!```).)*)\n```\n\n!\[[^\]]+\]\(drawings/([a-z-]+)\.svg\)$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Event:
    """One line of a trace."""

    time_s: float
    fields: dict[str, Any]
    verdict: bool


@dataclass(frozen=True)
class Trace:
    """A condition, and the events for which it is shown."""

    condition: Condition
    events: tuple[Event, ...]


def read(block: str) -> Trace:
    """Read a block of a page."""
    condition, *lines = block.split("\n")
    found = [_EVENT.fullmatch(line) for line in lines]
    assert all(found), block
    events = [Event(float(each[1]), json.loads(each[2]), each[3] == "true") for each in found if each]
    return Trace(parse(condition), tuple(events))


def drawn(page: str) -> dict[str, Trace]:
    """Return the traces of a page that are followed by a picture, by the picture's name."""
    return {name: read(block) for block, name in _DRAWN.findall(page)}
