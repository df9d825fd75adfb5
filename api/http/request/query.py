"""The query of a request: the parameters that its operation takes, read and checked."""

from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from api.schema.envelope import RequestRefusal

Q = TypeVar("Q", bound=msgspec.Struct)

_SHOWN_CHARS: Final = 80


def read_query(taken: type[Q], query: bytes) -> Q:
    """Read a query string. Parameters that the operation does not take are ignored.

    Each field of `taken` is a parameter; its `expected` says what it may be. Raises RequestRefusal 1006 with
    every defect.
    """
    given: dict[str, str] = {}
    repeated: set[str] = set()
    for name, text in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in given:
            repeated.add(name)
        given[name] = text
    values: dict[str, Any] = {}
    defects = []
    for field in msgspec.structs.fields(taken):
        name = field.encode_name
        if name not in given:
            continue
        if name in repeated:
            defects.append(f"{name}: expected once, came more than once")
            continue
        try:
            values[field.name] = msgspec.convert(given[name], field.type, strict=False)
        except msgspec.ValidationError:
            shown = given[name][:_SHOWN_CHARS]
            defects.append(f"{name}: expected {expected(field)}, got `{shown}`")
    if defects:
        raise RequestRefusal(1006, *defects)
    return taken(**values)


def expected(parameter: msgspec.structs.FieldInfo) -> str:
    """Say what a parameter may be."""
    told = msgspec.inspect.type_info(parameter.type)
    assert isinstance(told, msgspec.inspect.Metadata), "a parameter says what it may be"
    assert told.extra is not None, "as above"
    return str(told.extra["expected"])
