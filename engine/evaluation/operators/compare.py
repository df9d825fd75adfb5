"""`compare`: the values of two terms exist and satisfy a comparison."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from math import inf, nan
from typing import Any, Final, NamedTuple

from engine.evaluation.facts.values import double
from engine.evaluation.operators.interface import Found, Triggers
from engine.evaluation.operators.table import remembering, term_operator
from engine.evaluation.operators.term_interface import Kind, Motion
from engine.evaluation.paths import Path
from engine.language.condition import Compare, Scalar
from engine.language.nodes import TermNode
from engine.language.operators import COMPARED, COMPARISONS, MIRRORED
from engine.language.terms import Abs, CountTerm, Div, Fact, SumTerm, Term, terms_in

_NUMBERS: Final = frozenset({Kind.COMPUTED, Kind.DOUBLE, Kind.NUMBER})
_ORDERS: Final = frozenset({"gt", "gte", "lt", "lte"})


class Names(NamedTuple):
    """The names by which the code of a comparison reads constants and terms."""

    constant: Callable[[object], str]
    """Returns the variable of a constant."""
    reading: Callable[[TermNode], Any]
    """Returns the names that the code of a term reads: of an event, and of the term's memory."""
    shared: Callable[[TermNode, str], str] = lambda _, text: text
    """Returns the expression for the value of a term, or a variable shared by all comparisons."""


class _Value(NamedTuple):
    """The code of a value, or its variable."""

    text: str
    kind: Kind


class _Code:
    """The code of one comparison."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._variables = count()

    def truth(self, node: Compare) -> str:
        """Return the expression for the truth of a comparison."""
        left, op, right = self.value(node.left), node.op, self.value(node.right)
        kinds = {left.kind, right.kind}
        if Kind.SCALAR in kinds:
            # If only one side is a scalar, it comes first.
            if left.kind is not Kind.SCALAR:
                left, op, right = right, MIRRORED[op], left
            both = right.kind is Kind.SCALAR
            return self._scalars(left, op, right) if both else self._scalar(left, op, right)
        if not kinds - _NUMBERS:
            return self._numbers(left, op, right)
        if kinds == {Kind.TEXT}:
            return self._present(left, op, right)
        if kinds == {Kind.BOOLEAN} and op not in _ORDERS:
            return f"({left.text} {COMPARISONS[op]} {right.text})"
        if op != "neq":
            return "False"
        # Values of different types are never equal.
        tests = [test for value in (left, right) for test in self._tests(value, *self._named(value))]
        return f"({' and '.join(tests)})"

    def value(self, term: Term | TermNode) -> _Value:
        """Return the value of a term."""
        if not isinstance(term, TermNode):
            kind = (
                Kind.BOOLEAN
                if isinstance(term, bool)
                else Kind.TEXT
                if isinstance(term, str)
                else Kind.NUMBER
            )
            return _Value(self._names.constant(term), kind)
        operator = term_operator(term)
        operands = [self._double(operand) for operand in operator.operands(term)]
        text = self._names.shared(term, operator.value(term, self._names.reading(term), operands))
        return _Value(text, operator.kind(term))

    def _double(self, term: Term) -> str:
        """Return the expression for a value as a double, which is not finite if the value is missing."""
        if not isinstance(term, TermNode):
            number = double(term)
            return self._names.constant(nan if number is None else number)
        value = self.value(term)
        if value.kind in (Kind.COMPUTED, Kind.DOUBLE):
            return value.text
        # For a text, the test returns NaN.
        first, again = self._named(value)
        is_whole = f"type({again}) is int and LEAST_DOUBLED <= {again} <= MOST_DOUBLED"
        return f"(NAN if type({first}) is not float and not ({is_whole}) else {again} + 0.0)"

    def _named(self, value: _Value) -> tuple[str, str]:
        """Return the expressions for the first evaluation and for later ones."""
        if value.text.isidentifier():
            return value.text, value.text
        name = f"v{next(self._variables)}"
        return f"({name} := {value.text})", name

    # -- comparisons ----------------------------------------------------------------------------------------

    def _numbers(self, left: _Value, op: str, right: _Value) -> str:
        if op in ("lt", "lte"):
            return self._numbers(right, MIRRORED[op], left)
        # A sum can be infinite. Then it equals the infinity that stands for a missing number.
        if op == "neq" or (op != "gt" and {left.kind, right.kind} == {Kind.COMPUTED, Kind.DOUBLE}):
            return self._present(left, op, right)
        # No comparison with NaN is true. Infinities that stand for missing numbers are beyond all others.
        above = "INFINITE > " if left.kind is Kind.COMPUTED else ""
        below = " > -INFINITE" if right.kind is Kind.COMPUTED else ""
        return f"({above}{left.text} {COMPARISONS[op]} {right.text}{below})"

    def _present(self, left: _Value, op: str, right: _Value) -> str:
        """Return the comparison of two values of the same type, after tests that they exist."""
        one, again = self._named(left)
        other, other_again = self._named(right)
        tests = [*self._tests(left, one, again), *self._tests(right, other, other_again)]
        return f"({' and '.join([*tests, f'{again} {COMPARISONS[op]} {other_again}'])})"

    def _scalars(self, left: _Value, op: str, right: _Value) -> str:
        """Return the comparison of two values of any types."""
        one, again = self._named(left)
        other, other_again = self._named(right)
        if op in _ORDERS:
            both = f"type({one}) in ORDERED and type({other}) in ORDERED"
            alike = f"(type({again}) is str) is (type({other_again}) is str)"
            return f"({both} and {alike} and {again} {COMPARISONS[op]} {other_again})"
        both = f"type({one}) in SCALARS and type({other}) in SCALARS"
        # In Python, True equals 1.
        typed = f"(type({again}) is bool) is (type({other_again}) is bool)"
        if op == "eq":
            return f"({both} and {again} == {other_again} and {typed})"
        return f"({both} and not ({again} == {other_again} and {typed}))"

    def _scalar(self, left: _Value, op: str, right: _Value) -> str:
        """Return the comparison of a value of any type with one whose type is known."""
        one, again = self._named(left)
        if op == "neq":
            other, other_again = self._named(right)
            parts = [f"type({one}) in SCALARS", *self._tests(right, other, other_again)]
            # In Python, True equals 1.
            typed = f" or type({again}) is bool" if right.kind in _NUMBERS else ""
            differ = "is not" if right.kind is Kind.BOOLEAN else "!="
            return f"({' and '.join(parts)} and ({again} {differ} {other_again}{typed}))"
        if right.kind in _NUMBERS:
            number = f"(NAN if type({one}) is not int and type({again}) is not float else {again})"
            return self._numbers(_Value(number, Kind.NUMBER), op, right)
        if right.kind is Kind.BOOLEAN:
            return f"({left.text} is {right.text})" if op == "eq" else "False"
        other, other_again = self._named(right)
        tests = [f"type({one}) is str", *self._tests(right, other, other_again)]
        return f"({' and '.join(tests)} and {again} {COMPARISONS[op]} {other_again})"

    def _tests(self, value: _Value, first: str, again: str) -> list[str]:
        """Return the tests that a value exists, using `first` for the first evaluation, then `again`."""
        if value.kind not in _NUMBERS:
            return [f"{first} is not None"]
        # NaN does not equal itself, and an infinity less itself is NaN.
        return [f"{first} - {again} == 0.0" if value.kind is Kind.COMPUTED else f"{first} == {again}"]


def comparison(node: Compare, names: Names) -> str:
    """Return the expression for the truth of a comparison."""
    return _Code(names).truth(node)


def values_of(terms: Iterable[TermNode], names: Names) -> str:
    """Return the expression for the values of terms, in a tuple."""
    code = _Code(names)
    return f"({''.join(f'{code.value(term).text}, ' for term in terms)})"


def found_in(node: Compare) -> tuple[TermNode, ...]:
    """Return the terms whose values an explanation shows: all but facts and constants."""
    terms = (*terms_in(node.left), *terms_in(node.right))
    return tuple({each: None for each in terms if isinstance(each, TermNode) and not isinstance(each, Fact)})


# -- the events at which it is true -------------------------------------------------------------------------


def true_at(node: Compare, triggers: Triggers, path: Path) -> Found:
    """Return triggers for the events at which a comparison is true."""
    both = ((node.left, node.op, node.right), (node.right, MIRRORED[node.op], node.left))
    parts = [
        _selected(one, op, other, triggers, path)
        for one, op, other in both
        if not isinstance(other, TermNode)
    ]
    parts += [_present_at(term, triggers, path) for term in (node.left, node.right)]
    return triggers.best(parts)


def _present_at(term: Term, triggers: Triggers, path: Path) -> Found:
    """Return triggers for the events at which a term has a value; None for all events."""
    if not isinstance(term, TermNode):
        return None
    operator = term_operator(term)
    operands = [_present_at(operand, triggers, path) for operand in operator.operands(term)]
    return triggers.best([operator.present_at(term, triggers.of(term, path), path), *operands])


def _selected(term: Term, op: str, constant: Scalar, triggers: Triggers, path: Path) -> Found:
    """Return triggers for the events at which the comparison of a term with a constant is true."""
    if isinstance(term, Fact) and op == "eq":
        return triggers.equal(term.fact, constant)
    if isinstance(constant, bool | str):
        return None
    if isinstance(term, Fact) and op in _ORDERS:
        low, high = (constant, inf) if op in ("gt", "gte") else (-inf, constant)
        return triggers.within(term.fact, low, high)
    if isinstance(term, CountTerm | SumTerm) and not COMPARED[op](0, constant):
        memory, triggers = remembering(term).memory(term), triggers.of(term, path)
        held = triggers.holding(memory, path)
        return held if term.earlier else triggers.union([held, memory.changed_by(triggers, path)])
    return None


def steps_us(node: Compare, now_us: int) -> Iterator[Iterator[int]]:
    """Yield, for each term, the times at which the time of day changes it."""
    for side, other in ((node.left, node.right), (node.right, node.left)):
        for term in terms_in(side):
            if isinstance(term, TermNode):
                yield term_operator(term).steps_us(term, now_us, other if term is side else None)


def motion_of(term: Term) -> Motion:
    """Return how time changes the value of a term, between two steps."""
    if not isinstance(term, TermNode):
        return Motion.STILL
    operator = term_operator(term)
    return operator.motion(term, [motion_of(operand) for operand in operator.operands(term)])


def crossings(node: Compare) -> Iterator[Compare]:
    """Yield comparisons that turn where the value of a term bends, or where the node itself turns."""
    for term in reversed([*terms_in(node.left), *terms_in(node.right)]):
        pivot = term.operand if isinstance(term, Abs) else term.operands[1] if isinstance(term, Div) else None
        if pivot is not None and motion_of(pivot) is not Motion.STILL:
            yield Compare(pivot, "gt", 0)
            yield Compare(pivot, "gte", 0)
    yield replace(node, op="gt")
    yield replace(node, op="gte")
