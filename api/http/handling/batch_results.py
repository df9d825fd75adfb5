"""What the results of a batch say together."""

from typing import Final

import msgspec

from api.schema.envelope import EntryOfReply
from engine.language.diagnostics import Entry, Refusal

ERRORS_MAX: Final = 20
"""How many errors are told."""


class _Result(msgspec.Struct):
    errors: list[EntryOfReply] = []


class _Results(msgspec.Struct):
    results: list[_Result]


def check_accepted(result: bytes) -> None:
    """Raise Refusal with the first error of a batch and those of its kind, if no event was accepted."""
    if b'"errors":' not in result:
        return
    refused = [one.errors for one in msgspec.json.decode(result, type=_Results).results]
    if not all(refused):
        return
    errors = [(place, error) for place, of_event in enumerate(refused) for error in of_event]
    kind = errors[0][1].code // 10
    same = [(place, error) for place, error in errors if error.code // 10 == kind][:ERRORS_MAX]
    raise Refusal(*[Entry(error.code, f"events[{place}]: {error.message}") for place, error in same])
