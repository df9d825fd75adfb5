"""The code by which generated functions look up what an event has: its facts, its keys, their slots."""

from collections.abc import Collection, Sequence

from engine.evaluation.facts.values import KEY_CHARS_MAX, split_name
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.plan.codegen import quantity_of
from engine.evaluation.plan.ir import Abstraction
from engine.evaluation.state.storage.pages import NO_SLOT
from engine.evaluation.state.storage.slots.shards import SHARDS


def fact_lookups(facts: Sequence[str], quantities: Collection[int], late: Collection[int]) -> list[str]:
    """Return the statements that look up facts, except `late` ones, and turn `quantities` into numbers."""
    lines = []
    for number, name in enumerate(facts):
        if number not in late:
            lines.append(f"f{number} = {fact_lookup(number, name)}")
        if number in quantities:
            lines.append(f"q{number} = {quantity_of(number)}")
    return lines


def fact_lookup(number: int, name: str) -> str:
    """Return the expression for a fact."""
    of_vars, _, steps = split_name(name)
    values = "vars" if of_vars else "fields"
    return f"dig({values}, n{number}, steps{number})" if steps else f"{values}.get(n{number})"


def slot_lookup(parts: Abstraction, number: int, where: str | None) -> list[str]:
    """Return the statements for the key of a path and its slot. Without `where` there is no key."""
    key, slot = f"k{number}", f"s{number}"
    lines = key_lookup(parts, number, parts.paths[number])
    if where is not None:
        lines.append(f"if {key} is not None and not {where}: {key} = None")
    if number not in parts.sliced:
        return lines
    return [
        *lines,
        f"{slot} = {NO_SLOT}",
        f"if {key} is not None:",
        f" {slot} = shards{number}[hash(({key},)) % {SHARDS}].get({key}, {NO_SLOT})",
        f" if {slot} >= 0:",
        f"  seen{number}[{slot}] = tick",
        f"  if tracking: log{number}({slot})",
    ]


def key_lookup(parts: Abstraction, number: int, path: Path) -> list[str]:
    """Return the statements for the key of a path. The key is None if the event belongs to no slice."""
    fact = f"f{parts.facts.index(fact_of(path[-1]))}"
    key = f"k{number}"
    short = f"type({fact}) is str and len({fact}) <= {KEY_CHARS_MAX}"
    lines = [f"{key} = {fact} if {short} else slice_key_of({fact})"]
    if len(path) > 1:
        # The key of a nested slice is the tuple of all keys on the path.
        part = f"{key} if type({key}) is str else part_of_key({key})"
        outer = f"k{parts.paths.index(path[:-1])}"
        both = f"(*{outer}, {part})" if len(path) > 2 else f"(part_of_key({outer}), {part})"  # noqa: PLR2004
        lines.append(f"{key} = {both} if {outer} is not None and {key} is not None else None")
    return lines
