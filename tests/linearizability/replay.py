"""Holds answers against the order in which a detector's journal has what was done.

No order is searched: questions, and what was refused, go to the earliest place in this one that explains
them. So it takes as long as the history is, and always decides.
"""

import heapq
import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from tests.linearizability.history import (
    READS,
    REFUSED,
    AddRule,
    Answer,
    Call,
    ChangeRule,
    Evaluate,
    ListRules,
    Position,
    RemoveRule,
)
from tests.linearizability.journal import Done
from tests.linearizability.model import DetectorModel, State, listed
from tests.reference import Rule

T = TypeVar("T")

TOO_LATE_US: Final = 300_000_000

Content: TypeAlias = tuple[bool, str]
"""Whether an evaluation is a batch, and the timestamps and fields of its events."""


class Range(NamedTuple):
    """Places from the first to the last, at all of which something is so. Place 0 is before all requests."""

    first: int
    last: int


def content(asked: Evaluate) -> Content:
    """Return what an evaluation sends, without event numbers."""
    sent = [(event.timestamp_ms, dict(event.fields)) for event in asked.events]
    return asked.batch, json.dumps(sent, sort_keys=True)


class Replay:
    """The reference, given what was done: what it answers, and where it would answer what to questions."""

    def __init__(self, done: Iterable[Done]) -> None:
        self.problems = list[str]()
        """What the journal has that the reference would not do."""
        self.evaluated = defaultdict[Content, list[tuple[int, Answer]]](list)
        self.added = dict[str, int]()
        self.removed = dict[str, int]()
        self.changed = defaultdict[str, list[tuple[int, Rule, Rule]]](list)
        """The changes of each rule, by its name: the position, and the rule before and after."""
        self.questions = defaultdict[object, list[Range]](list)
        """The ranges of requests that only ask, by their answers."""
        self.clocks_us = list[int]()
        every = list(done)
        self.last = len(every)
        self._model = DetectorModel(one.asked for one in every)
        state = self._model.initial
        for place, one in enumerate((None, *every)):
            state = state if one is None else self._take(place, one, state)
            self.clocks_us.append(state.tail[-1].time_us if state.tail else 0)
            for question in (Position(), ListRules()):
                _extend(self.questions[self._model.done(state, question)[1]], place)

    def _take(self, place: int, one: Done, before: State) -> State:
        state, answer = self._model.done(before, one.asked)
        match one.asked:
            case Evaluate() as asked:
                refused = {index for index, given in enumerate(answer) if given == REFUSED}
                if refused != one.refused:
                    self.problems.append(f"refused were {set(one.refused)} instead of {refused} of {asked}")
                self.evaluated[content(asked)].append((place, answer))
            case AddRule(name):
                if name in self.added:
                    self.problems.append(f"added twice: {name}")
                self.added[name] = place
            case RemoveRule(name) | ChangeRule(name) if answer == REFUSED:
                self.problems.append(f"was gone already: {one.asked}")
            case RemoveRule(name):
                self.removed[name] = place
            case ChangeRule(name):
                self.changed[name].append((place, before.rule(name), state.rule(name)))
        return state

    def explaining(self, call: Call) -> list[Range]:
        """Return the positions, in order, at which a request has the given answer."""
        match call.asked:
            case Evaluate() as asked if is_refusal(call):
                latest_us = max(event.timestamp_ms for event in asked.events) * 1_000
                return self.since(bisect_left(self.clocks_us, latest_us + TOO_LATE_US + 1))
            case Evaluate() as asked:
                return [
                    _at(place) for place, answer in self.evaluated[content(asked)] if answer == call.answer
                ]
            case RemoveRule(name) | ChangeRule(name) if is_refusal(call):
                return self.since(self.removed.get(name, self.last + 1))
            case AddRule(name):
                return [_at(self.added[name])] if name in self.added else []
            case RemoveRule(name):
                return [_at(self.removed[name])] if name in self.removed else []
            case ChangeRule(name, changes):
                return [
                    _at(place)
                    for place, before, after in self.changed[name]
                    if _as_asked(before, changes, after) == after and call.answer == (listed(after),)
                ]
            case _:
                return self.questions.get(call.answer, [])

    def since(self, place: int) -> list[Range]:
        """Return all positions from one on."""
        return [Range(place, self.last)] if place <= self.last else []


def is_refusal(call: Call) -> bool:
    """Whether nothing was done, for a known reason."""
    answer = call.answer
    return answer == REFUSED or (isinstance(answer, tuple) and bool(answer) and set(answer) == {REFUSED})


def _at(place: int) -> Range:
    return Range(place, place)


def _extend(ranges: list[Range], place: int) -> None:
    if ranges and ranges[-1].last == place - 1:
        ranges[-1] = Range(ranges[-1].first, place)
    else:
        ranges.append(_at(place))


def problems(calls: Sequence[Call], replay: Replay) -> list[str]:
    """Return what is wrong with answers; nothing if the journal's order explains all of them."""
    return [*replay.problems, *_not_asked(calls, replay), *_out_of_order(calls, replay)]


def _not_asked(calls: Sequence[Call], replay: Replay) -> list[str]:
    """Return what was done without a request, or a different number of times than requested."""
    events = {tuple(event.number for event in one.events): one for one in _all(calls, Evaluate)}
    sent = Counter(map(content, events.values()))
    found = [
        f"done {len(was)} times, and asked for {sent[what]} times: {what}"
        for what, was in replay.evaluated.items()
        if len(was) > sent[what]
    ]
    added = {one.name for one in _all(calls, AddRule)}
    found += [f"nobody added {name}" for name in replay.added if name not in added]
    for name in replay.added:
        for kind, times in (ChangeRule, len(replay.changed[name])), (RemoveRule, name in replay.removed):
            asked = [call for call in calls if isinstance(call.asked, kind) and call.asked.name == name]
            least = sum(call.answered and not is_refusal(call) for call in asked)
            if not least <= times <= len(asked):
                found.append(f"{kind.__name__} {times} times instead of {least} to {len(asked)}: {name}")
    return found


def _as_asked(before: Rule, changes: Mapping[str, Any], after: Rule) -> Rule:
    """Return a rule with changes, without those of when its histories begin again."""
    began = {"birth": after.birth, "anew": after.anew, "timed_from": after.timed_from}
    return replace(before, **dict(changes), **began)


def _all(calls: Sequence[Call], kind: type[T]) -> list[T]:
    return [call.asked for call in calls if isinstance(call.asked, kind)]


def _out_of_order(calls: Sequence[Call], replay: Replay) -> list[str]:
    """Return the answers that nothing explains after all requests that had returned before they were sent."""
    found, tried = list[str](), set[str]()
    returned = list[tuple[int, int, int]]()
    """The time, the position, and the number of the request."""
    least, before = 0, None
    ordered = sorted(calls, key=lambda call: call.called_ns)
    for number, call in enumerate(ordered):
        key = call.asked.key if isinstance(call.asked, Evaluate) else ""
        if call.returned_ns is None:
            tried.add(key)
            continue
        while returned and returned[0][0] < call.called_ns:
            _, place, earlier = heapq.heappop(returned)
            if place > least:
                least, before = place, ordered[earlier]
        ranges, begin = replay.explaining(call), least
        if key and key in tried:
            # An earlier attempt may have been the one that was executed.
            ranges = [Range(one.first, replay.last) for one in ranges]
        elif not isinstance(call.asked, READS) and not is_refusal(call):
            begin += 1
        tried.add(key)
        place = next((max(one.first, begin) for one in ranges if one.last >= begin), -1)
        if place < 0:
            why = f"it was before {before}, which had returned" if ranges else "that was never right"
            found.append(f"{call}: {why}")
        heapq.heappush(returned, (call.returned_ns, max(place, least), number))
    return found
