"""Lets detectors evaluate their rules with the kernel that is to replace the present one."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from engine.evaluation.kernel import rule_set
from engine.evaluation.rule_book import rule_book
from engine.language.limits import Limits


class RuleSet(rule_set.RuleSet):
    """The kernel's rules in place of those of a detector. Whatever else asks about their state fails."""

    answer_bytes_worst = 0

    def __init__(self, state: Any, limits: Limits) -> None:
        super().__init__(limits)
        state.settle = self.histories.settle

    def remove(self, priority: int, now_us: int = 0) -> None:
        super().remove(priority)

    def choose(self, *_: Any, **__: Any) -> None:
        """All rules are evaluated by one function."""


class IndexedRuleSet(RuleSet):
    """The same, where rules are indexed from the first one on."""

    def choose(self, *_: Any, **__: Any) -> None:
        if self.members is None:
            self.index()


class TurningRuleSet(RuleSet):
    """The same, where rules are indexed and not indexed in turns, at each change of a rule."""

    def choose(self, *_: Any, **__: Any) -> None:
        if self.members is None:
            self.index()
        else:
            self.fuse()


DISPATCHES = {"fused": RuleSet, "indexed": IndexedRuleSet, "in turns": TurningRuleSet}


@contextlib.contextmanager
def on_kernel(dispatch: str) -> Iterator[None]:
    """Have the detectors that are made meanwhile evaluate on the kernel."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rule_book, "RuleSet", DISPATCHES[dispatch])
        yield
