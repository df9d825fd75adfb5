"""The table of all operators, by the types of their nodes."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from engine.evaluation.operators.interface import Operator
from engine.language.condition import Condition
from engine.language.forms import table as forms_table
from engine.language.forms.form import Form

_BY_TYPE: Final[dict[type, Operator[Any]]] = {}

_Made = TypeVar("_Made", bound=Operator[Any])


def evaluates(*forms: Form) -> Callable[[type[_Made]], type[_Made]]:
    """Enter the decorated operator. The forms of its nodes become a part of the language."""

    def entered(made: type[_Made]) -> type[_Made]:
        _BY_TYPE.update(dict.fromkeys((form.make for form in forms), made()))
        forms_table.enter(forms)
        return made

    return entered


def remove(forms: Sequence[Form]) -> None:
    """Undo what `evaluates` has entered."""
    for form in forms:
        del _BY_TYPE[form.make]
    forms_table.remove(forms)


def operator_of(node: Condition) -> Operator[Any] | None:
    """Return the operator of a node, or None if it does not look back."""
    found = _BY_TYPE.get(type(node))
    return None if found is None else found.for_node(node)


@forms_table.derived
def calls() -> dict[str, Any]:
    """Return what the code of operators calls, by name."""
    return {called.__name__: called for each in _BY_TYPE.values() for called in each.calls}
