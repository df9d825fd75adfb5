"""Parses and validates query strings."""

import re
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from api.schema.envelope import RequestRefusal
from engine.language.condition import Scalar

Q = TypeVar("Q", bound=msgspec.Struct)

PARAMETERS_MAX: Final = 64
"""The maximum number of parameters in a query; no operation takes a quarter of them."""
_SHOWN_CHARS: Final = 80
_WHOLE: Final = re.compile("-?[0-9]+")


def read_query(taken: type[Q], query: bytes) -> Q:
    """Parse a query string into `taken`, each of whose fields is a parameter. Unknown parameters are ignored.

    Raises RequestRefusal 1006 with every defect.
    """
    given: dict[str, str] = {}
    repeated: set[str] = set()
    if query.count(b"&") >= PARAMETERS_MAX:
        raise RequestRefusal(1006, f"the query has more than {PARAMETERS_MAX} parameters")
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
            values[field.name] = _converted(given[name], field.type)
        except msgspec.ValidationError:
            shown = given[name][:_SHOWN_CHARS]
            defects.append(f"{name}: expected {expected(field)}, got `{shown}`")
    if defects:
        raise RequestRefusal(1006, *defects)
    return taken(**values)


def _converted(text: str, type_: Any) -> Any:
    """Return the value of a parameter. Raises msgspec.ValidationError."""
    value = msgspec.convert(text, type_, strict=False)
    if isinstance(value, int) and not _WHOLE.fullmatch(text):
        # msgspec would accept `1e3` and `1.0` as whole numbers.
        raise msgspec.ValidationError(text)
    return value


def read_key(text: str) -> dict[str, Scalar]:
    """Parse the values of keys. Raises RequestRefusal 1006."""
    try:
        return msgspec.json.decode(text, type=dict[str, Scalar])
    except (msgspec.DecodeError, RecursionError):
        said = f"key: expected a JSON object of strings, numbers and booleans, got `{text[:_SHOWN_CHARS]}`"
        raise RequestRefusal(1006, said) from None


def expected(parameter: msgspec.structs.FieldInfo) -> str:
    """Describe the valid values of a parameter."""
    type_info = msgspec.inspect.type_info(parameter.type)
    assert isinstance(type_info, msgspec.inspect.Metadata), "a parameter describes its values"
    assert type_info.extra is not None, "as above"
    return str(type_info.extra["expected"])
