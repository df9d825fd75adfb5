"""`distinct`: the number of different values of a fact."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.evaluation.key_sizes import KEY_BYTES_MAX, key_bytes
from engine.evaluation.operators.counting.count import Counting, compared
from engine.evaluation.operators.interface import Memory, Names, Reading, Writing
from engine.evaluation.operators.memories import MemoryOfFact
from engine.evaluation.operators.table import evaluates
from engine.language.condition import Distinct
from engine.language.forms.form import Content, Counted, call_of_fact

RECORD_BYTES: Final = 160
"""The size of a dict without its entries."""

VALUE_BYTES: Final = 140
"""The size of an entry of it, without the value."""


@dataclass(frozen=True)
class Values(MemoryOfFact):
    """The latest values of a fact at events at which `where` was true, each with the stamp of its last event.

    It is a dict, ordered by these stamps, with as many values as any node needs. The outcome is the value's
    key.
    """

    columns = ("keys", "stamps")
    code_nodes = 3

    def outcome(self, operands: Sequence[str], names: Names) -> str:
        fact = names.fact(self.fact)
        key = f"{fact} if type({fact}) is str and len({fact}) <= KEY_CHARS_MAX else slice_key_of({fact})"
        return f"({key}) if {operands[0]} else None" if operands else key

    def write(self, to: Writing) -> list[str]:
        return [
            f"if {to.outcome} is not None:",
            f" if (entry := {to.entry}) and {to.lasts('next(reversed(entry.values()))')}:",
            f"  if {to.outcome} in entry:",
            f"   del entry[{to.outcome}]",
            f"   entry[{to.outcome}] = {to.stamp}",
            "  else:",
            f"   entry[{to.outcome}] = {to.stamp}",
            f"   if len(entry) > {to.memory}.keep: {to.memory}.resized(entry)",
            f"   else: {to.memory}.weigh({VALUE_BYTES} + key_bytes({to.outcome}))",
            " else:",
            *(f"  {line}" for line in to.put(f"{{{to.outcome}: {to.stamp}}}")),
        ]

    def latest(self, entry: dict[Any, int]) -> int:
        return next(reversed(entry.values()))

    def bytes_of(self, entry: dict[Any, int]) -> int:
        return RECORD_BYTES + VALUE_BYTES * len(entry) + sum(map(key_bytes, entry))

    def copy(self, entry: dict[Any, int]) -> dict[Any, int]:
        return entry.copy()

    def parts(self, entry: dict[Any, int]) -> tuple[Collection[Any], ...]:
        return entry.keys(), entry.values()

    def entry_of(self, *parts: Sequence[Any]) -> dict[Any, int]:
        return dict(zip(*parts, strict=True))

    def bytes_max(self, keep: int) -> int:
        return RECORD_BYTES + (VALUE_BYTES + KEY_BYTES_MAX) * keep

    def resize(self, entry: dict[Any, int], keep: int, weigh: Callable[[int], None]) -> None:
        more_bytes = VALUE_BYTES + key_bytes(next(reversed(entry)))
        while len(entry) > keep:
            oldest = next(iter(entry))
            del entry[oldest]
            more_bytes -= VALUE_BYTES + key_bytes(oldest)
        if more_bytes:
            weigh(more_bytes)


def nth_latest(entry: dict[Any, int], n: int, current: Any) -> int | None:
    """Return the stamp of the n-th latest value other than `current`; None if there are fewer."""
    others = len(entry) - (current in entry)
    if others < n:
        return None
    # Usually the oldest is requested, because no more are stored. It is found in few steps from either end.
    left = others - n
    ordered = entry.items() if left < n else reversed(entry.items())
    left = min(left, n - 1)
    # A generator would take twice as long.
    for value, stamp in ordered:
        if value != current:
            if not left:
                return stamp
            left -= 1
    raise AssertionError(entry)


@evaluates(
    call_of_fact(
        Distinct,
        "distinct",
        Content.COUNT,
        text="The number of different values of a fact, where `where` was true.",
        is_addition=True,
        synonyms=frozenset({"count_distinct"}),
        counted=Counted(
            frozenset({"a string", "a number", "a boolean"}),
            "only strings, numbers and booleans are counted, so that their number is always 0",
        ),
    )
)
class DistinctOperator(Counting[Distinct]):
    """Compares how many values have a stamp inside the window, that of the current event included.

    There are at least n if the n-th latest value is inside.
    """

    cost_ns = 200
    calls = (nth_latest, key_bytes)

    def memory(self, node: Distinct) -> Memory:
        return Values(node.fact, node.where)

    def verdict(self, node: Distinct, read: Reading) -> str:
        inside = "" if node.window_us is None else f" >= {read.edge(node.window_us)}"

        def reached(least: int) -> str:
            if not least:
                return "True"
            number = read.constant(least)
            asked = f"(n := {number} if {read.outcome} is None else {number} - 1)"
            nth = f"(nth := nth_latest(entry, n, {read.outcome}))"
            found = f"len(entry := {read.entry}) >= n and {nth} is not None"
            return f"(not {asked} or {found} and {read.born} < nth{inside})"

        return compared(node.op, node.value, reached)

    def nth_latest(self, entry: dict[Any, int], n: int) -> int | None:
        return nth_latest(entry, n, None)

    def number_since(self, entry: dict[Any, int], first: int) -> int:
        return sum(map(first.__le__, entry.values())) if entry else 0
