"""The bounds on patterns, against real rules: none of these is refused."""

import pytest

from engine.evaluation.facts.pattern_work import PatternWork
from engine.evaluation.requirements import requirements_of
from engine.evaluation.rule_book.budgets import Budgets
from engine.language.condition import Any, Leaf
from engine.language.json.writer import condition_to_document
from engine.language.limits import DEFAULT_LIMITS
from engine.language.validation.document import condition_from_document
from tests.worlds.sigma_rules import sigma_rules

LEAVES_MAX = 1_000
"""One rule has 4 432 values, more than the conditions that a condition may have; it is split."""


@pytest.mark.storm
def test_every_rule_is_taken_as_one_condition_and_all_of_them_by_one_detector() -> None:
    rules = sigma_rules()
    assert len(rules) > 3_100
    budget = Budgets(DEFAULT_LIMITS, {}).patterns
    for rule in rules:
        leaves = [Leaf(field or "message", "matches", pattern) for field, pattern in rule.patterns]
        for at in range(0, len(leaves), LEAVES_MAX):
            whole = Any(tuple(leaves[at : at + LEAVES_MAX]))
            condition = condition_from_document(condition_to_document(whole))
            budget.add({pattern for _, pattern in requirements_of(condition).patterns})
    assert budget.taken < 0.75 * DEFAULT_LIMITS.detector_preparation_max


@pytest.mark.storm
def test_the_longest_command_line_that_windows_takes_is_tried_against_all_of_them() -> None:
    work = PatternWork(DEFAULT_LIMITS)
    for rule in sigma_rules():
        for field, pattern in rule.patterns:
            work.add(field or "message", pattern)
    words = r'"C:\Windows\System32\cmd.exe" /c powershell -enc SQBFAFgA & reg add HKLM\SOFTWARE\Run /v x '
    text = (words * 100)[:8_191]
    fields = {"CommandLine": text, "ScriptBlockText": text, "Image": text[:260], "ParentImage": text[:260]}
    assert work.begin(fields, {}) == frozenset()
    assert work.bounded
