"""The JSON Schemas of conditions and terms, generated from the tables of their forms."""

from collections.abc import Mapping
from typing import Any, Final

from engine.language.diagnostics import enumerated
from engine.language.forms.form import SCALED_FACT, Content, Form
from engine.language.forms.table import FORMS
from engine.language.forms.terms import PARTS, TERM_FORMS
from engine.language.operators import (
    COMPARISONS,
    COUNT_MAX,
    MIN_AGE_RATIO,
    OPERANDS_MAX,
    OPERANDS_MIN,
    OPERATORS,
)

_CONDITION: Final = {"$ref": "#/components/schemas/Condition"}
_TERM: Final = {"$ref": "#/components/schemas/Term"}
_NUMBER: Final = {"type": "number"}
_SCALARS: Final = ["string", "number", "boolean"]


def _one_of(words: Any) -> dict[str, Any]:
    return {"enum": sorted(words)}


_SCHEMAS: Final[dict[Content, dict[str, Any]]] = {
    Content.CONDITION: _CONDITION,
    Content.CONDITIONS: {"type": "array", "items": _CONDITION, "minItems": 1},
    Content.NAME: {
        "description": "A name of `event.fields`, or `$` and one of `vars`.",
        "type": "string",
        "minLength": 1,
    },
    Content.RELATION: {"type": "string", "minLength": 1},
    Content.ARGUMENTS: {
        "type": "array",
        "items": {
            "anyOf": [*({"type": each} for each in _SCALARS), {"$ref": "#/components/schemas/FactArgument"}]
        },
    },
    Content.LEAF_OP: _one_of(OPERATORS),
    Content.REF_OP: _one_of(name for name, operator in OPERATORS.items() if operator.compares_facts),
    Content.OPERAND: {
        "description": "What the operator takes: a string, number, boolean, or an array of strings or "
        "numbers.",
        "anyOf": [
            {"type": _SCALARS},
            {"type": "array", "items": {"type": "string"}},
            {"type": "array", "items": _NUMBER},
        ],
    },
    Content.WINDOW: {
        "description": "Seconds; fractions count to the microsecond.",
        "type": "number",
        "minimum": 0,
    },
    Content.MIN_AGE: {
        "description": "An addition to the interface: only events at least so many seconds old count. "
        f"Less than `window_secs`, and at most {MIN_AGE_RATIO} times the difference to it.",
        "type": "number",
        "minimum": 0,
    },
    Content.BOUNDARY: _one_of(("weak", "strong")),
    Content.COMPARISON: _one_of(COMPARISONS),
    Content.COUNT: {"type": "integer", "minimum": 0, "maximum": COUNT_MAX},
    Content.AMOUNT: {"anyOf": [_NUMBER, {"$ref": "#/components/schemas/ScaledFact"}]},
    Content.FACTOR: _NUMBER,
    Content.TERM: _TERM,
    Content.TERMS: {"type": "array", "items": _TERM, "minItems": OPERANDS_MIN, "maxItems": OPERANDS_MAX},
    Content.TWO_TERMS: {"type": "array", "items": _TERM, "minItems": 2, "maxItems": 2},
    Content.PART: _one_of(PARTS),
    Content.ZONE: {
        "description": "A name of the time zone database, such as `Europe/Berlin`.",
        "type": "string",
    },
    Content.NETWORKS: {
        "anyOf": [
            {
                "description": "IP addresses, or networks in CIDR form such as `10.0.0.0/8`.",
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
            },
            {"$ref": "#/components/schemas/NetworksOf"},
        ]
    },
    Content.EARLIER: {"description": "The event now does not count.", "const": True},
}
"""The schema of each content of a field."""


def condition_schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas of all forms, of their parts, and of `Condition`, by name."""
    objects = [form for form in (*FORMS.values(), *TERM_FORMS.values()) if not form.is_bare]
    additions = enumerated([f"`{form.name}`" for form in FORMS.values() if form.is_addition], "and")
    text = f"A condition: an object with exactly one of these members; {additions} are additions."
    return {
        **{form.make.__name__: _object(form.make.__name__, _text(form), _fields(form)) for form in objects},
        "FactArgument": _object(
            "FactArgument", "An argument looked up by its name.", {"fact": (Content.NAME, True)}
        ),
        "NetworksOf": _object(
            "NetworksOf",
            "The networks that are the tuples of one text of a relation.",
            {"relation": (Content.RELATION, True)},
        ),
        "ScaledFact": _object(
            "ScaledFact",
            "The value of a fact at the event, times a number, which is 1 by default.",
            {name: (content, name == "fact") for name, content in SCALED_FACT.items()},
        ),
        "Condition": _one_member("Condition", text, FORMS),
        "Term": {
            "title": "Term",
            "description": "An operand of `compare`: a value, or what is computed from the event and those "
            "before it.",
            "anyOf": [{"type": _SCALARS}, {"$ref": "#/components/schemas/ComputedTerm"}],
        },
        "ComputedTerm": _one_member(
            "ComputedTerm", "A term that is an object, with exactly one of these members.", TERM_FORMS
        ),
    }


def _one_member(title: str, text: str, forms: Mapping[str, Form]) -> dict[str, Any]:
    """Return the schema of an object whose only member has the name of one of these forms."""
    return {
        "title": title,
        "description": text,
        "type": "object",
        "properties": {form.name: _member(form) for form in forms.values()},
        "required": [],
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def _member(form: Form) -> dict[str, Any]:
    if not form.is_bare:
        return {"$ref": f"#/components/schemas/{form.make.__name__}"}
    [content] = form.fields.values()
    return _SCHEMAS[content]


def _fields(form: Form) -> dict[str, tuple[Content, bool]]:
    """Return the content of each field, and whether it is required."""
    return {name: (content, name not in form.optional) for name, content in form.fields.items()}


def _object(title: str, text: str, fields: dict[str, tuple[Content, bool]]) -> dict[str, Any]:
    return {
        "title": title,
        "description": text,
        "type": "object",
        "properties": {name: _SCHEMAS[content] for name, (content, _) in fields.items()},
        "required": [name for name, (_, is_required) in fields.items() if is_required],
        "additionalProperties": False,
    }


def _text(form: Form) -> str:
    if not form.is_addition:
        return form.text
    return f"An addition to the interface: {form.text[0].lower()}{form.text[1:]}"
