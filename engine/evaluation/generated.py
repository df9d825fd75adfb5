"""The basis of generated functions: their globals, their layout, and their compilation."""

import linecache
from collections.abc import Iterable
from functools import lru_cache
from itertools import count
from math import inf, nan
from types import CodeType
from typing import Any, Final

from engine.evaluation.facts.relations import address
from engine.evaluation.facts.values import (
    KEY_CHARS_MAX,
    MOST_DOUBLED,
    double,
    equal,
    key_of,
    part_of_key,
    scaled,
    slice_key_of,
)
from engine.evaluation.operators.table import calls
from engine.evaluation.stamps import (
    LATEST,
    LATEST_US,
    MICROSECOND,
    MILLISECOND,
    NEVER,
    NUMBER_BITS,
    UNSET,
    time_of,
)
from engine.language.durations import PRODUCT_MAX, ROUNDING, microseconds
from engine.language.forms.table import derived
from engine.language.operators import LARGEST

_SHARED: Final[dict[str, Any]] = {
    "KEY_CHARS_MAX": KEY_CHARS_MAX,
    "LATEST": LATEST,
    "LATEST_US": LATEST_US,
    "INFINITE": inf,
    "LEAST": -int(LARGEST),
    "LEAST_DOUBLED": -MOST_DOUBLED,
    "MICROSECOND": MICROSECOND,
    "MILLISECOND": MILLISECOND,
    "MOST": int(LARGEST),
    "MOST_DOUBLED": MOST_DOUBLED,
    "NAN": nan,
    "NEVER": NEVER,
    "NOTHING": {},
    "NUMBER_BITS": NUMBER_BITS,
    "ORDERED": frozenset({str, int, float}),
    "PRODUCT_MAX": PRODUCT_MAX,
    "PRODUCT_MIN": -PRODUCT_MAX,
    "ROUNDING": ROUNDING,
    "SCALARS": frozenset({str, int, float, bool}),
    "UNSET": UNSET,
    "UNSET_US": time_of(UNSET),
    "address": address,
    "double": double,
    "equal": equal,
    "key_of": key_of,
    "microseconds": microseconds,
    "part_of_key": part_of_key,
    "scaled": scaled,
    "slice_key_of": slice_key_of,
}

SOURCES_MAX: Final = 256
"""The maximum number of cached sources, with their code."""

_numbers: Final = count(1)


@derived
def _globals() -> dict[str, Any]:
    return _SHARED | calls()


def indented(lines: Iterable[str], depth: int) -> str:
    """Join statements for a template, indented by `depth`. The template indents the first one."""
    return ("\n" + " " * depth).join(lines) or "pass"


def function(source: str, given: Iterable[tuple[str, Any]]) -> Any:
    """Return the result of the `bind` that a source defines, for these values of its parameters."""
    names, values = [], []
    for name, value in given:
        names.append(name)
        values.append(value)
    made: dict[str, Any] = {}
    exec(_compiled(f"def bind({', '.join(names)}):\n{source}"), _globals(), made)  # noqa: S102 -- our own
    return made["bind"](*values)


@lru_cache(maxsize=SOURCES_MAX)
def _compiled(source: str) -> CodeType:
    """Compile a source once. Tracebacks and profilers find its lines in `linecache`."""
    number = next(_numbers)
    name = f"<rules {number}>"
    linecache.cache.pop(f"<rules {number - SOURCES_MAX}>", None)
    # Without a time, `linecache.checkcache` keeps the lines.
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    return compile(source, name, "exec")
