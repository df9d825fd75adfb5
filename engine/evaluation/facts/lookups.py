"""Look-ups in large values, done once for an event or for the context of a batch, and shared by all rules.

Small values are searched directly. For large values, the cache keeps until `forget` the set of the elements
of an array, the literals of `contains` found in a string, and the canonical text of an array or object. It
recognizes values by identity, so call `forget` before their owner can change them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import Any, Final
from weakref import WeakValueDictionary

from engine.evaluation.facts.look_up import Look, strings_in
from engine.evaluation.facts.relations import Relations
from engine.evaluation.facts.values import canonical, equal, holds, key_of
from engine.patterns.fact_patterns import FOUND_MAX, WALKS_MAX
from engine.patterns.lines import Line
from engine.patterns.sets import PatternSets

WALKED_MAX: Final = 64
"""Up to this length, searching a value costs less than caching."""

NARROWED_MIN: Final = 16
"""Up to this length, every rule about the elements of an array tries each."""

SEARCHED_APART_MAX: Final = 8
"""Up to this many literals are always searched for one by one."""

SEARCHED_CHARS_MAX: Final = 1 << 14
"""Literals are also searched for one by one if text length times number of literals is at most this."""

_SEARCH_CHARS: Final = 64
"""The cost of starting a search, in characters."""

SETS_MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024
"""RE2's memory for one set of literals. All states of a set fit into it."""

_NOTHING: Final[Mapping[str, Any]] = {}
_PLAIN: Final = "number or boolean"
_NESTED: Final = "nested"
_PLAINS: Final = frozenset({int, float, bool})
_CONTAINERS: Final = frozenset({list, dict})
_KINDS: Final[Mapping[type, object]] = {
    str: str,
    int: _PLAIN,
    float: _PLAIN,
    bool: _PLAIN,
    list: _NESTED,
    dict: _NESTED,
}


class Lookups:
    """The look-ups of a detector by fact, and the relations of the current context and of the detector."""

    def __init__(self, stored: Mapping[str, Any] = _NOTHING) -> None:
        self._stored = stored
        self._by_fact: WeakValueDictionary[str, Lookup] = WeakValueDictionary()
        self._with_literals: dict[str, Lookup] = {}
        self.read: Relations | None = None
        """The relations of the current context, once one was read."""
        self.used: list[Lookup] = []
        """The look-ups with cached results."""
        self.changed: set[Lookup] = set()
        """The look-ups with literals that are not compiled yet."""

    def of(self, fact: str) -> "Lookup":
        """Return the look-up of a fact, which all rules share."""
        lookup = self._by_fact.get(fact)
        if lookup is None:
            lookup = self._by_fact[fact] = Lookup(self.used)
        return lookup

    def add(self, fact: str, literal: str) -> None:
        """Add the text of a rule's `contains`."""
        lookup = self._with_literals[fact] = self.of(fact)
        lookup.add(literal)
        self.changed.add(lookup)

    def remove(self, fact: str, literal: str) -> None:
        """Undo one `add`."""
        lookup = self._with_literals[fact]
        lookup.remove(literal)
        self.changed.add(lookup)
        if not lookup.literals:
            del self._with_literals[fact]

    def relations(self, sent: Mapping[str, Any]) -> Relations:
        """Return the relations of a context, the same object while the context is the same."""
        relations = self.read
        if relations is None or relations.sent is not sent:
            relations = self.read = Relations(sent, self._stored)
        return relations

    def forget(self) -> None:
        """Drop all cached results and their values."""
        self.read = None
        for lookup in self.used:
            lookup.forget()
        self.used.clear()


class Lookup:
    """The look-up in values of one fact."""

    def __init__(self, used: "list[Lookup]") -> None:
        self._used = used
        self._value: Any = None
        self._elements: dict[object, frozenset[Any]] = {}
        self._canonical: str | None = None
        self._found: frozenset[str] | None = None
        self._strings: list[str] | None = None
        self._walks: float
        """The number of requests for elements of the current array so far."""
        self._by_key: dict[object, list[Any]] | None = None
        """Its elements by their keys, after many requests."""
        self._keys_of: Callable[[Any], Collection[object]] = lambda _: ()
        """Returns the keys of an element."""
        self._searched: Mapping[str, int] | None = None
        """The only texts that are keys; None if other values are, too."""
        self._sets: PatternSets | None = None
        self.literals: dict[str, int] = {}
        """The texts of `contains`, and the number of rules with each."""

    # -- for rules -------------------------------------------------------------------------------------

    def contains(self, value: Any, wanted: Any) -> bool:
        """Return whether a text contains `wanted`, or an array has an element equal to it."""
        if type(value) is list:
            return self.holds(value, wanted)
        if type(value) is not str or type(wanted) is not str:
            return False
        if self._is_little(value) or wanted not in self.literals:
            return wanted in value
        return wanted in self.found(value)

    def holds(self, array: list[Any], wanted: Any, wanted_by: "Lookup | None" = None) -> bool:
        """Return whether `array` has an element equal to `wanted`, a value of the fact of `wanted_by`."""
        if len(array) <= WALKED_MAX:
            if type(wanted) is str:
                return wanted in array
            if type(wanted) is not list and type(wanted) is not dict:
                return holds(array, wanted)
        if type(wanted) is str and not self._switch_to(array):
            # A single search costs less than building the set.
            return wanted in array
        kind = _KINDS[type(wanted)]
        if kind is _NESTED:
            key: Any = canonical(wanted) if wanted_by is None else wanted_by.canonical(wanted)
        else:
            key = key_of(wanted)
        return key in self.elements(array, kind)

    def equals(self, value: Any, other: Any, other_by: "Lookup") -> bool:
        """Return whether two arrays or objects are equal. `other` is a value of the fact of `other_by`."""
        if type(value) is not type(other) or len(value) != len(other):
            return False
        if not self._switch_to(value):
            return equal(value, other)
        return self.canonical(value) == other_by.canonical(other)

    def strings(self, fields: Mapping[str, Any]) -> list[str]:
        """Return the strings of an event, as the same list to all rules."""
        if not self._switch_to(fields):
            self._strings = strings_in(fields)
        assert self._strings is not None, "this look-up has no other values"
        return self._strings

    # -- for rules about elements ----------------------------------------------------------------------

    def equal(self, keys: tuple[object, ...], look: Look) -> Callable[[list[Any]], Sequence[Any]]:
        """Return a function that returns the elements of an array with one of these keys in a fact.

        `look` returns the value of the fact in an element. A look-up of elements serves one fact, and either
        this method or the next one.
        """
        self._keys_of = lambda element: (key_of(look(element)),)
        return partial(self._elements_with, keys)

    def containing(self, literal: str, texts: "Lookup", look: Look) -> Callable[[list[Any]], Sequence[Any]]:
        """Return a function that returns the elements of an array with a text in a fact, or in its array.

        `texts` is the look-up of the fact, whose literals are searched for together.
        """

        def keys_of(element: Any) -> Collection[object]:
            value = look(element)
            if type(value) is str:
                return texts.found(value)
            return texts.elements(value, str) if type(value) is list else ()

        self._keys_of, self._searched = keys_of, texts.literals
        return partial(self._elements_with, (literal,))

    def _elements_with(self, wanted: Sequence[object], array: list[Any]) -> Sequence[Any]:
        """Return the elements that have a wanted key; all of them if only few rules have asked."""
        if not self._switch_to(array):
            self._walks = 0
        self._walks += 1
        if self._walks <= WALKS_MAX:
            return array
        if self._searched is not None and wanted[0] not in self._searched:
            return array
        if self._by_key is None:
            self._by_key, left = {}, FOUND_MAX
            for element in array:
                keys = self._keys_of(element)
                left -= len(keys)
                if left < 0:
                    self._by_key, self._walks = None, -inf
                    return array
                for key in keys:
                    self._by_key.setdefault(key, []).append(element)
        found = [self._by_key.get(key, ()) for key in wanted]
        return found[0] if len(found) == 1 else [*chain.from_iterable(found)]

    # -- for the index ---------------------------------------------------------------------------------

    def keys(self, array: list[Any]) -> frozenset[Any]:
        """Return the keys of the scalars in an array."""
        kinds = set(map(type, array))
        return frozenset().union(
            *(
                self.elements(array, kind)
                for kind in {_KINDS[kind] for kind in kinds if kind in _KINDS} - {_NESTED}
            )
        )

    def found(self, text: str) -> frozenset[str]:
        """Return the literals that a text contains."""
        if self._is_little(text):
            return frozenset([literal for literal in self.literals if literal in text])
        self._switch_to(text)
        if self._found is None:
            self._found = self._search(text)
        return self._found

    def elements(self, array: list[Any], kind: object) -> frozenset[Any]:
        """Return the keys of the elements of one type."""
        self._switch_to(array)
        elements = self._elements.get(kind)
        if elements is None:
            elements = self._elements[kind] = _elements(array, kind)
        return elements

    def canonical(self, value: Any) -> str:
        """Return the canonical text of an array or object."""
        self._switch_to(value)
        if self._canonical is None:
            self._canonical = canonical(value)
        return self._canonical

    # -- the cache ---------------------------------------------------------------------------------------

    def add(self, literal: str) -> None:
        """Add a literal, or count one more use of it."""
        count = self.literals.get(literal, 0)
        self.literals[literal] = count + 1
        if self._sets is not None and not count:
            _add_to(self._sets, literal)

    def remove(self, literal: str) -> None:
        """Undo one `add`."""
        self.literals[literal] -= 1
        if not self.literals[literal]:
            del self.literals[literal]
            if self._sets is not None:
                self._sets.remove(literal)

    def compile_new(self) -> None:
        """Compile the sets of literals if there are enough to search for them together."""
        if self._sets is None and len(self.literals) > SEARCHED_APART_MAX:
            self._sets = PatternSets(SETS_MEMORY_BYTES_MAX)
            for literal in self.literals:
                _add_to(self._sets, literal)
        if self._sets is not None:
            self._sets.compile_new()

    def forget(self) -> None:
        """Drop the value and the cached results."""
        self._value = None
        self._elements = {}
        self._canonical = self._found = self._strings = self._by_key = None

    def _switch_to(self, value: Any) -> bool:
        """Make a value the current one. Return whether it already was."""
        if self._value is value:
            return True
        if self._value is None:
            self._used.append(self)
        self.forget()
        self._value = value
        return False

    # -- literals in texts ----------------------------------------------------------------------------------

    def _is_little(self, text: str) -> bool:
        count = len(self.literals)
        return count <= SEARCHED_APART_MAX or (len(text) + _SEARCH_CHARS) * count <= SEARCHED_CHARS_MAX

    def _search(self, text: str) -> frozenset[str]:
        """Search for all literals together."""
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            # RE2 does not accept surrogates.
            return frozenset([literal for literal in self.literals if literal in text])
        self.compile_new()
        assert self._sets is not None, "few literals are searched for one by one"
        found = self._sets.candidates(encoded)
        return frozenset([literal for literal, sure in found.items() if sure or literal in text])


def _elements(array: list[Any], kind: object) -> frozenset[Any]:
    if kind is str:
        return frozenset([element for element in array if type(element) is str])
    if kind is _PLAIN:
        return frozenset([key_of(element) for element in array if type(element) in _PLAINS])
    return frozenset([canonical(element) for element in array if type(element) in _CONTAINERS])


def _add_to(sets: PatternSets, literal: str) -> None:
    """Add a literal as a pattern that matches exactly it."""
    escaped = [char if char.isalnum() or not char.isascii() else f"\\x{ord(char):02x}" for char in literal]
    sets.add(literal, "".join(escaped), Line.NONE if "\n" in literal else Line.ANY, is_whole=True)
