"""Samples what indexed rules and the updates of their memories cost.

At one event in many, each loop over rows is timed, and its rows share the time. Other events pay for one
comparison.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

from engine.evaluation.kernel.buckets.buckets import Bucket, Observe, member_of
from engine.evaluation.kernel.buckets.running import Loop, Selected, SliceTest

SAMPLED_EVERY: Final = 251
"""A prime number, so that streams with a period are sampled evenly."""


class _Timed(NamedTuple):
    """A bucket whose loops are timed."""

    groups: dict[Any, Loop]
    several: dict[int, dict[Observe, Any]]
    pending: tuple[()] = ()


class _TimedSliceTest(NamedTuple):
    """The test of a table that has waited. The buckets that the event then meets are timed."""

    stage: int
    enter: Callable[..., list[Any]]


class Samples:
    """How often members ran at the sampled events, and for how long."""

    def __init__(self) -> None:
        self.events = 0
        self.ran: Counter[int] = Counter()
        self.time_ns: defaultdict[int, float] = defaultdict(float)
        self._families: dict[int, Callable[[], list[int]]] = {}
        """The rules of members that stand for several."""

    def share(self, member: int, rules: Callable[[], list[int]]) -> None:
        """Have the rules for which a member stands share what it takes."""
        self._families[member] = rules

    def forget(self, member: int) -> None:
        """Forget a member that is no longer indexed."""
        self._families.pop(member, None)
        self.ran.pop(member, None)
        self.time_ns.pop(member, None)

    def restore(self, events: int, ran: Mapping[int, int], time_ns: Mapping[int, float]) -> None:
        """Go on from earlier samples."""
        self.events, self.ran = events, Counter(ran)
        self.time_ns.clear()
        self.time_ns.update(time_ns)

    def timed(
        self, met: Sequence[Bucket | Selected], tests: Sequence[SliceTest]
    ) -> tuple[list[Any], list[Any]]:
        """Wrap what an event meets, and the tables that wait, so that their run is counted and timed."""
        self.events += 1
        # Members with several triggers are grouped by function before they run. So each function is wrapped
        # only once, also for what is met after a slice test.
        of_rows: dict[Observe, Observe] = {}

        def after(test: SliceTest) -> _TimedSliceTest:
            return _TimedSliceTest(test.stage, lambda *event: self._timed(test.enter(*event), of_rows))

        return self._timed(met, of_rows), list(map(after, tests))

    def _timed(self, met: Sequence[Bucket | Selected], of_rows: dict[Observe, Observe]) -> list[Any]:
        found = []
        for bucket in met:
            if isinstance(bucket, Bucket):
                bucket.take_in()
            found.append(
                _Timed(
                    {name: self._of_loop(*loop) for name, loop in bucket.groups.items()},
                    {
                        stage: {
                            of_rows.setdefault(observe, self._observing(observe, 0)): rows
                            for observe, rows in shapes.items()
                        }
                        for stage, shapes in bucket.several.items()
                    },
                )
            )
        return found

    def _of_loop(self, stage: int, observe: Observe, constants: list[Any], rest: Any, width: int) -> Loop:
        return stage, self._observing(observe, width), constants, rest, width

    def _observing(self, observe: Observe, width: int) -> Observe:
        """Return the function of a loop, timed; for the width see `Loop`."""

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
