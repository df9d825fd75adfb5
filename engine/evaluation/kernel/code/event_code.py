"""The code that looks up the contents of an event: facts, keys of paths; and constants.

In the code, `f0` is a fact, `q0` the same as a number, `l0` its look-up, `c0` a constant, `k0` the key of a
path and `s0` its slice, where path 0 has no keys. The code contains no text of a caller.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from engine.evaluation.facts.look_up import split_name, value_of
from engine.evaluation.facts.lookups import Lookup
from engine.evaluation.facts.values import KEY_CHARS_MAX
from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.stamps import NUMBER_BITS
from engine.language.condition import STRINGS, FactArg, Scalar
from engine.language.operators import LARGEST
from engine.patterns.text_tests import literal_of

Narrower = Callable[[list[Any]], Sequence[Any]]
"""Returns the elements of an array for which a condition may be true, and possibly others."""


class Patterns(Protocol):
    """The patterns of a detector."""

    def finder(self, fact: str, pattern: str) -> object:
        """Return a function that tests whether a pattern matches a text of the fact.

        For a literal, which the code finds itself, the function only tests whether the text is short enough.
        """

    def narrower(self, fact: str, pattern: str, look: Callable[[Any], Any]) -> Narrower:
        """Return a function that returns the elements of an array that a pattern may match."""


LookupOf = Callable[[str], Lookup]
"""Returns the look-up of a fact, which bounds the work for large values."""

RANGES_MIN: Final = 32
"""With this many ranges of a fact, some are nearly always tried, so the fact's number is computed first."""


class EventCode:
    """Provides the variables for an event's contents, and the statements that look them up."""

    def __init__(self, uses: Uses, patterns: Patterns, lookup_of: LookupOf) -> None:
        self.uses = uses
        self.asks_relations = False
        self._patterns, self._lookup_of = patterns, lookup_of
        self._facts: dict[str, int] = {}
        self._numbers: dict[str, str] = {}
        self._addresses: dict[str, int] = {}
        self._lookups: dict[int, object] = {}
        self.constants: list[Any] = []
        self._shared: dict[Any, str] = {}
        self.asks_time = False
        self.asks_vars = False
        """Whether the code reads `vars` other than through facts."""

    asks_last_event = False
    """Whether a verdict reads the last event of a slice. The slice without keys is otherwise not updated."""

    known_facts: Collection[str] = ()
    """The facts whose variables are already set."""

    finds_relations = True
    """Whether the code looks up the event's relations itself."""

    # -- variables ------------------------------------------------------------------------------------------

    def fact(self, name: str) -> str:
        """Return the variable of a fact, which is None if the fact is missing."""
        return f"f{self._facts.setdefault(name, len(self._facts))}"

    def number(self, name: str) -> str:
        """Return the expression for a fact as a number; NaN, which makes every comparison false, for others.

        An integer beyond the range of doubles is outside every range.
        """
        fact = self.fact(name)
        beyond = f"type({fact}) is not int or not LEAST <= {fact} <= MOST"
        text = f"NAN if type({fact}) is not float and ({beyond}) else {fact}"
        if not self.uses.repeats_number(name):
            return f"({text})"
        self._numbers[name] = text
        return f"q{self._facts[name]}"

    def exact(self, name: str, low: float, high: float) -> str:
        """Return the expression for a fact as a number, compared with both ends of a range.

        If one end is an integer beyond the doubles, the range contains such numbers.
        """
        if low >= -LARGEST and high <= LARGEST and self.uses.repeats_number(name, RANGES_MIN):
            return self.number(name)
        fact = self.fact(name)
        return f"(NAN if type({fact}) is not int and type({fact}) is not float else {fact})"

    def address(self, name: str) -> str:
        """Return the expression for the number of the IP address in a fact; None if it is not an address."""
        fact = self.fact(name)
        if not self.uses.repeats_address(name):
            return f"(a{fact[1:]} := address({fact}))"
        self._addresses[name] = self._facts[name]
        return f"a{fact[1:]}"

    def lookup(self, name: str) -> str:
        """Return the variable of the look-up of a fact."""
        fact = self.fact(name)
        self._lookups.setdefault(self._facts[name], self._lookup_of(name))
        return f"l{fact[1:]}"

    def matches(self, name: str, pattern: str) -> str:
        """Return the expression for whether a pattern matches a fact that is a text."""
        text = self.fact(name)
        test = f"{self.constant(self._patterns.finder(name, pattern))}({text})"
        literal = literal_of(pattern)
        return test if literal is None else f"{literal.code(text, self.constant(literal.text))} and {test}"

    def relations(self) -> str:
        """Return the variable of the event's relations."""
        self.asks_relations = True
        return "relations"

    def arguments(self, args: tuple[FactArg | Scalar, ...]) -> str:
        """Return the variable of the function that returns the arguments of a relation."""
        names = [split_name(one.fact) if isinstance(one, FactArg) else None for one in args]

        def values(fields: Any, sent: Any) -> list[Any]:
            both = zip(args, names, strict=True)
            return [one if name is None else value_of(name, fields, sent) for one, name in both]

        return self.constant(values)

    def constant(self, value: object) -> str:
        """Return the variable of a constant."""
        self.constants.append(value)
        return f"c{len(self.constants) - 1}"

    def shared_constant(self, value: Any) -> str:
        """Return the same variable for equal constants, which are numbers or objects compared by identity."""
        if value not in self._shared:
            self._shared[value] = self.constant(value)
        return self._shared[value]

    def edge(self, window_us: int) -> str:
        """Return the expression for a stamp that separates the events inside a window from older ones."""
        return f"base - {self.shared_constant(window_us << NUMBER_BITS)}"

    def end(self, entry: str, window_us: int | None, born: str) -> str | None:  # noqa: ARG002 -- overridden
        """Return the variable of the last time at which an entry without a key is inside a window, in `unit`.

        It is before all times if the entry is not an event after the birth. None if it is not kept.
        """
        return None

    @property
    def now(self) -> str:
        """The variable of the event's time in microseconds."""
        self.asks_time = True
        return "now"

    # -- statements -----------------------------------------------------------------------------------------

    def looked_up(self, names: Iterable[str], text: str) -> str:
        """Move look-ups of facts that nothing else reads into an expression, which is often not reached."""
        for name in sorted(set(names)):
            if not self.uses.repeats_fact(name):
                number = self._facts[name]
                text = re.sub(
                    rf"\bf{number}\b", f"(f{number} := {self._fact_lookup(number, name)})", text, count=1
                )
        return text

    def lookups(self) -> Iterator[str]:
        """Yield the statements that come first."""
        if self.asks_relations or self.asks_vars or any(name.startswith("$") for name in self._facts):
            yield "vars = vars or NOTHING"
        if self.asks_relations and self.finds_relations:
            yield "relations = relations_of(vars)"
        if self.asks_time:
            yield f"now = base >> {NUMBER_BITS}"
        for name, number in self._facts.items():
            if self.uses.repeats_fact(name) and name not in self.known_facts:
                yield f"f{number} = {self._fact_lookup(number, name)}"
            if name in self._numbers:
                yield f"q{number} = {self._numbers[name]}"
            if name in self._addresses:
                yield f"a{number} = address(f{number})"

    def given(self, *, constants: bool = True) -> Iterator[tuple[str, Any]]:
        """Yield the names and values that the code uses."""
        for name, number in self._facts.items():
            _, whole, steps, look = split_name(name)
            yield f"n{number}", whole
            if steps:
                yield f"look{number}", look
            if number in self._lookups:
                yield f"l{number}", self._lookups[number]
        for number, value in enumerate(self.constants if constants else ()):
            yield f"c{number}", value

    def _fact_lookup(self, number: int, name: str) -> str:
        of_vars, _, steps, _ = split_name(name)
        values = "vars" if of_vars else "fields"
        if name == STRINGS:
            return f"l{number}.strings({values})"
        return f"look{number}({values})" if steps else f"{values}.get(n{number})"


def key_lookup(fact: str, number: int, outer: int, keys: int) -> list[str]:
    """Return the statements for the key of a path of this length; None if the event belongs to no slice."""
    key = f"k{number}"
    short = f"type({fact}) is str and len({fact}) <= {KEY_CHARS_MAX}"
    lines = [f"{key} = {fact} if {short} else slice_key_of({fact})"]
    if outer:
        # The key of a nested slice is the tuple of all keys on the path.
        part = f"{key} if type({key}) is str else part_of_key({key})"
        both = f"(*k{outer}, {part})" if keys > 2 else f"(part_of_key(k{outer}), {part})"  # noqa: PLR2004
        lines.append(f"{key} = {both} if k{outer} is not None and {key} is not None else None")
    return lines
