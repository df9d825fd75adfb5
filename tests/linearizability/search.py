"""Decides whether some order of the requests that respects real time explains all answers.

This is the search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993) with Lowe's memory
("Testing for Linearizability", 2017): a set of requests that are done, in whatever order, with the state that
they led to, is entered once.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from tests.linearizability.history import READS, Call, Evaluate

S = TypeVar("S", bound=Hashable)

STEPS_MAX = 200_000
"""After this many steps of the model a search is given up. One that succeeds needs a few for each request."""

_IN_A_ROW = (1, 2, 4, 8)
"""How many requests without an answer were executed one directly after another: few, if few are enough."""


class Model(Protocol[S]):
    """What the requests do."""

    initial: S

    def step(self, state: S, call: Call) -> S | None:
        """Return the state after a request; None if it would have been answered otherwise."""


@dataclass(frozen=True)
class Explained:
    """An order that explains the history. Requests without an answer are in it if they were executed."""

    order: tuple[Call, ...]
    steps: int


@dataclass(frozen=True)
class Unexplained:
    """No order does. `order` is the longest that was found; after it, none of `stuck` can be explained."""

    order: tuple[Call, ...]
    stuck: tuple[Call, ...]
    steps: int
    decided: bool = True
    """False if the search was given up, or if it might be explained by many unanswered requests in a row."""


@dataclass(eq=False)
class _Node:
    """A place in the search: what is done, the state, and what may be done next."""

    state: object
    first: int = 0
    """The first of the requests with an answer that is not done."""
    done: int = 0
    """The requests with an answer that are done, as bits, beginning with the first that is not."""
    perhaps: int = 0
    """The requests without an answer that are done, as bits."""
    taken: Call | None = None
    """What was done last."""
    before: "_Node | None" = None
    answered: int = 0
    """How many requests with an answer are done."""
    in_a_row: int = 0
    """How many without an answer were done directly before."""
    next: Iterator[tuple[bool, int]] = field(default_factory=lambda: iter(()))


class _Search:
    def __init__(self, calls: Sequence[Call], model: Model, steps_max: int, in_a_row: int) -> None:
        ordered = sorted(calls, key=lambda call: call.called_ns)
        self.sure = [call for call in ordered if call.answered]
        # Nobody can tell whether a question was asked to which nobody knows the answer.
        self.unsure = [call for call in ordered if not call.answered and not isinstance(call.asked, READS)]
        self.model = model
        self.steps_max = steps_max
        self.in_a_row = in_a_row

    def _open(self, node: _Node) -> list[int]:
        """Return the answered requests that may be next: none that is not done returned before they began."""
        found, end_ns, place, done = list[int](), None, node.first, node.done
        while place < len(self.sure):
            call = self.sure[place]
            if end_ns is not None and call.called_ns > end_ns:
                break
            if not done & 1:
                found.append(place)
                assert call.returned_ns is not None
                end_ns = call.returned_ns if end_ns is None else min(end_ns, call.returned_ns)
            place, done = place + 1, done >> 1
        return found

    def _next(self, node: _Node) -> Iterator[tuple[bool, int]]:
        """Give what may be next, the most promising first; whether it has an answer, and its place."""
        found = self._open(node)
        if not found:
            return
        end_ns = min(self.sure[place].returned_ns or 0 for place in found)
        found.sort(key=lambda place: self.sure[place].returned_ns or 0)
        found.sort(key=lambda place: not isinstance(self.sure[place].asked, READS))
        for place in found:
            yield True, place
        if node.in_a_row == self.in_a_row:
            return
        for place in range(len(self.unsure)):
            if self.unsure[place].called_ns <= end_ns and not node.perhaps >> place & 1:
                yield False, place

    def _entered(self, node: _Node, place: int, state: object, *, sure: bool) -> _Node:
        if not sure:
            taken, perhaps = self.unsure[place], node.perhaps | 1 << place
            return _Node(state, node.first, node.done, perhaps, taken, node, node.answered, node.in_a_row + 1)
        first, done = node.first, node.done | 1 << place - node.first
        while done & 1:
            first, done = first + 1, done >> 1
        return _Node(state, first, done, node.perhaps, self.sure[place], node, node.answered + 1)

    def run(self) -> Explained | Unexplained:
        root = _Node(self.model.initial)
        root.next = self._next(root)
        path, seen, steps, best = [root], set[tuple[object, ...]](), 0, root
        while path:
            node = path[-1]
            if node.first == len(self.sure):
                return Explained(_order(node), steps)
            if steps >= self.steps_max:
                break
            following = next(node.next, None)
            if following is None:
                path.pop()
                continue
            sure, place = following
            call = (self.sure if sure else self.unsure)[place]
            steps += 1
            state = self.model.step(node.state, call)
            if state is None or (not sure and state == node.state):
                continue
            if state == node.state and isinstance(call.asked, (*READS, Evaluate)):
                # It changes nothing, now or later, so to take it now leaves all that could be done instead.
                node.next = iter(())
            entered = self._entered(node, place, state, sure=sure)
            where = (entered.first, entered.done, entered.perhaps, entered.in_a_row, state)
            if where in seen:
                continue
            seen.add(where)
            entered.next = self._next(entered)
            path.append(entered)
            if entered.answered > best.answered:
                best = entered
        stuck = tuple(self.sure[place] for place in self._open(best))
        return Unexplained(_order(best), stuck, steps, decided=not path)


def _order(node: _Node | None) -> tuple[Call, ...]:
    """Return what was done up to a place, in order."""
    calls = list[Call]()
    while node is not None and node.taken is not None:
        calls.append(node.taken)
        node = node.before
    return tuple(reversed(calls))


def explain(calls: Sequence[Call], model: Model, steps_max: int = STEPS_MAX) -> Explained | Unexplained:
    """Search for an order that explains a history."""
    steps = 0
    for in_a_row in _IN_A_ROW:
        search = _Search(calls, model, steps_max - steps, in_a_row)
        found = search.run()
        steps += found.steps
        if isinstance(found, Explained) or not found.decided or in_a_row >= len(search.unsure):
            return replace(found, steps=steps)
    return replace(found, steps=steps, decided=False)
