"""The tables of all operators and terms, by the types of their nodes."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from engine.evaluation.operators.interface import Choosing, LookingBack, Operator
from engine.evaluation.operators.term_interface import PastTerm, TermOperator
from engine.language.condition import Compare, Condition
from engine.language.forms import table as forms_table
from engine.language.forms.form import Form
from engine.language.nodes import Node, TermNode
from engine.language.terms import Term, terms_in

OPERATORS: Final[dict[type, Operator[Any]]] = {}
"""The operators of the conditions that look back."""
_CHOOSING: Final[dict[type, Choosing[Any]]] = {}
"""The operators that leave some nodes to others."""
_TERMS: Final[dict[type, TermOperator[Any]]] = {}

_Made = TypeVar("_Made", bound=Operator[Any])
_MadeTerm = TypeVar("_MadeTerm", bound=TermOperator[Any])


def evaluates(*forms: Form) -> Callable[[type[_Made]], type[_Made]]:
    """Register the decorated operator. The forms of its nodes become part of the language."""

    def entered(made: type[_Made]) -> type[_Made]:
        operator, types = made(), [form.make for form in forms]
        OPERATORS.update(dict.fromkeys(types, operator))
        if isinstance(operator, Choosing):
            _CHOOSING.update(dict.fromkeys(types, operator))
        forms_table.enter(forms)
        return made

    return entered


def remove(forms: Sequence[Form]) -> None:
    """Undo `evaluates`."""
    for form in forms:
        del OPERATORS[form.make]
        _CHOOSING.pop(form.make, None)
    forms_table.remove(forms)


def values(*types: type[TermNode]) -> Callable[[type[_MadeTerm]], type[_MadeTerm]]:
    """Register the decorated operator for terms of these types."""

    def entered(made: type[_MadeTerm]) -> type[_MadeTerm]:
        _TERMS.update(dict.fromkeys(types, made()))
        return made

    return entered


def operator_of(node: Condition) -> Operator[Any] | None:
    """Return the operator of a condition; None if it does not look back itself."""
    choosing = _CHOOSING.get(type(node))
    return OPERATORS.get(type(node)) if choosing is None else choosing.for_node(node)


def term_operator(term: TermNode) -> TermOperator[Any]:
    """Return the operator of a term."""
    return _TERMS[type(term)]


def remembering(node: Node) -> LookingBack[Any]:
    """Return the operator of a condition or term that has a memory."""
    operator = operator_of(cast("Condition", node))
    if operator is not None:
        return operator
    of_term = _TERMS[type(node)]
    assert isinstance(of_term, PastTerm), node
    return of_term


def remembers(term: Term | TermNode) -> bool:
    """Return whether the term itself has a memory."""
    return isinstance(_TERMS.get(type(term)), PastTerm)


def parts_of(node: Condition) -> tuple[Node, ...]:
    """Return the parts of a condition with memories, apart from those of conditions inside it.

    These are the condition itself, or the terms that it compares.
    """
    if isinstance(node, Compare):
        terms = (*terms_in(node.left), *terms_in(node.right))
        return tuple([term for term in terms if isinstance(term, TermNode) and remembers(term)])
    return (node,) if type(node) in OPERATORS else ()


@forms_table.derived
def calls() -> dict[str, Any]:
    """Return the functions that the code of operators and terms calls, by name."""
    aged = [operator.aged for operator in _CHOOSING.values()]
    known: list[Any] = [*OPERATORS.values(), *aged, *_TERMS.values()]
    return {called.__name__: called for each in known for called in each.calls}
