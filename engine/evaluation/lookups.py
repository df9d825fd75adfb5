"""What many rules ask of one value: found once for each event, or for each batch where its context brings it.

Small values are walked as they are. Of a large one, what has been found is kept until `forget`: a set of an
array's elements, the texts of `contains` that stand in a string, the canonical text of an array or object.
Values are known again by identity, so `forget` must come before whoever owns them may change them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from weakref import WeakValueDictionary

from engine.evaluation.values import Relations, canonical, equal, holds, key_of
from engine.language.limits import Limits
from engine.patterns.sets import PatternSets

WALKED_MAX: Final = 64
"""Up to this length, walking a value costs less than remembering what was found in it."""

SEARCHED_APART_MAX: Final = 8
"""So few literals are searched for one by one, whatever the text."""

SEARCHED_CHARS_MAX: Final = 1 << 14
"""The same where the characters of the text, and some more, times the literals are no more than this."""

_SEARCH_CHARS: Final = 64
"""How many characters more could be searched in the time that it takes to begin."""

SETS_MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024
"""What RE2 may use for one set of literals. Every state that a set can have fits, whatever the text."""

_ANY_LENGTH: Final = 1 << 62
_NUMBER: Final = "number"
_NESTED: Final = "nested"
_NUMBERS: Final = frozenset({int, float})
_CONTAINERS: Final = frozenset({list, dict})
_KINDS: Final[Mapping[type, object]] = {
    str: str,
    int: _NUMBER,
    float: _NUMBER,
    bool: bool,
    list: _NESTED,
    dict: _NESTED,
}


class Lookups:
    """The look-ups of one detector, by fact, and the relations of the context at hand."""

    def __init__(self, limits: Limits) -> None:
        self._limits = replace(limits, pattern_text_chars_max=_ANY_LENGTH, pattern_work_max=_ANY_LENGTH)
        self._by_fact: WeakValueDictionary[str, Lookup] = WeakValueDictionary()
        self._with_literals: dict[str, Lookup] = {}
        self._relations: Relations | None = None
        self.used: list[Lookup] = []
        """Those that hold something, until `forget`."""

    def of(self, fact: str) -> "Lookup":
        """Give the look-up of a fact. All who ask for one fact share it."""
        lookup = self._by_fact.get(fact)
        if lookup is None:
            lookup = self._by_fact[fact] = Lookup(self._limits, self.used)
        return lookup

    def add(self, literals: Iterable[tuple[str, str]]) -> None:
        """Add texts that a rule asks for with `contains`, each with its fact."""
        for fact, literal in literals:
            lookup = self._with_literals[fact] = self.of(fact)
            lookup.add(literal)

    def remove(self, literals: Iterable[tuple[str, str]]) -> None:
        """Undo one `add`."""
        for fact, literal in literals:
            lookup = self._with_literals[fact]
            lookup.remove(literal)
            if not lookup.literals:
                del self._with_literals[fact]

    def relations(self, sent: Mapping[str, Any]) -> Relations:
        """Give the relations of a context: the same for as long as the same context comes."""
        relations = self._relations
        if relations is None or relations.sent is not sent:
            relations = self._relations = Relations(sent)
        return relations

    def forget(self) -> None:
        """Let go of what was found, and of the values it was found in."""
        self._relations = None
        if self.used:
            for lookup in self.used:
                lookup.forget()
            self.used.clear()


class Lookup:
    """What is asked of the values of one fact."""

    __slots__ = (
        "__weakref__",
        "_canonical",
        "_elements",
        "_found",
        "_limits",
        "_literal_of",
        "_sets",
        "_used",
        "_value",
        "literals",
    )

    def __init__(self, limits: Limits, used: "list[Lookup]") -> None:
        self._limits = limits
        self._used = used
        self._value: Any = None
        self._elements: dict[object, frozenset[Any]] = {}
        self._canonical: str | None = None
        self._found: frozenset[str] | None = None
        self._sets: PatternSets | None = None
        self._literal_of: dict[str, str] = {}
        """By the pattern that stands for it in the sets."""
        self.literals: dict[str, int] = {}
        """The texts of `contains`, and how many rules ask for each."""

    # -- what rules ask -------------------------------------------------------------------------------------

    def contains(self, value: Any, wanted: Any) -> bool:
        """Tell whether a text has `wanted` in it, or an array an element that equals it."""
        if type(value) is list:
            return self.holds(value, wanted)
        if type(value) is not str or type(wanted) is not str:
            return False
        if self._is_little(value) or wanted not in self.literals:
            return wanted in value
        return wanted in self.found(value)

    def holds(self, array: Any, wanted: Any, wanted_by: "Lookup | None" = None) -> bool:
        """Tell whether `array` is an array with an element equal to `wanted`, a value of `wanted_by`."""
        if type(array) is not list:
            return False
        if len(array) <= WALKED_MAX:
            if type(wanted) is str:
                return wanted in array
            if type(wanted) is not list and type(wanted) is not dict:
                return holds(array, wanted)
        if type(wanted) is str and not self._turn_to(array):
            # The first of all questions takes less than a set would.
            return wanted in array
        kind = _KINDS[type(wanted)]
        if kind is _NESTED:
            key: Any = canonical(wanted) if wanted_by is None else wanted_by.canonical(wanted)
        else:
            key = key_of(wanted)
        return key in self.elements(array, kind)

    def equals(self, value: Any, other: Any, other_by: "Lookup") -> bool:
        """Tell whether two arrays or objects are equal; `other` is a value of `other_by`."""
        if type(value) is not type(other) or len(value) != len(other):
            return False
        if not self._turn_to(value):
            return equal(value, other)
        return self.canonical(value) == other_by.canonical(other)

    # -- what an index asks ---------------------------------------------------------------------------------

    def keys(self, array: list[Any]) -> frozenset[Any]:
        """Give the keys of the scalars in an array."""
        kinds = set(map(type, array))
        return frozenset().union(
            *(
                self.elements(array, kind)
                for kind in {_KINDS[kind] for kind in kinds if kind in _KINDS} - {_NESTED}
            )
        )

    def found(self, text: str) -> frozenset[str]:
        """Give the literals that stand in a text."""
        if self._is_little(text):
            return frozenset([literal for literal in self.literals if literal in text])
        self._turn_to(text)
        if self._found is None:
            self._found = self._search(text)
        return self._found

    def elements(self, array: list[Any], kind: object) -> frozenset[Any]:
        """Give the keys of the elements of one kind."""
        self._turn_to(array)
        elements = self._elements.get(kind)
        if elements is None:
            elements = self._elements[kind] = _elements(array, kind)
        return elements

    def canonical(self, value: Any) -> str:
        """Give the canonical text of an array or object."""
        self._turn_to(value)
        if self._canonical is None:
            self._canonical = canonical(value)
        return self._canonical

    # -- what is kept ---------------------------------------------------------------------------------------

    def add(self, literal: str) -> None:
        """Add a literal; one that is there is counted."""
        count = self.literals.get(literal, 0)
        self.literals[literal] = count + 1
        if self._sets is not None and not count:
            self._add_to(self._sets, literal)

    def remove(self, literal: str) -> None:
        """Undo one `add`."""
        self.literals[literal] -= 1
        if not self.literals[literal]:
            del self.literals[literal]
            if self._sets is not None:
                pattern = _pattern_of(literal)
                self._sets.remove(pattern)
                del self._literal_of[pattern]

    def forget(self) -> None:
        """Let go of the value, and of what was found in it."""
        self._value = None
        self._elements = {}
        self._canonical = self._found = None

    def _turn_to(self, value: Any) -> bool:
        """Turn to a value, and tell whether it is the one that was asked about before."""
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
            text.encode()
        except UnicodeEncodeError:
            # Half of a surrogate pair is no text to RE2, and to JSON neither.
            return frozenset([literal for literal in self.literals if literal in text])
        if self._sets is None:
            self._sets = PatternSets(
                self._limits, finder=self._finder, set_memory_bytes_max=SETS_MEMORY_BYTES_MAX
            )
            for literal in self.literals:
                self._add_to(self._sets, literal)
        return frozenset(map(self._literal_of.__getitem__, self._sets.found(text)))

    def _add_to(self, sets: PatternSets, literal: str) -> None:
        pattern = _pattern_of(literal)
        self._literal_of[pattern] = literal
        sets.add(pattern)

    def _finder(self, pattern: str) -> Callable[[str], bool]:
        literal = self._literal_of[pattern]
        return lambda text: literal in text


def _elements(array: list[Any], kind: object) -> frozenset[Any]:
    if kind is str:
        return frozenset([element for element in array if type(element) is str])
    if kind is bool:
        return frozenset([key_of(element) for element in array if type(element) is bool])
    if kind is _NUMBER:
        return frozenset([key_of(element) for element in array if type(element) in _NUMBERS])
    return frozenset([canonical(element) for element in array if type(element) in _CONTAINERS])


def _pattern_of(literal: str) -> str:
    """Give the pattern that is found in a text where the literal stands in it."""
    return "".join(char if char.isalnum() or char > "\x7f" else f"\\x{ord(char):02x}" for char in literal)
