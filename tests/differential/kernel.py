"""Lets a detector evaluate its rules with the kernel of the third edition, which is to replace the present one."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from engine.evaluation.kernel import rule_set
from engine.evaluation.rule_book import rule_book
from engine.language.limits import Limits


class RuleSet(rule_set.RuleSet):
    """The kernel's rules in place of those of a detector. Whatever else asks about state fails."""

    answer_bytes_worst = 0

    def __init__(self, state: object, limits: Limits) -> None:  # noqa: ARG002 -- the other one's
        super().__init__(limits)

    def remove(self, priority: int, now_us: int = 0) -> None:  # noqa: ARG002 -- the other one's
        super().remove(priority)

    def choose(self, *_: Any, **__: Any) -> None:
        """There is one way to evaluate rules."""


@contextlib.contextmanager
def on_kernel() -> Iterator[None]:
    """Have the detectors that are made meanwhile evaluate on the kernel."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rule_book, "RuleSet", RuleSet)
        yield
