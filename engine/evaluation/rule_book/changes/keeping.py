"""Decides which parts of a changed condition keep their histories, and which begin anew.

A part keeps its history if the old condition has it, too, under the same path of keys. So does a part that
differs only in bounds, if the state of the old one serves it: a smaller window, a count that needs no more,
another comparison, a smaller lower bound.
"""

from collections.abc import Iterator
from typing import Any, Final

from engine.evaluation.operators.table import parts_of, remembering
from engine.evaluation.paths import Path
from engine.evaluation.requirements import Birth, Births, Part, inside, looks_back, where_of
from engine.language.condition import Condition, Keyed
from engine.language.nodes import Node, TermNode
from engine.language.text.printer import format as canonical
from engine.language.text.printer import format_term

_BOUNDS: Final = frozenset({"window_secs", "min_secs", "op", "value"})
"""The members of a part that are bounds."""


def keeping(before: Condition, births: Births, after: Condition, now: Births) -> Births:
    """Return the births of a rule that keeps histories when its condition changes."""
    return _kept(before, births, after, now)[0]


def begins_anew(before: Condition, after: Condition) -> list[str]:
    """Return the parts of a changed condition that begin anew although the rule keeps histories.

    They are canonical texts, in the order of the condition. Only outermost parts are listed.
    """
    return [text_of(part) for part in _kept(before, Births(), after, Births(1))[1]]


def text_of(node: Node) -> str:
    """Return a part as text."""
    whole: Any = node
    return format_term(whole) if isinstance(node, TermNode) else canonical(whole)


def _kept(before: Condition, births: Births, after: Condition, now: Births) -> tuple[Births, list[Node]]:
    serving: dict[Any, list[tuple[Node, Birth]]] = {}
    equal: dict[Part, Birth] = {}
    for part, own in _parts(before, births, ()):
        equal[part] = birth = Birth(own.birth, own.born)
        serving.setdefault(_without_bounds(part), []).append((part.node, birth))
    kept: dict[Part, Birth] = {}
    made = Births(now.birth, now.born, kept)
    anew: dict[Node, None] = {}
    # The births found so far determine the paths of later parts.
    for part, _ in _parts(after, made, ()):
        able = [each for node, each in serving.get(_without_bounds(part), ()) if _serves(node, part.node)]
        if part in equal:
            kept[part] = equal[part]
        elif able:
            kept[part] = min(able)
        else:
            anew[part.node.inner if isinstance(part.node, Keyed) else part.node] = None
    return made, list(anew)


def _parts(node: Condition, births: Births, path: Path) -> Iterator[tuple[Part, Births]]:
    """Yield the outermost parts with their births; the `where` of a key before its slices."""
    if isinstance(node, Keyed):
        if node.where is not None and looks_back(node.where):
            part = Part(where_of(node), path)
            yield part, births.of(*part)
        yield from _parts(node.inner, births, births.step(node, path))
        return
    parts = parts_of(node)
    yield from ((Part(part, path), births.of(part, path)) for part in parts)
    if not parts:
        for child, within, around in inside(node, births, path):
            yield from _parts(child, within, around)


def _without_bounds(part: Part) -> object:
    """Return a value that is equal for two parts if and only if they differ at most in bounds."""
    node = part.node
    if isinstance(node, Keyed):
        return part
    others = [getattr(node, name) for name in node.__match_args__ if name not in _BOUNDS]
    return type(node), *others, part.path


def _serves(before: Node, after: Node) -> bool:
    """Return whether the state of a part suffices for another, which differs only in bounds."""
    if isinstance(before, Keyed):
        return True
    old, new = remembering(before), remembering(after)
    memory, needed = old.memory(before), new.memory(after)
    old_us, new_us = old.window_us(before), new.window_us(after)
    looks_no_further = old_us is None or (new_us is not None and new_us <= old_us)
    needs_no_more = memory != needed or new.keep(after) <= old.keep(before)
    return memory.serves(needed) and looks_no_further and needs_no_more
