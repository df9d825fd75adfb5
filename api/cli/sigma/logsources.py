"""Conditions for log sources: which events a rule is about, as the user maps it."""

from collections.abc import Sequence
from typing import NamedTuple

from sigma.rule.logsource import SigmaLogSource
from sigma.types import SigmaString

from api.cli.sigma.detections import any_of
from api.cli.sigma.values import alternatives
from engine.language.condition import Condition


class Mapping(NamedTuple):
    """What events of a log source have in a field. None stands for any product, category or service."""

    product: str | None
    category: str | None
    service: str | None
    condition: Condition

    def covers(self, source: SigmaLogSource) -> bool:
        """Return whether rules for this log source are about such events only."""
        return all(
            wanted is None or wanted == (given or "").lower()
            for wanted, given in (
                (self.product, source.product),
                (self.category, source.category),
                (self.service, source.service),
            )
        )


def read_mapping(text: str) -> Mapping:
    """Read `PRODUCT/CATEGORY/SERVICE:FIELD=VALUE|VALUE…`. Raises ValueError.

    A part that is empty, `*` or left out at the end stands for any. A value is one of Sigma's.
    """
    source, colon, test = text.partition(":")
    field, equals, values = test.partition("=")
    parts = [None if part in ("", "*") else part.lower() for part in source.split("/")]
    if not (colon and equals and field and any(parts)) or len(parts) > len(SOURCE_PARTS):
        raise ValueError(f"expected {'/'.join(SOURCE_PARTS)}:FIELD=VALUE, got `{text}`")
    product, category, service = [*parts, None, None][: len(SOURCE_PARTS)]
    each = [one for value in values.split("|") for one in alternatives(field, SigmaString(value))]
    return Mapping(product, category, service, any_of(each))


SOURCE_PARTS = ("PRODUCT", "CATEGORY", "SERVICE")


def conditions_for(source: SigmaLogSource, mappings: Sequence[Mapping]) -> list[Condition]:
    """Return the conditions of all mappings that cover a log source."""
    return [mapping.condition for mapping in mappings if mapping.covers(source)]
