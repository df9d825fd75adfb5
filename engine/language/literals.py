"""Literals: numbers and strings with escapes, common to JSON and the text language."""

import json
import math
import re
from collections.abc import Callable
from typing import NoReturn

from engine.language.limits import Limits

NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"

SURROGATES = "\ud800-\udfff"
"""Surrogates: Python strings can contain them, UTF-8 cannot."""

_STRING_START = rf'"(?:[^"\\\x00-\x1f{SURROGATES}]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}))*'
STRING = rf'{_STRING_START}"'

_STRING_PREFIX = re.compile(_STRING_START)
_SURROGATE = re.compile(f"[{SURROGATES}]")
_ESCAPE = re.compile(
    r"\\(?:u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<half>[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|[0-9a-fA-F]{4})|.)"
)

Fail = Callable[[int, str], NoReturn]
"""Refuses the text at an offset, with a message."""


def is_number(value: object) -> bool:
    """Return whether a value is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_text(value: str) -> bool:
    """Return whether a string contains no surrogates, so that UTF-8 can encode it."""
    return value.isascii() or not _SURROGATE.search(value)


def number_value(literal: str, offset: int, limits: Limits, fail: Fail) -> int | float:
    """Return the value of a well-formed JSON number: an exact integer, or a finite double."""
    if not any(mark in literal for mark in ".eE"):
        if len(literal.lstrip("-")) > limits.digits_max:
            fail(offset, f"expected a number of at most {limits.digits_max} digits")
        return int(literal)
    value = float(literal)
    if not math.isfinite(value):
        fail(offset, "expected a number within the range of a double (about 1.8e308 either way)")
    return value


def string_value(literal: str, offset: int, fail: Fail) -> str:
    """Return the value of a string literal. Refuse it if an escape is an unpaired surrogate."""
    value: str = json.loads(literal)
    if not is_text(value):
        at = next(escape.start() for escape in _ESCAPE.finditer(literal) if escape["half"])
        fail(offset + at, f"expected a whole surrogate pair, got only `{literal[at : at + 6]}`")
    return value


def explain_string(text: str, start: int, fail: Fail) -> NoReturn:
    """Refuse the malformed string that begins at `start`, at its first error."""
    prefix = _STRING_PREFIX.match(text, start)
    assert prefix, "a string begins with its quote"
    at = prefix.end()
    match text[at : at + 1]:
        case "\\":
            fail(at, r"expected one of the escapes `\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`, `\u0000`")
        case "" | "\n" | "\r":
            fail(start, 'expected a closing `"` on the same line')
        case char if char < " ":
            fail(at, f"expected a control character to be written as an escape, here `\\u{ord(char):04x}`")
        case _:
            fail(at, "expected a whole surrogate pair, got half of one")
