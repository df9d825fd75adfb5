"""Histories of a simulated detector: requests overlap at random, and each takes effect at one moment.

Some have a defect.
"""

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.linearizability.history import (
    READS,
    REFUSED,
    AddRule,
    Answer,
    Asked,
    At,
    Call,
    ChangeRule,
    Evaluate,
    Fired,
    ListRules,
    Position,
    RemoveRule,
)
from tests.linearizability.journal import Done
from tests.linearizability.model import listed
from tests.linearizability.workload import Workload
from tests.reference import ReferenceDetector


class Simulated:
    """A detector that is the reference, with all of its history, and remembers answers by key."""

    def __init__(self) -> None:
        self.reference = ReferenceDetector()
        self.answers = dict[str, Answer]()
        self.journal = list[Done]()

    def copied(self) -> "Simulated":
        other = Simulated()
        other.reference = copy.copy(self.reference)
        other.reference.events, other.reference.rules = (
            list(self.reference.events),
            dict(self.reference.rules),
        )
        other.answers = dict(self.answers)
        other.journal = list(self.journal)
        return other

    def restore(self, copied: "Simulated") -> None:
        """Become a copy that was made before."""
        self.__dict__ = copied.__dict__

    def answer(self, asked: Asked) -> Answer:
        answer = self._answer(asked)
        if not isinstance(asked, READS) and answer != REFUSED and not isinstance(asked, Evaluate):
            self.journal.append(Done(asked))
        return answer

    def _answer(self, asked: Asked) -> Answer:
        reference = self.reference
        match asked:
            case Evaluate(events, batch, key):
                if key in self.answers:
                    return self.answers[key]
                given = tuple(map(self._event, events))
                refused = frozenset(place for place, one in enumerate(given) if one == REFUSED)
                if len(refused) < len(given) or (key and batch):
                    self.journal.append(Done(Evaluate(events, batch), refused))
                if key and (batch or given != (REFUSED,)):
                    self.answers[key] = given
                return given
            case AddRule(name, condition, notify):
                reference.add_rule(name, name, condition, notify=notify)
                return "added"
            case ChangeRule(name, changes):
                if name not in reference.rules:
                    return REFUSED
                reference.change_rule(name, **dict(changes))
                return (listed(reference.rules[name]),)
            case RemoveRule(name):
                return REFUSED if reference.rules.pop(name, None) is None else "removed"
            case ListRules():
                return tuple(map(listed, reference.rules.values()))
            case Position():
                events = reference.events
                return At(events[-1].time_us / 1_000 if events else None, len(events))

    def _event(self, event) -> Fired | str:
        before = self.reference.events[-1:]
        actions = self.reference.evaluate(event.fields, event.timestamp_ms)
        if actions is None:
            return REFUSED
        late_us = max(0, before[0].time_us - event.timestamp_ms * 1_000) if before else 0
        return Fired(tuple((kind, name, level, notify) for kind, _, name, level, notify in actions), late_us)


@dataclass
class Slot:
    """A request, and when it is called, takes effect and returns."""

    client: str
    called_ns: int
    effect_ns: int
    returned_ns: int
    asked: Asked
    answered: bool = True
    """Whether the client gets the answer."""
    executed: bool = True
    answer: Answer | None = None

    @property
    def call(self) -> Call:
        returned_ns, answer = (self.returned_ns, self.answer) if self.answered else (None, None)
        return Call(self.client, self.asked, self.called_ns, returned_ns, answer)


def slots(chance: random.Random, *, clients: int, requests: int, unanswered: float) -> list[Slot]:
    """Draw requests of clients. Each asks one after another, and repeats what has a key if no answer came."""
    workload = Workload(chance)
    found = [Slot("0", n, n, n, asked) for n, asked in enumerate(workload.begun)]
    now_ns, ready = 100, {str(client): 100 for client in range(clients)}
    repeated = dict[str, Asked]()
    for _ in range(requests):
        client = min(ready, key=lambda name: ready[name])
        called_ns = max(now_ns, ready[client]) + chance.randint(1, 3)
        now_ns = called_ns
        effect_ns = called_ns + chance.randint(0, 30)
        returned_ns = effect_ns + chance.randint(0, 30)
        asked = repeated.pop(client, None) or workload.next()
        slot = Slot(client, called_ns, effect_ns, returned_ns, asked)
        if chance.random() < unanswered:
            slot.answered, slot.executed = False, chance.random() < 0.5
            if chance.random() < 0.3:
                # It takes effect long after its client has given up.
                slot.effect_ns += 500
            if isinstance(asked, Evaluate) and asked.key:
                repeated[client] = asked
        found.append(slot)
        ready[client] = returned_ns + chance.randint(1, 10)
    end_ns = max(slot.returned_ns for slot in found) + 1_000
    found += [Slot("0", end_ns, end_ns, end_ns, Position())]
    return found


Slots = Sequence[Slot]
Defect = Callable[[Simulated, Slots, random.Random], Slots]
"""Has a new detector execute the slots, which are in the order of their effects, with one defect."""


def executed(simulated: Simulated, ordered: Slots, chance: random.Random | None = None) -> Slots:
    """Execute without a defect."""
    for slot in ordered:
        if slot.executed:
            slot.answer = simulated.answer(slot.asked)
    return ordered


def recorded(
    seed: object, *, clients: int = 5, requests: int = 80, unanswered: float, defect: Defect = executed
) -> tuple[list[Call], list[Done]]:
    """Return a history of a simulated detector, and its journal."""
    chance, simulated = random.Random(f"{seed}"), Simulated()
    drawn = slots(chance, clients=clients, requests=requests, unanswered=unanswered)
    done = defect(simulated, sorted(drawn, key=lambda slot: slot.effect_ns), chance)
    return [slot.call for slot in done], simulated.journal


# -- defects -------------------------------------------------------------------------------------------------


def _new_events(ordered: Sequence[Slot]) -> list[int]:
    """Return the places of acknowledged single events in the middle of a history."""
    return [
        place
        for place, slot in enumerate(ordered)
        if isinstance(slot.asked, Evaluate)
        and slot.executed
        and slot.answered
        and not slot.asked.batch
        and len(ordered) // 4 < place < len(ordered) // 2
    ]


def _accepted(slot: Slot) -> bool:
    return isinstance(slot.answer, tuple) and slot.answer[0] != REFUSED


def event_is_lost(simulated: Simulated, ordered: Slots, chance: random.Random) -> Slots:
    """An acknowledged event is gone, as after a crash without a sync."""
    chosen, done = chance.choice(_new_events(ordered)), False
    for place, slot in enumerate(ordered):
        if slot.executed:
            before = simulated.copied()
            slot.answer = simulated.answer(slot.asked)
            if place >= chosen and not done and place in _new_events(ordered) and _accepted(slot):
                simulated.restore(before)
                done = True
    assert done
    return ordered


def event_is_applied_twice(
    simulated: Simulated, ordered: Sequence[Slot], chance: random.Random
) -> Sequence[Slot]:
    """An event is evaluated once more than it was sent."""
    chosen, done = chance.choice(_new_events(ordered)), False
    for place, slot in enumerate(ordered):
        if slot.executed:
            slot.answer = simulated.answer(slot.asked)
            if place >= chosen and not done and place in _new_events(ordered) and _accepted(slot):
                simulated.answers.clear()
                simulated.answer(slot.asked)
                done = True
    assert done
    return ordered


def retry_is_applied_again(
    simulated: Simulated, ordered: Sequence[Slot], chance: random.Random
) -> Sequence[Slot]:
    """No answer is remembered by its key, and an acknowledged event is sent again with its key."""
    places = [place for place in _new_events(ordered) if ordered[place].asked.key]
    executed(Simulated(), ordered)
    chosen = next((ordered[place] for place in places if _accepted(ordered[place])), None)
    if chosen is None:
        # This history has nothing to send again.
        return executed(simulated, ordered)
    end_ns = chosen.returned_ns
    again = Slot("retry", end_ns + 1, end_ns + 2, end_ns + 3, chosen.asked)
    slots = sorted([*ordered, again], key=lambda slot: slot.effect_ns)
    for slot in slots:
        if slot.executed:
            simulated.answers.clear()
            slot.answer = simulated.answer(slot.asked)
    return slots


def events_are_swapped(
    simulated: Simulated, ordered: Sequence[Slot], chance: random.Random
) -> Sequence[Slot]:
    """Swap two events: the second was called after the first had returned, and is evaluated before it."""
    swapped = list(ordered)
    places = _new_events(ordered)
    one, other = next(
        (one, other)
        for one in places
        for other in places
        if ordered[one].returned_ns < ordered[other].called_ns
        and ordered[one].asked.events[0].timestamp_ms < ordered[other].asked.events[0].timestamp_ms
        and abs(ordered[one].asked.events[0].timestamp_ms - ordered[other].asked.events[0].timestamp_ms)
        < 9_000
    )
    swapped[one], swapped[other] = swapped[other], swapped[one]
    return executed(simulated, swapped)


def stale_owner_answers(
    simulated: Simulated, ordered: Sequence[Slot], chance: random.Random
) -> Sequence[Slot]:
    """One client is answered by the owner before, which has missed what others did."""
    stale, left = None, 3
    chosen = chance.choice(_new_events(ordered))
    for place, slot in enumerate(ordered):
        if place == chosen:
            stale = simulated.copied()
        if not slot.executed:
            continue
        owner = simulated
        if stale is not None and left and slot.client == "1" and isinstance(slot.asked, Evaluate | Position):
            owner, left = stale, left - 1
        slot.answer = owner.answer(slot.asked)
    return ordered


def stale_read(simulated: Simulated, ordered: Slots, chance: random.Random) -> Slots:
    """A question is answered by the owner before."""
    stale, done = Simulated(), False
    for place, slot in enumerate(ordered):
        if place == len(ordered) // 3:
            stale = simulated.copied()
        if slot.executed:
            late = (
                place > len(ordered) // 2 and isinstance(slot.asked, Position) and slot.answered and not done
            )
            done = done or late
            slot.answer = (stale if late else simulated).answer(slot.asked)
    assert done
    return ordered


def refused_is_done(simulated: Simulated, ordered: Slots, chance: random.Random) -> Slots:
    """A client is told that nothing was done, and it was."""
    executed(simulated, ordered)
    places = [place for place in _new_events(ordered) if _accepted(ordered[place])]
    chosen = ordered[chance.choice(places)]
    return [slot for slot in ordered if slot is not chosen]


DEFECTS: tuple[Defect, ...] = (
    event_is_lost,
    event_is_applied_twice,
    retry_is_applied_again,
    events_are_swapped,
    stale_owner_answers,
    stale_read,
    refused_is_done,
)
