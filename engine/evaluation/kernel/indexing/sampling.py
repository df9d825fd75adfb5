"""Samples the time of indexed rules and of the updates of their memories.

At one of every SAMPLED_EVERY events, each loop over rows is timed, and its rows share the time equally. Other
events take only one comparison longer.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from time import perf_counter_ns
from typing import Any, Final

from engine.evaluation.kernel.buckets.buckets import Observe, member_of
from engine.evaluation.kernel.buckets.running import Loop

SAMPLED_EVERY: Final = 251
"""A prime number, so that streams with a period are sampled evenly."""


class Samples:
    """How often members ran at the sampled events, and for how long."""

    def __init__(self) -> None:
        self.events = 0
        self.ran: Counter[int] = Counter()
        self.time_ns: defaultdict[int, float] = defaultdict(float)
        self._families: dict[int, Callable[[], list[int]]] = {}
        """The rules of members that represent several rules."""

    def share(self, member: int, rules: Callable[[], list[int]]) -> None:
        """Share the time of a member equally among the rules it represents."""
        self._families[member] = rules

    def forget(self, member: int) -> None:
        """Drop a member that is no longer indexed."""
        self._families.pop(member, None)
        self.ran.pop(member, None)
        self.time_ns.pop(member, None)

    def restore(self, events: int, ran: Mapping[int, int], time_ns: Mapping[int, float]) -> None:
        """Continue from earlier samples."""
        self.events, self.ran, self.time_ns = events, Counter(ran), defaultdict(float, time_ns)

    def timed(self, loops: Iterable[Loop]) -> list[Loop]:
        """Return loops that count and time their rows."""
        return [
            (stage, self._observing(observe, width), columns, rest, width)
            for stage, observe, columns, rest, width in loops
        ]

    def _observing(self, observe: Observe, width: int) -> Observe:
        """Return the function of a loop with timing; for the width see `Loop`."""

        def timed(constants: list[Any], rest: Any, *event: Any) -> None:
            begun_ns = perf_counter_ns()
            observe(constants, rest, *event)
            took_ns = perf_counter_ns() - begun_ns
            self._share(took_ns, rest[width - 1 :: width] if width else list(map(member_of, rest)))

        return timed

    def _share(self, time_ns: int, members: Collection[int]) -> None:
        for member in members:
            rules = self._families[member]() if member in self._families else [member]
            self.ran.update(rules)
            for rule in rules:
                self.time_ns[rule] += time_ns / len(members) / len(rules)
