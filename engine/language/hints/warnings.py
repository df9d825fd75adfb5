"""Warnings about valid conditions: unknown facts and relations, and comparisons of incompatible types."""

import json
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from engine.language import condition as language
from engine.language.condition import Condition, FactArg, ScaledFact
from engine.language.diagnostics import did_you_mean, enumerated, json_type, quoted
from engine.language.forms.form import Content, Counted
from engine.language.forms.table import FORM_OF, facts_of, placed_children, placed_terms
from engine.language.forms.terms import TERM_FORM_OF
from engine.language.hints.samples import Sample
from engine.language.terms import AggregateTerm, Length, Time
from engine.language.text.printer import comparison_text
from engine.language.text.printer import format as text_of
from engine.language.text.sugar import ARITHMETIC

_SCALARS = frozenset({"a string", "a number", "a boolean"})
_NUMBER = frozenset({"a number"})
_TYPES_OF_TERMS = {Length: frozenset({"a string", "an array"}), Time: frozenset({"a string"})}
_TEXT = frozenset({"a string"})
_ARRAY = frozenset({"an array"})
_NEGATED_OPS = {"neq", "nin"}


class ConditionWarning(NamedTuple):
    """A part of a valid condition that its author should check."""

    place: str
    """The path in the condition's JSON, such as `all[1].leaf.fact`."""
    text: str


def condition_warnings(
    condition: Condition, sample: Sample | None = None, relations: Collection[str] | None = None
) -> list[ConditionWarning]:
    """Return the warnings about a condition, in document order, one for each name.

    `sample` has events for which the condition is meant. Without it, or if it overflows, there are no
    warnings about facts. `relations` has the names of all relations; if None, they are unknown, and there are
    no warnings about relations. The vars of the sample count as relations, too. For other problems see
    `hints`.
    """
    known = None if sample is None or sample.overflows else sample
    return list(_Checker(known, relations).warnings(condition, ""))


class _Checker:
    """Checks one condition. Remembers the names for which it has warned."""

    def __init__(self, sample: Sample | None, relations: Collection[str] | None) -> None:
        self._sample = self._of_events = sample
        """The sample of the events, or of the elements of an array."""
        self._holder = "event"
        self._names = sample.names() if sample else frozenset()
        sent = sample.relations() if sample else frozenset()
        self._relations = None if relations is None else frozenset(relations) | sent
        self._warned: set[tuple[str, str]] = set()

    def warnings(self, node: Condition, place: str) -> Iterator[ConditionWarning]:
        """Yield the warnings about the condition at a place and about all conditions inside it."""
        prefix = f"{place}." if place else ""
        match node:
            case language.Leaf():
                yield from self._leaf(node, f"{prefix}leaf", text_of(node))
            case language.Ref():
                yield from self._ref(node, f"{prefix}ref")
            case language.InRelation():
                yield from self._in_relation(node, f"{prefix}in_relation")
            case language.InNetwork():
                yield from self._in_network(node, f"{prefix}in_network")
            case language.Anywhere(inner):
                # Nothing is known about the strings of an event.
                outer, self._sample = self._sample, None
                yield from self.warnings(inner, f"{prefix}anywhere")
                self._sample = outer
                return
            case language.Some():
                yield from self._some(node, f"{prefix}some")
                return
            case language.All((language.Leaf() as first, *_)) if comparison := comparison_text(node.members):
                # `x > 5` is two leaves, but one comparison to its author.
                yield from self._leaf(first, f"{prefix}all[0].leaf", comparison)
                return
            case language.Compare():
                yield from self._compare(node, prefix)
            case language.Keyed(_, key):
                keys = "only strings, numbers and booleans are keys, so that this `per` is always false"
                yield from self._typed(key, f"{prefix}keyed.key", _SCALARS, keys)
            case _:
                form = FORM_OF[type(node)]
                if form.counted is not None:
                    yield from self._aggregate(node, f"{prefix}{form.name}", form.counted)
        for step, child in placed_children(node):
            yield from self.warnings(child, prefix + step)

    def _leaf(self, leaf: language.Leaf, place: str, text: str) -> Iterator[ConditionWarning]:
        yield from self._fact(leaf.fact, f"{place}.fact")
        types = self._types(leaf.fact)
        if not types:
            return
        wanted = _comparable_types(leaf)
        if types.isdisjoint(wanted):
            yield _mismatch(f"{place}.value", leaf, text, types, wanted)
        elif leaf.op == "contains" and types == {"an array"}:
            elements = self._element_types(leaf.fact)
            if elements and json_type(leaf.value) not in elements:
                what = f"the arrays in `{leaf.fact}` hold {_only(elements)}"
                yield ConditionWarning(f"{place}.value", f"{quoted(text)} is always false: {what}")

    def _ref(self, ref: language.Ref, place: str) -> Iterator[ConditionWarning]:
        yield from self._fact(ref.fact, f"{place}.fact")
        types, others = self._types(ref.fact), self._types(ref.reference)
        yield from self._fact(ref.reference, f"{place}.reference", _as_value(ref.reference, types))
        if not types or not others:
            return
        if ref.op in {"eq", "neq"}:
            if types.isdisjoint(others):
                yield _mismatch(f"{place}.reference", ref, text_of(ref), types, others)
            return
        if "an array" not in others:
            # Then both `in` and `not in` are false.
            what = f"`{ref.reference}` is {_only(others)} in every event that has it, never an array"
            yield ConditionWarning(f"{place}.reference", f"{quoted(text_of(ref))} is always false: {what}")
            return
        elements = self._element_types(ref.reference)
        if elements and types.isdisjoint(elements):
            yield _mismatch(f"{place}.reference", ref, text_of(ref), types, elements)

    def _in_network(self, node: language.InNetwork, place: str) -> Iterator[ConditionWarning]:
        otherwise = f"{quoted(text_of(node))} is always false"
        yield from self._typed(node.fact, f"{place}.fact", _TEXT, otherwise)
        if isinstance(node.networks, language.NetworksOf):
            yield from self._relation(node.networks.relation, text_of(node), f"{place}.networks.relation")

    def _some(self, node: language.Some, place: str) -> Iterator[ConditionWarning]:
        otherwise = f"{quoted(text_of(node))} is always false"
        yield from self._typed(node.fact, f"{place}.fact", _ARRAY, otherwise)
        outer = self._sample, self._names, self._holder
        inside = self._sample.elements(node.fact) if self._sample else None
        # Without elements, nothing is known about names in them.
        self._sample = inside if inside and inside.names() else None
        self._names = self._sample.names() if self._sample else frozenset()
        self._holder = f"element of {quoted(node.fact)}"
        yield from self.warnings(node.inner, f"{place}.inner")
        self._sample, self._names, self._holder = outer

    def _relation(self, name: str, text: str, place: str) -> Iterator[ConditionWarning]:
        """Warn about an unknown relation."""
        if self._relations is not None and name not in self._relations and self._note("relation", name):
            asks = f"{quoted(text)} looks in the relation {quoted(name)}, which is not known"
            unless = "unless it is sent in `context.vars`, that is always false"
            near = did_you_mean(name, sorted(self._relations))
            yield ConditionWarning(place, f"{asks}: {unless}{near}")

    def _in_relation(self, node: language.InRelation, place: str) -> Iterator[ConditionWarning]:
        text = text_of(node)
        yield from self._relation(node.relation, text, f"{place}.relation")
        for index, argument in enumerate(node.args):
            if isinstance(argument, FactArg):
                at = f"{place}.args[{index}].fact"
                holds = f"relations hold strings, numbers and booleans; {quoted(text)} is always false"
                yield from self._typed(argument.fact, at, _SCALARS, holds)

    def _compare(self, node: language.Compare, prefix: str) -> Iterator[ConditionWarning]:
        """Warn about the facts of terms that no event has, or that give a term no value."""
        text = quoted(text_of(node))
        calculated = {
            f"{place}.{name}[{index}]"
            for place, term in placed_terms(node)
            if isinstance(term, ARITHMETIC)
            for name in (TERM_FORM_OF[type(term)].name,)
            for index in range(len(term.operands))
        }
        for place, term in placed_terms(node):
            form = TERM_FORM_OF[type(term)]
            if Content.NAME not in form.fields.values():
                continue
            path = f"{prefix}{place}.{form.name}" + ("" if form.is_bare else ".fact")
            if isinstance(term, AggregateTerm):
                wanted, otherwise = _NUMBER, f"there is nothing to compute in {text}"
            else:
                wanted = _TYPES_OF_TERMS.get(type(term), _NUMBER if place in calculated else _SCALARS)
                otherwise = f"{text} is always false"
            yield from self._typed(facts_of(term)[0], path, wanted, otherwise)

    def _aggregate(self, node: Any, place: str, counted: Counted) -> Iterator[ConditionWarning]:
        """Warn about facts that do not count, and about a fact to compare with that is not a number."""
        yield from self._typed(node.fact, f"{place}.fact", counted.types, counted.otherwise)
        if isinstance(node.value, ScaledFact):
            at = f"{place}.value.fact"
            yield from self._typed(node.value.fact, at, _NUMBER, f"{quoted(text_of(node))} is always false")

    def _typed(
        self, name: str, place: str, wanted: frozenset[str], otherwise: str
    ) -> Iterator[ConditionWarning]:
        """Warn about a fact that has none of the required types."""
        yield from self._fact(name, place)
        types = self._types(name)
        if types and types.isdisjoint(wanted):
            yield ConditionWarning(
                place, f"{quoted(name)} is {_only(types)} in every event that has it: {otherwise}"
            )

    def _fact(self, name: str, place: str, otherwise: str = "") -> Iterator[ConditionWarning]:
        """Warn about a fact that no event has; add `otherwise` if no name is near."""
        sample = self._sample_of(name)
        if sample is None or (name.startswith("$") and not sample.has_vars):
            return
        types = sample.types(name)
        if types or not self._note(self._holder, name):
            return
        if types is not None:
            where = f"every {self._holder} that has it"
            yield ConditionWarning(place, f"{quoted(name)} is null in {where}, as if it were missing")
        else:
            near = self._near(name) or otherwise
            yield ConditionWarning(place, f"no {self._holder} has {quoted(name)}{near}")

    def _near(self, name: str) -> str:
        """Return the end of a sentence that suggests a name with a similar spelling or the same last part."""
        known = sorted(other for other in self._names if other.startswith("$") == name.startswith("$"))
        by_spelling = did_you_mean(name, known)
        if by_spelling:
            return by_spelling
        ends = [other for other in known if other.lower().endswith(f".{name.lower()}")]
        return f"; did you mean {quoted(ends[0])}?" if len(ends) == 1 else ""

    def _note(self, what: str, name: str) -> bool:
        """Record a warning about a name. Return whether it is the first."""
        if (what, name) in self._warned:
            return False
        self._warned.add((what, name))
        return True

    def _types(self, name: str) -> frozenset[str]:
        sample = self._sample_of(name)
        return (sample.types(name) if sample else None) or frozenset()

    def _element_types(self, name: str) -> frozenset[str]:
        sample = self._sample_of(name)
        return sample.element_types(name) if sample else frozenset()

    def _sample_of(self, name: str) -> Sample | None:
        return self._of_events if name.startswith("$") else self._sample


def _comparable_types(leaf: language.Leaf) -> frozenset[str]:
    """Return the types of facts for which a leaf can be true."""
    match leaf.op, leaf.value:
        case (("in" | "nin" | "between"), tuple() as elements):
            # `[]` matches no type at all, which is not a mismatch.
            return frozenset(map(json_type, elements)) or _SCALARS | {"an array", "an object"}
        case "contains", str():
            return frozenset({"a string", "an array"})
        case "contains", _:
            return frozenset({"an array"})
        case _, value:
            return frozenset({json_type(value)})


def _mismatch(
    place: str, node: language.Leaf | language.Ref, text: str, types: frozenset[str], wanted: frozenset[str]
) -> ConditionWarning:
    """Return the warning about a comparison of types that never match."""
    name = quoted(node.fact)
    verdict = f"true wherever {name} is there" if node.op in _NEGATED_OPS else "always false"
    is_what = f"{name} is {_only(types)} in every event that has it, never {_only(wanted)}"
    return ConditionWarning(place, f"{quoted(text)} is {verdict}: {is_what}")


def _only(types: frozenset[str]) -> str:
    return enumerated(sorted(types))


def _as_value(name: str, types: frozenset[str]) -> str:
    """Return the end of a sentence that says how to write a name as a value of one of these types."""
    if "a boolean" in types and (near := did_you_mean(name, ("true", "false"))):
        return near
    if name.startswith("$") or "a string" not in types:
        return ""
    return f"; a bare word is a name; write the string as {json.dumps(name, allow_nan=False)}"
