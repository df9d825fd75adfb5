"""Finds fields, types and values that rules use but no event of a recording has."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from api.cli.rule_files.reading import NamedCondition
from engine.evaluation.facts.look_up import split_name, value_of
from engine.evaluation.rule_book.rule_messages import doubts
from engine.language.condition import Leaf, Some, walk
from engine.language.diagnostics import nearest, quoted
from engine.language.hints.samples import NAMES_MAX, Sample
from engine.language.hints.warnings import condition_warnings

SAMPLE_EVENTS: Final = 20_000
"""The maximum number of events whose fields are compared with the rules."""
_VALUES_MAX: Final = 1_000
"""The maximum number of stored values of a fact; a fact with more is not an enumeration."""
_VALUE_CHARS_MAX: Final = 1_000
"""Longer values are cut."""


class Mismatches:
    """Compares rules with the first events of a recording, and with the variables of all events."""

    def __init__(
        self,
        rules: Iterable[NamedCondition],
        variables: Mapping[str, Any] | None = None,
        relations: Collection[str] = (),
    ) -> None:
        """`relations` are the names of relations stored with the rules."""
        self._relations = relations
        self._rules = list(rules)
        self._sample = Sample()
        self._sample.add({}, variables or {})
        self._left = SAMPLE_EVENTS
        self._values: dict[str, set[str]] = {
            leaf.fact: set() for rule in self._rules for leaf, _ in _texts_of(rule)
        }

    def add_all(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Add the fields of events."""
        if not self._left:
            return
        for fields in islice(events, self._left):
            self._left -= 1
            self._sample.add(fields)
            for fact, values in self._values.items():
                value = value_of(split_name(fact), fields, {})
                if type(value) is str and len(values) <= _VALUES_MAX:
                    values.add(value[:_VALUE_CHARS_MAX])

    def lines(self) -> Iterator[str]:
        """Yield the mismatches as text, rule by rule."""
        events = SAMPLE_EVENTS - self._left
        if not events:
            return
        if self._sample.overflows:
            yield f"the events have more than {NAMES_MAX} fields, so the rules are not compared with them"
        among = "" if self._left else f" (in the first {events} events)"
        for rule in self._rules:
            yield from (f"{rule.name}: {hint}" for hint in doubts(rule.condition, self._relations))
            for warning in condition_warnings(rule.condition, self._sample, self._relations):
                yield f"{rule.name}: {warning.text}{among}"
            for leaf, text in _texts_of(rule):
                values = self._values[leaf.fact]
                if not values or text[:_VALUE_CHARS_MAX] in values or len(values) > _VALUES_MAX:
                    continue
                near = nearest(text, sorted(values))
                meant = f"; the recording has {quoted(near)}" if near else ""
                yield f"{rule.name}: {quoted(leaf.fact)} is never {quoted(text)}{meant}{among}"


def _texts_of(rule: NamedCondition) -> list[tuple[Leaf, str]]:
    """Return the texts that a rule compares facts with for equality, each with its leaf."""
    found = []
    of_elements: set[int] = set()
    for node, _ in walk(rule.condition):
        if isinstance(node, Some):
            of_elements.update(id(inside) for inside, _ in walk(node.inner))
        elif id(node) in of_elements:
            continue
        if isinstance(node, Leaf) and node.op in {"eq", "in"} and not node.fact.startswith("$"):
            texts = node.value if isinstance(node.value, tuple) else (node.value,)
            found += [(node, text) for text in texts if isinstance(text, str)]
    return found
