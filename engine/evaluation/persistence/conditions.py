"""Conditions and paths of keys as they are stored."""

from functools import lru_cache
from typing import Any, Final

import msgspec

from engine.evaluation.operators.table import parts_of
from engine.evaluation.paths import Filter, Path
from engine.language.condition import Compare, Condition, Keyed
from engine.language.json.writer import condition_to_document
from engine.language.nodes import Node, TermNode
from engine.language.validation.document import condition_from_stored

_SHORT_BYTES: Final = 1024
_READ_LATELY: Final = 1024
"""This many short conditions stay in memory once they are read: a few megabytes."""


def condition_bytes(condition: Condition) -> bytes:
    """Return a condition as JSON."""
    return msgspec.json.encode(condition_to_document(condition))


def stored_condition(data: bytes) -> Condition:
    """Return a condition that was validated when it was stored. Limits lowered since then do not apply."""
    return _read_lately(data) if len(data) <= _SHORT_BYTES else _read(data)


def _read(data: bytes) -> Condition:
    return condition_from_stored(_decoder.decode(data))


_decoder: Final = msgspec.json.Decoder(float_hook=float)
"""Python takes less time than the decoder for numbers near the ends of a double's range."""

# A document repeats the conditions of its rules, and a process often activates the same detectors again.
_read_lately: Final = lru_cache(_READ_LATELY)(_read)


def part_bytes(part: Node) -> bytes:
    """Return a part as JSON: a condition, or a comparison of a term with 0."""
    whole: Any = part
    return condition_bytes(Compare(whole, "eq", 0) if isinstance(part, TermNode) else whole)


def stored_part(data: bytes) -> Node:
    """Return a part from its JSON; see `requirements.py`."""
    condition = stored_condition(data)
    if isinstance(condition, Keyed):
        return condition
    [part] = parts_of(condition)
    return part


def path_document(path: Path) -> list[Any]:
    """Return a path: for each key its name, or [name, condition as JSON, birth] if it has a `where`."""
    return [
        step if isinstance(step, str) else [step.fact, condition_bytes(step.where), step.birth]
        for step in path
    ]


def stored_path(saved: list[Any]) -> Path:
    """Return the path of such a list."""
    return tuple(
        [step if type(step) is str else Filter(step[0], stored_condition(step[1]), step[2]) for step in saved]
    )
