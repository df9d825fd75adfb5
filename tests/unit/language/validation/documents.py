"""A valid condition as JSON, and the violations of any document."""

from typing import Any as Json

from engine.language.diagnostics import ConditionError
from engine.language.limits import Limits
from engine.language.validation.document import condition_from_document

OK: Json = {"leaf": {"fact": "a", "op": "eq", "value": 1}}


def violations_of(document: Json, limits: Limits = Limits()) -> list[tuple[int, str]]:  # noqa: B008
    """Return the code and place of each violation in a document; nothing if there is none."""
    try:
        condition_from_document(document, limits)
    except ConditionError as error:
        return [(entry.code, entry.message.split(": ")[0]) for entry in error.entries]
    return []
