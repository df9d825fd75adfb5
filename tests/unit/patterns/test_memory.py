"""The states that RE2 builds for hostile texts take no more memory than engine/ERRORS.md says."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase, digits

import pytest

from engine.language.limits import DEFAULT_LIMITS
from engine.patterns.compiled_pattern import compile_pattern
from engine.patterns.fact_patterns import FactPatterns

BYTES_A_UNIT_MAX = 125
COUNT = 100


NUMBERS = "".join(f"{number:03}" for number in range(COUNT))


def drawn(letters: str, length: int, seed: int) -> str:
    return "".join(random.Random(seed).choices(letters, k=length))


SHAPES: dict[str, Callable[[int], tuple[str, str]]] = {
    "harmless": lambda number: (f"a.{{7}}{number:03}", drawn("ab", 3_000, number % 4) + NUMBERS),
    "exploding": lambda number: (f"a.{{9}}{number:03}", drawn("ab", 3_000, number % 4) + NUMBERS),
    "literals": lambda number: (drawn(ascii_lowercase + digits, 900, number),) * 2,
}
"""Expressions, each with a text for which RE2 builds its states."""


def bytes_a_unit(shape: str) -> float:
    """Return how much the process grows while texts are searched for a hundred expressions of a shape."""
    expressions, texts = zip(*map(SHAPES[shape], range(COUNT)), strict=True)
    together = FactPatterns(DEFAULT_LIMITS)
    for expression in expressions:
        together.add(expression)
    before = resident_bytes()
    for each in sorted(set(texts)):
        together.found_among(expressions, each)
    units = sum(compile_pattern(expression, DEFAULT_LIMITS).preparation for expression in expressions)
    return (resident_bytes() - before) / units


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


@pytest.mark.storm
@pytest.mark.parametrize("shape", SHAPES)
def test_the_states_of_expressions_take_what_the_documentation_says(shape: str) -> None:
    # In a process of its own, no memory is used again.
    command = [sys.executable, "-m", __spec__.name, shape]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # With far less, the texts would not have made RE2 build the states.
    assert BYTES_A_UNIT_MAX / 5 < float(done.stdout) < BYTES_A_UNIT_MAX


if __name__ == "__main__":
    print(bytes_a_unit(sys.argv[1]))
