"""A condition as JSON, and what it costs."""

from typing import Annotated, Any

from msgspec import Meta, Struct

Condition = Annotated[Any, Meta(extra_json_schema={"$ref": "#/components/schemas/Condition"})]
"""The OpenAPI document has the schema, which `openapi.condition_schemas` makes."""


class Memory(Struct):
    """What a condition remembers for each key."""

    per: list[str]
    """The keys, outermost first; none for all events together."""
    entries_max: int
    """The most times, values or parts of a sum."""


class CostEstimate(Struct):
    """What a condition may cost as a rule of its own, roughly."""

    event_ns: int
    """Nanoseconds for each event at which the rule is evaluated."""
    memories: list[Memory]
