"""What generated functions have in common: their names, statements and how they become code."""

from collections.abc import Callable, Iterable, Sequence
from math import nan
from typing import Any, Final

from engine.evaluation.facts.values import dig, equal, key_of, part_of_key, scaled, slice_key_of, split_name
from engine.evaluation.memory import NEVER
from engine.evaluation.plan.ir import Abstraction
from engine.language.microseconds import CLEAR_OF_HALVES, PRODUCT_MAX, microseconds
from engine.language.operators import LARGEST

_GLOBALS: Final[dict[str, Any]] = {
    "LEAST": -int(LARGEST),
    "MOST": int(LARGEST),
    "NAN": nan,
    "NEAR": CLEAR_OF_HALVES,
    "NEVER": NEVER,
    "NOTHING": {},
    "PRODUCT_MAX": PRODUCT_MAX,
    "dig": dig,
    "equal": equal,
    "key_of": key_of,
    "microseconds": microseconds,
    "part_of_key": part_of_key,
    "scaled": scaled,
    "slice_key_of": slice_key_of,
}


def numbered(letter: str, numbers: Iterable[int]) -> str:
    """Return variables with these numbers, each followed by a comma."""
    return "".join(f"{letter}{number}, " for number in numbers)


def names_given(parts: Abstraction) -> str:
    """Return the variables that take the names of facts, the steps of dotted names, and look-ups."""
    return "".join(
        (f"n{number}, steps{number}, " if split_name(name).steps else f"n{number}, ")
        + (f"l{number}, " if number in parts.looked_up else "")
        for number, name in enumerate(parts.facts)
    )


def block(lines: Sequence[str], depth: int) -> str:
    """Join statements for a template, indented by `depth`; the template indents the first."""
    return ("\n" + " " * depth).join(lines) or "pass"


def factory(source: str) -> Callable[[list[Any]], Any]:
    """Return the function that binds names and tables to the code."""
    namespace: dict[str, Any] = dict(_GLOBALS)
    exec(compile(source, "<rules>", "exec"), namespace)  # noqa: S102 -- the source is this module's own
    bind: Callable[[list[Any]], Any] = namespace["bind"]
    return bind
