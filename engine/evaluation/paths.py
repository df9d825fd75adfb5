"""Paths of keys, which identify the slices of a memory."""

from typing import Final, NamedTuple, TypeAlias

import msgspec

from engine.language import condition as language
from engine.language.condition import Condition, Keyed, walk
from engine.language.forms.table import FORM_OF
from engine.language.json.writer import condition_to_document
from engine.language.terms import looks_back

ANY_BIRTH: Final = -1
"""In place of a birth: shared by rules of all births."""


class Filter(NamedTuple):
    """A key with a `where`: its slices hold only the events at which `where` was true."""

    fact: str
    where: Condition
    birth: int
    """The birth of the rules with these slices, because `where` may differ between births; ANY_BIRTH if
    `where` depends only on the event, so that rules of all births share the slices."""


Path: TypeAlias = tuple[str | Filter, ...]
"""The keys around a node for rules of one birth, outermost first."""


def filter_of(key: str, where: Condition, birth: int) -> Filter:
    """Return the step that a `keyed` with a `where` adds to a path, for rules of one birth."""
    stateless = all(_asks_only_the_event(node) for node, _ in walk(where))
    return Filter(key, where, ANY_BIRTH if stateless else birth)


def fact_of(step: str | Filter) -> str:
    """Return the name of the key of a step."""
    return step if isinstance(step, str) else step.fact


def is_filtered(path: Path) -> bool:
    """Return whether a step of a path has a `where`."""
    return any(isinstance(step, Filter) for step in path)


def membership_of(path: Path) -> Condition:
    """Return the condition under which an event with all keys belongs to a slice of a filtered path."""
    # Keys after the last `where` add nothing.
    condition: Condition | None = None
    for step in reversed(path):
        where = step.where if isinstance(step, Filter) else None
        condition = where if condition is None else Keyed(condition, fact_of(step), where)
    assert condition is not None, "a step has a where"
    return condition


def order_of(path: Path) -> tuple[str, ...]:
    """Return the sort key of a path, which is the same in every process."""
    return tuple([step if isinstance(step, str) else _text_of(step) for step in path])


def _text_of(step: Filter) -> str:
    where = msgspec.json.encode(condition_to_document(step.where)).decode()
    return f"{step.fact}\0{step.birth}\0{where}"


def _asks_only_the_event(node: Condition) -> bool:
    if isinstance(node, language.Compare):
        return not looks_back(node.left) and not looks_back(node.right)
    return isinstance(node, Keyed) or not FORM_OF[type(node)].looks_back
