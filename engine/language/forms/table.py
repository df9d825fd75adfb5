"""The table of all forms of a condition, and what can be told of any condition by its form.

The parser, the printer, the JSON reader and writer, the validator and the messages all read it. Predicates,
connectives and `per` are entered here. An operator that looks back enters its forms when its file in
`engine.evaluation.operators` is imported, which importing `engine` does.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final, TypeVar, get_args

from engine.language import condition as language
from engine.language.condition import Condition, FactArg, ScaledFact
from engine.language.forms.form import Content, Form, Shape
from engine.language.forms.shapes import INNER, WHERE

FORMS: Final[dict[str, Form]] = {}
"""The forms, by their names in JSON, in the order of the closed union `Condition`."""

FORM_OF: Final[dict[type, Form]] = {}
"""The same, by their classes."""

_Made = TypeVar("_Made")
_forgets: Final[list[Callable[[], None]]] = []


def derived(make: Callable[[], _Made]) -> Callable[[], _Made]:
    """Make a function keep its result until the table changes."""
    kept = cache(make)
    _forgets.append(kept.cache_clear)
    return kept


def enter(forms: Iterable[Form]) -> None:
    """Add forms. Their names and classes must be new."""
    for form in forms:
        assert form.name not in FORMS, f"two forms are named {form.name}"
        assert form.make not in FORM_OF, f"two forms make {form.make.__name__}"
        FORMS[form.name] = form
    _update()


def remove(forms: Iterable[Form]) -> None:
    """Undo `enter`."""
    for form in forms:
        del FORMS[form.name]
    _update()


def _update() -> None:
    union = get_args(Condition)
    places = {make: place for place, make in enumerate(union)}
    ordered = sorted(FORMS.values(), key=lambda form: places.get(form.make, len(union)))
    FORMS.clear()
    FORMS.update({form.name: form for form in ordered})
    FORM_OF.clear()
    FORM_OF.update({form.make: form for form in ordered})
    for forget in _forgets:
        forget()


def first_form(shape: Shape, value: Content | None = None, *, looks_before: bool = False) -> Form:
    """Return the first form of a shape, of those that compare such a value, or that look before the event."""
    return next(
        form
        for form in FORMS.values()
        if form.shape is shape and form.fields.get("value") is value and form.looks_before is looks_before
    )


def placed_children(condition: Condition) -> Iterator[tuple[str, Condition]]:
    """Yield the conditions directly inside a condition, each with its path in JSON, such as `since.left`."""
    form = FORM_OF[type(condition)]
    for field, content in form.fields.items():
        path = form.name if form.is_bare else f"{form.name}.{field}"
        value = getattr(condition, field)
        if content is Content.CONDITION and value is not None:
            yield path, value
        elif content is Content.CONDITIONS:
            yield from ((f"{path}[{index}]", member) for index, member in enumerate(value))


def facts_of(condition: Condition) -> list[str]:
    """Return the facts that a condition itself reads, not those of conditions inside it."""
    facts: list[str] = []
    for field, content in FORM_OF[type(condition)].fields.items():
        value = getattr(condition, field)
        if content is Content.NAME:
            facts.append(value)
        elif content is Content.ARGUMENTS:
            facts += [argument.fact for argument in value if isinstance(argument, FactArg)]
        elif isinstance(value, ScaledFact):
            facts.append(value.fact)
    return facts


enter(
    [
        Form(
            make=language.Leaf,
            name="leaf",
            fields={"fact": Content.NAME, "op": Content.LEAF_OP, "value": Content.OPERAND},
            text="A fact compared with a constant.",
        ),
        Form(
            make=language.Ref,
            name="ref",
            fields={"fact": Content.NAME, "op": Content.REF_OP, "reference": Content.NAME},
            text="A fact compared with another.",
        ),
        Form(
            make=language.InRelation,
            name="in_relation",
            fields={"args": Content.ARGUMENTS, "relation": Content.RELATION},
            text="The tuple of the arguments is in the relation. An argument is looked up by name, or is a "
            "literal.",
        ),
        Form(make=language.All, name="all", fields={"members": Content.CONDITIONS}, is_bare=True),
        Form(make=language.Any, name="any", fields={"members": Content.CONDITIONS}, is_bare=True),
        Form(make=language.Not, name="not", fields=INNER, is_bare=True),
        Form(
            make=language.Keyed,
            name="keyed",
            fields=INNER | {"key": Content.NAME} | WHERE,
            optional=frozenset(WHERE),
            text="Inner, over the events whose key has the same value as now.\n\n`where` is an addition to "
            "the interface: only events at which it is true belong to the history.",
        ),
    ]
)
