"""What the text of a comparison of terms would be read as, and when several are written as one."""

from typing import TypeGuard

from engine.language import terms
from engine.language.condition import Compare, Condition, Scalar
from engine.language.literals import is_number
from engine.language.terms import Term

ARITHMETIC = (terms.Add, terms.Sub, terms.Mul, terms.Div)


def reads_otherwise(compare: Compare) -> bool:
    """Return whether a comparison without `compare(…)` would be read as another member, or not at all."""
    match compare.left, compare.right:
        case terms.Fact(), terms.Fact() | str() | bool():
            return compare.op in {"eq", "neq"}
        case terms.Fact(), int() | float():
            return True
        case ((terms.CountTerm() | terms.SumTerm() | terms.AvgTerm()), str() | int() | float()):
            return True
        case ((terms.SumTerm() | terms.AvgTerm()), terms.Fact()):
            return True
        case ((terms.SumTerm() | terms.AvgTerm()), terms.Mul((times, terms.Fact()))) if is_number(times):
            return True
        case left, _:
            return begins_earlier(left)


def begins_earlier(term: Term) -> bool:
    """Return whether the text of a term begins with `earlier`, which would be the prefix."""
    while isinstance(term, ARITHMETIC):
        term = term.operands[0]
    return isinstance(term, terms.AggregateTerm) and term.earlier is not None


def are_of_one_term(members: tuple[Condition, ...]) -> TypeGuard[tuple[Compare, ...]]:
    """Return whether all members compare the same term, which is no name and can begin a predicate."""
    match members[0]:
        case Compare(term) if not isinstance(term, terms.Fact) and not begins_earlier(term):
            # Whole conditions are compared: `True == 1` for Python.
            first = Compare(term, "eq", 0)
            return all(
                isinstance(member, Compare) and Compare(member.left, "eq", 0) == first for member in members
            )
    return False


def is_scalar(term: Term) -> TypeGuard[Scalar]:
    """Return whether a term is a constant."""
    return isinstance(term, str | int | float)
