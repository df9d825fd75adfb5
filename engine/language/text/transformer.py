"""Builds the JSON document of a text from its tree, with spans: one method for each rule of the grammar."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from lark import Token, Tree

from engine.language.durations import duration_seconds, split_duration
from engine.language.forms.form import SCALED_FACT, Content
from engine.language.forms.table import FORMS
from engine.language.json.spans import SpannedArray, SpannedObject
from engine.language.literals import is_number
from engine.language.operators import COMPARISONS, LARGEST, OPERATORS
from engine.language.text.lexical import Ages, Filtered, Part, from_backquotes
from engine.language.text.sugar import pattern_of

_OPERATOR_NAMES = {operator.text: operator.name for operator in OPERATORS.values()}
_EQUALITIES = {"eq", "neq"}
_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_COMPARISON_NAMES = {"=": "eq"} | {text: name for name, text in COMPARISONS.items()}


def document_of(tree: Any) -> Any:
    """Return the document or part that the tree of a text stands for; anything else unchanged.

    Trees without a rule stay trees: the members of an incomplete `and`. Any depth is safe.
    """
    # Collect each part before those in it, then process them in reverse.
    found, pending = [], [tree]
    while pending:
        part = pending.pop()
        found.append(part)
        if isinstance(part, Tree):
            pending += part.children
    made: list[Any] = []
    for part in reversed(found):
        if isinstance(part, Tree):
            first = len(made) - len(part.children)
            method, members = getattr(_TRANSFORMER, part.data, None), made[first:]
            made[first:] = [Tree(part.data, members) if method is None else method(*members)]
        else:
            made.append(part)
    (document,) = made
    return document


class Transformer:
    """One method for each rule of the grammar. None of them changes its arguments."""

    def any_of(self, *members: SpannedObject) -> SpannedObject:
        """`a or b`, `any(a, b)`."""
        return _condition("any", _array(members))

    def all_of(self, *members: SpannedObject) -> SpannedObject:
        """`a and b`, `all(a, b)`."""
        return _condition("all", _array(members))

    def infix(self, left: SpannedObject, word: Token, right: SpannedObject) -> SpannedObject:
        """`a since b`."""
        return _form(str(word), left=left, right=right)

    def infix_within(
        self, left: SpannedObject, word: Token, ages: Part | Ages, right: SpannedObject
    ) -> SpannedObject:
        """`a since within 8h b`, `a since within [5m, 8h] b`."""
        return _form(f"{word}_within", left=left, right=right, **_window(ages))

    def prefix(self, word: Token, inner: SpannedObject) -> SpannedObject:
        """`not a`, `once a`."""
        return _condition(str(word), inner)

    def prefix_within(self, word: Token, ages: Part | Ages, inner: SpannedObject) -> SpannedObject:
        """`once within 10m a`, `once within [5m, 10m] a`."""
        return _form(f"{word}_within", inner=inner, **_window(ages))

    def prefix_for(self, word: Token, ages: Part | Ages, *rest: Any) -> SpannedObject:
        """`historically for 5m a`, `historically for 5m strong a`, `historically for [5m, 10m] a`."""
        *boundary, inner = rest
        given = {"boundary": boundary.pop()} if boundary else {}
        return _form(f"{word}_for", inner=inner, **_window(ages), **given)

    def keyed(self, key: Part, *rest: Any) -> SpannedObject:
        """`per NAME a`, `per NAME where w a`."""
        *filtered, inner = rest
        given = {"where": filtered[1]} if filtered else {}
        return _form("keyed", inner=inner, key=key, **given)

    def call_of_condition(self, word: Token, inner: SpannedObject, *compared: Any) -> SpannedObject:
        """`count(a) within 10m >= 5`, for a counting operator that is no term."""
        return _form(str(word), inner=inner, **_comparison(*compared))

    def call_since(
        self, word: Token, inner: SpannedObject, _: Token, reset: SpannedObject, op: str, value: Part
    ) -> SpannedObject:
        """`count(a) since b >= 5`."""
        return _form(f"{word}_since", inner=inner, reset=reset, op=op, value=value)

    def call_of_fact(self, word: Token, over: Filtered, *compared: Any) -> SpannedObject:
        """`distinct(x where a) within 1h > 20`."""
        return _form(str(word), **over.members, **_comparison(*compared))

    def filtered(self, fact: Part, *rest: Any) -> Filtered:
        """`x`, `x where a`."""
        return Filtered(fact, rest[1] if rest else None)

    def span(self, window: Part | None = None) -> Part | None:
        """`within 10m`, or nothing."""
        return window

    def between_ages(self, _: Token, least: Part, greatest: Part, __: Token) -> Ages:
        """`[5m, 10m]` in the place of a window."""
        return Ages(least, greatest)

    def comparison(self, token: Token) -> str:
        """`>=`, `==` and so on."""
        return _COMPARISON_NAMES[token]

    def arithmetic(self, first: Part, *rest: Any) -> Part:
        """`a + b - c`, `a * b / c`: from left to right. Consecutive operands of one sign form one term."""
        value, before = first.value, ""
        for sign, operand in zip(rest[::2], rest[1::2], strict=True):
            if sign == before and sign in "+*":
                _, operands = _only_member(value)
            else:
                operands = _array([value], [first.offset])
                value = _condition(_ARITHMETIC[sign], operands)
            operands.append(operand.value)
            operands.offsets.append(operand.offset)
            before = sign
        return Part(value, first.offset)

    def fact(self, name: Part) -> Part:
        """A name as a term, or as an argument of a relation."""
        return Part(_object(fact=name), name.offset)

    def now(self, word: Token) -> Part:
        """`now()`."""
        return _part(_form("now"), word)

    def bare(self, word: Token, operand: Part | SpannedObject) -> Part:
        """`prev(x)`, `abs(x - y)`, `age(a)`."""
        return _part(_object(**{word: operand}), word)

    def last(self, word: Token, over: Filtered) -> Part:
        """`last(x)`, `last(x where a)`."""
        return _part(_form("last", **over.members), word)

    def clock(self, word: Token, zone: Part | None = None) -> Part:
        """`hour()`, `hour("Europe/Berlin")`."""
        part = _part(str(word), word)
        return _part(_form("clock", part=part, **({"zone": zone} if zone else {})), word)

    def count(self, word: Token, inner: SpannedObject, window: Part | None) -> Part:
        """`count(a)`, `count(a) within 10m`."""
        return _part(_form(str(word), inner=inner, **_windowed(window)), word)

    def aggregate(self, word: Token, over: Filtered, window: Part | None) -> Part:
        """`sum(x)`, `avg(x where a) within 30d`."""
        return _part(_form(str(word), **over.members, **_windowed(window)), word)

    def earlier(self, word: Token, aggregate: Part) -> Part:
        """`earlier count(a)`."""
        name, members = _only_member(aggregate.value)
        return _part(_condition(name, _with(members, earlier=True)), word)

    def compare(self, _: Token, left: Part, op: str, right: Part) -> SpannedObject:
        """`compare(x == 5)`: never read as another member."""
        return _form("compare", left=left, op=op, right=right)

    def compared(self, left: Part, op: str, right: Part) -> SpannedObject:
        """`x == 1`, `x > y + 1`, `count(a) > 5`: another member if one fits, otherwise `compare`."""
        kind, content = _kind(left)
        if kind == "fact":
            name = Part(content, left.offset)
            if not isinstance(right.value, dict):
                if op in _EQUALITIES:
                    return _form("leaf", fact=name, op=op, value=right)
                if is_number(right.value):
                    return _inequality(name, op, right)
            elif "fact" in right.value and op in _EQUALITIES:
                return _form("ref", fact=name, op=op, reference=Part(right.value["fact"], right.offset))
        elif kind in FORMS:
            takes_facts = FORMS[kind].fields["value"] is Content.AMOUNT
            value = _amount(right) if takes_facts else right
            if not isinstance(value.value, dict) or (
                takes_facts and value.value.keys() <= SCALED_FACT.keys()
            ):
                return _condition(kind, _with(content, op=op, value=value))
        return _form("compare", left=left, op=op, right=right)

    def among(self, term: Part, _: Token, array: Part) -> SpannedObject:
        """`hour() in [22, 23]`: a comparison with each value."""
        values = (Part(value, offset) for value, offset in zip(array.value, array.value.offsets, strict=True))
        return self.any_of(*(_form("compare", left=term, op="eq", right=value) for value in values))

    def leaf(self, fact: Part, op: str, value: Part) -> SpannedObject:
        """`x in [1]`, `x contains "a"`, `x matches "a"`."""
        return _form("leaf", fact=fact, op=op, value=value)

    def ref(self, fact: Part, op: str, reference: Part) -> SpannedObject:
        """`x in y`."""
        return _form("ref", fact=fact, op=op, reference=reference)

    def between(self, term: Part, low: Part, high: Part) -> SpannedObject:
        """`x between 1 and 2`; two comparisons for a term that is not a name."""
        if isinstance(term.value, dict) and "fact" in term.value:
            fact = Part(term.value["fact"], term.offset)
            return self.leaf(fact, "between", Part(_literals([low, high]), low.offset))
        return self.all_of(
            _form("compare", left=term, op="gte", right=low),
            _form("compare", left=term, op="lte", right=high),
        )

    def in_relation(self, relation: Part, *arguments: Part) -> SpannedObject:
        """`rel(a, "b", 3)`."""
        return _form("in_relation", args=_literals(arguments), relation=relation)

    def sugared(self, fact: Part, word: str, value: Part) -> SpannedObject:
        """`x startswith "a"`, `x startswith ["a", "b"]`."""
        if not isinstance(value.value, SpannedArray):
            return self.leaf(fact, "matches", Part(_pattern(word, value.value), value.offset))
        texts = map(Part, value.value, value.value.offsets)
        leaves: list[object] = [
            self.leaf(fact, "matches", Part(_pattern(word, t.value), t.offset)) for t in texts
        ]
        return _spanned({"any": _array(leaves)}, {"any": value.offset})

    def sugar(self, word: Token) -> str:
        """`startswith`, `like` and so on."""
        return str(word)

    def exists(self, _: Token, name: Part) -> SpannedObject:
        """`exists x`."""
        return self.ref(name, "eq", name)

    def missing(self, _: Token, name: Part) -> SpannedObject:
        """`missing x`."""
        return _condition("not", self.ref(name, "eq", name))

    def in_network(self, fact: Part, _in: Token, _word: Token, networks: Part) -> SpannedObject:
        """`x in network "10.0.0.0/8"`, `x in network ["10.0.0.0/8", "::1"]`."""
        listed = networks.value if isinstance(networks.value, SpannedArray) else _literals([networks])
        return _form("in_network", fact=fact, networks=Part(listed, networks.offset))

    def in_network_of(self, fact: Part, _in: Token, _word: Token, relation: Part) -> SpannedObject:
        """`x in network NAME`."""
        networks = Part(_object(relation=relation), relation.offset)
        return _form("in_network", fact=fact, networks=networks)

    def some(self, _: Token, fact: Part, inner: SpannedObject) -> SpannedObject:
        """`some x (a)`."""
        return _form("some", fact=fact, inner=inner)

    def anywhere(self, _: Token, inner: SpannedObject) -> SpannedObject:
        """`anywhere (a)`."""
        return _condition("anywhere", inner)

    def operator(self, *tokens: Token) -> str:
        """`==`, `not in` and so on."""
        return _OPERATOR_NAMES[" ".join(tokens)]

    def word(self, token: Token) -> str:
        """`strong` and `weak`."""
        return str(token)

    def plain(self, token: Token) -> Part:
        """A name without backquotes."""
        return _part(str(token), token)

    def backquoted(self, token: Token) -> Part:
        """A name in backquotes."""
        return _part(from_backquotes(token), token)

    def scalar(self, token: Token) -> Part:
        """`"…"`, `5`, `1e3`, `true`, `false`."""
        return _part(json.loads(token), token)

    def verbatim(self, token: Token) -> Part:
        """`'…'`."""
        return _part(token[1:-1], token)

    def duration(self, token: Token) -> Part:
        """`10m`."""
        return _part(duration_seconds(*split_duration(token)), token)

    def array(self, bracket: Token, *rest: Any) -> Part:
        """`[1, 2]`."""
        return _part(_literals(rest[:-1]), bracket)


def _pattern(word: str, value: object) -> object:
    """Return the pattern of a text. Other values stay, for validation to report."""
    return pattern_of(word, value) if isinstance(value, str) else value


_TRANSFORMER: Final = Transformer()


def _spanned(members: Mapping[str, object], offsets: dict[str, int]) -> SpannedObject:
    made = SpannedObject(members)
    made.offsets = offsets
    return made


def _array(elements: Iterable[object], offsets: Sequence[int] = ()) -> SpannedArray:
    made = SpannedArray(elements)
    made.offsets = [*offsets]
    return made


def _condition(name: str, content: object) -> SpannedObject:
    return _spanned({name: content}, {})


def _form(name: str, **members: object) -> SpannedObject:
    """Return a condition whose content is an object of these members."""
    return _condition(name, _object(**members))


def _object(**members: object) -> SpannedObject:
    """Return an object. Members that are given as parts have spans."""
    parts = {name: member for name, member in members.items() if isinstance(member, Part)}
    values = members | {name: part.value for name, part in parts.items()}
    return _spanned(values, {name: part.offset for name, part in parts.items()})


def _part(value: object, token: Token) -> Part:
    """Return a part that begins with a token."""
    assert token.start_pos is not None
    return Part(value, token.start_pos)


def _literals(parts: Sequence[Part]) -> SpannedArray:
    return _array([part.value for part in parts], [part.offset for part in parts])


def _window(ages: Part | Ages) -> dict[str, object]:
    """Return the members for the ages of the events that count."""
    if isinstance(ages, Ages):
        return {"window_secs": ages.greatest, "min_secs": ages.least}
    return {"window_secs": ages}


def _comparison(window: Part | None, op: str, value: Part) -> dict[str, object]:
    """Return the members for the window and the comparison of an aggregate."""
    return {**_windowed(window), "op": op, "value": value}


def _windowed(window: Part | None) -> dict[str, object]:
    return {"window_secs": window} if window else {}


def _kind(term: Part) -> tuple[str, Any]:
    """Return the name and the content of a term that is an object; empty ones for a constant."""
    return _only_member(term.value) if isinstance(term.value, dict) else ("", None)


def _only_member(document: Any) -> tuple[str, Any]:
    ((name, content),) = document.items()
    return name, content


def _with(members: SpannedObject, **more: object) -> SpannedObject:
    """Return an object with more members."""
    added = _object(**more)
    return _spanned({**members, **added}, {**members.offsets, **added.offsets})


def is_amount(term: object) -> bool:
    """Return whether the document of a term is a number times a fact, with which a sum is compared."""
    match term:
        case {"mul": [times, {"fact": _}]}:
            return is_number(times)
        case _:
            return False


def _amount(term: Part) -> Part:
    """Return a product of a number and a fact as a scaled fact; any other term unchanged."""
    if not is_amount(term.value):
        return term
    times, fact = term.value["mul"]
    offset = term.value["mul"].offsets[0]
    return Part(_with(fact, times=Part(times, offset)), offset)


def _inequality(fact: Part, op: str, bound: Part) -> SpannedObject:
    """Return `x > 1`, `x >= 1`, `x < 1` or `x <= 1`."""
    is_above = op.startswith("g")
    open_end = Part(LARGEST if is_above else -LARGEST, bound.offset)
    ends = [bound, open_end] if is_above else [open_end, bound]
    range_ = _form("leaf", fact=fact, op="between", value=Part(_literals(ends), bound.offset))
    if op.endswith("e"):
        return range_
    return _condition("all", _array([range_, _form("leaf", fact=fact, op="neq", value=bound)]))
