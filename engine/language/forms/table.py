"""The table of all forms of conditions, and what follows from the form of any condition.

The parser, the printer, the JSON reader and writer, the validator and the messages all use it. Predicates,
connectives and `per` are registered here. An operator that looks back registers its forms when its file in
`engine.evaluation.operators` is imported, which importing `engine` does.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final, TypeVar, cast, get_args

from engine.language import condition as language
from engine.language.condition import Condition, FactArg, ScaledFact
from engine.language.forms.form import INNER, TERM_CONTENTS, WHERE, Content, Form, Shape
from engine.language.forms.terms import TERM_FORM_OF
from engine.language.nodes import ConditionNode, Node, TermNode

FORMS: Final[dict[str, Form]] = {}
"""The forms by their names in JSON, in the order of the closed union `Condition`."""

FORM_OF: Final[dict[type, Form]] = {}
"""The same forms by their classes."""

FORM_OF_NODE: Final[dict[type, Form]] = {}
"""The forms of conditions and terms by their classes."""

_Made = TypeVar("_Made")
_forgets: Final[list[Callable[[], None]]] = []


def derived(make: Callable[[], _Made]) -> Callable[[], _Made]:
    """Cache the result of a function until the table changes."""
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
    FORM_OF_NODE.clear()
    FORM_OF_NODE.update(TERM_FORM_OF | FORM_OF)
    for forget in _forgets:
        forget()


def first_form(shape: Shape, value: Content | None = None, *, looks_before: bool = False) -> Form:
    """Return the first form of a shape that compares such a value, and looks only before the event or not."""
    return next(
        form
        for form in FORMS.values()
        if form.shape is shape and form.fields.get("value") is value and form.looks_before is looks_before
    )


def placed_children(node: Node) -> Iterator[tuple[str, Condition]]:
    """Yield the conditions directly inside a condition or a term, each with its path in JSON.

    Examples of paths are `since.left` and `compare.right.add[1].count.inner`.
    """
    for path, value in _placed_members(node):
        if isinstance(value, ConditionNode):
            yield path, cast("Condition", value)
        elif isinstance(value, TermNode):
            yield from ((f"{path}.{step}", child) for step, child in placed_children(value))


def placed_terms(node: Node) -> Iterator[tuple[str, TermNode]]:
    """Yield the terms inside a condition or a term, at any depth, each with its path in JSON.

    Terms inside conditions that a term observes belong to those conditions.
    """
    for path, value in _placed_members(node):
        if isinstance(value, TermNode):
            yield path, value
            yield from ((f"{path}.{step}", term) for step, term in placed_terms(value))


def _placed_members(node: Node) -> Iterator[tuple[str, object]]:
    """Yield the value of each field, of an array each element, with its path in JSON."""
    form = FORM_OF_NODE[type(node)]
    for field in form.fields:
        path = form.name if form.is_bare else f"{form.name}.{field}"
        value = getattr(node, field)
        if isinstance(value, tuple):
            yield from ((f"{path}[{index}]", element) for index, element in enumerate(value))
        else:
            yield path, value


def facts_of(node: Node) -> list[str]:
    """Return the facts that a condition or a term itself reads, without those of conditions inside it.

    The facts of terms include those of other events, as in `prev(x)`.
    """
    facts: list[str] = [language.STRINGS] if isinstance(node, language.Anywhere) else []
    for field, content in FORM_OF_NODE[type(node)].fields.items():
        value = getattr(node, field)
        if content is Content.NAME:
            facts.append(value)
        elif content is Content.ARGUMENTS:
            facts += [argument.fact for argument in value if isinstance(argument, FactArg)]
        elif isinstance(value, ScaledFact):
            facts.append(value.fact)
        elif content in TERM_CONTENTS:
            terms = value if isinstance(value, tuple) else (value,)
            facts += [fact for term in terms if isinstance(term, TermNode) for fact in facts_of(term)]
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
        Form(
            make=language.InNetwork,
            name="in_network",
            fields={"fact": Content.NAME, "networks": Content.NETWORKS},
            is_addition=True,
            text="The fact is an IPv4 or IPv6 address that lies in one of the networks: addresses or "
            "networks in CIDR form, or those of a relation.",
        ),
        Form(
            make=language.Some,
            name="some",
            fields={"fact": Content.NAME} | INNER,
            is_addition=True,
            text="The fact is an array with an element for which inner is true. Inner looks names up in the "
            "element if that is an object; the name `it` is the value of any other element.",
        ),
        Form(
            make=language.Anywhere,
            name="anywhere",
            fields=INNER,
            is_bare=True,
            is_addition=True,
            text="Some string of the event meets the condition inside, in which the name `it` is the string. "
            "Strings in arrays and nested objects count, names of fields do not.",
        ),
        Form(
            make=language.Compare,
            name="compare",
            fields={"left": Content.TERM, "op": Content.COMPARISON, "right": Content.TERM},
            is_addition=True,
            text="Both terms have a value, and these compare so: numbers by size, strings by code point, and "
            "by equality any.",
        ),
        Form(make=language.All, name="all", fields={"members": Content.CONDITIONS}, is_bare=True),
        Form(make=language.Any, name="any", fields={"members": Content.CONDITIONS}, is_bare=True),
        Form(make=language.Not, name="not", fields=INNER, is_bare=True),
        Form(
            make=language.Keyed,
            name="keyed",
            fields=INNER | {"key": Content.NAME} | WHERE,
            optional=frozenset(WHERE),
            looks_back=True,
            text="Inner, over the events whose key has the same value as now.\n\n`where` is an addition to "
            "the interface: only events at which it is true belong to the history.",
        ),
    ]
)
