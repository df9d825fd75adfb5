"""Counts the searches for many expressions together, and the compilations that they need."""

import pytest

from engine.patterns import sets
from engine.patterns.sets import PatternSets


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The texts that were searched for many expressions together."""
    texts: list[bytes] = []
    real = PatternSets.candidates

    def noted(self: PatternSets, text: bytes) -> dict[str, bool]:
        texts.append(text)
        return real(self, text)

    monkeypatch.setattr(PatternSets, "candidates", noted)
    return texts


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of expressions in the sets that were compiled."""
    sizes: list[int] = []
    real = sets.compiled_set

    def noted(expressions: list[str], memory_bytes_max: int) -> object:
        sizes.append(len(expressions))
        return real(expressions, memory_bytes_max)

    monkeypatch.setattr(sets, "compiled_set", noted)
    return sizes
