"""The work of preparing patterns is bounded, and what was stored before still loads."""

import json
from collections.abc import Callable

import pytest

from engine import Detector, Limits
from engine.language.diagnostics import Refusal
from engine.language.limits import DEFAULT_LIMITS
from engine.language.text.parser import parse
from engine.language.validation import constants
from engine.language.validation.document import condition_from_stored
from engine.patterns import compiled_pattern as patterns
from engine.patterns import sets
from engine.patterns.compiled_pattern import REFUSED_PREPARATION, compile_pattern
from engine.patterns.fact_patterns import TRIED_SINGLY_MAX

COSTLY = [f"x{number}[ab].{{20}}c" for number in range(50)]
WORK = [compile_pattern(pattern, DEFAULT_LIMITS).preparation for pattern in COSTLY]


def any_of(found: list[str]) -> str:
    return " or ".join(f"t matches '{pattern}'" for pattern in found)


def errors(work: Callable[[], object]) -> list[tuple[int, str]]:
    with pytest.raises(Refusal) as refused:
        work()
    return [(entry.code, entry.message) for entry in refused.value.entries]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The patterns that are compiled, in order."""
    seen: list[str] = []
    judge = constants.judged_pattern

    def noted(pattern: str, limits: Limits) -> object:
        seen.append(pattern)
        return judge(pattern, limits)

    monkeypatch.setattr(constants, "judged_pattern", noted)
    return seen


def test_a_condition_whose_patterns_take_too_much_work_is_refused_at_the_first_that_is_too_much(
    judged: list[str],
) -> None:
    limits = Limits(condition_preparation_max=sum(WORK[:10]))
    parse(any_of(COSTLY[:10]), limits)
    less = Limits(condition_preparation_max=sum(WORK[:10]) - 1)
    assert len(errors(lambda: parse(any_of(COSTLY[:10]), less))) == 1
    judged.clear()
    ((code, message),) = errors(lambda: parse(any_of(COSTLY), limits))
    assert code == 1302
    assert message.startswith(
        "any[10].leaf.value: the regular expression is refused: to compile it and those "
    )
    assert judged == COSTLY[:11]


def test_what_is_refused_counts_too_so_that_refusals_are_not_free(judged: list[str]) -> None:
    limits = Limits(condition_preparation_max=5 * REFUSED_PREPARATION)
    refused = [f"a{{{number}}}({{" for number in range(900)]
    found = errors(lambda: parse(any_of(refused), limits))
    assert judged == refused[:6]
    assert {code for code, _ in found} == {1302}
    assert len(found) == 6


@pytest.mark.slow
def test_the_worst_text_of_64_kib_takes_no_more_than_the_bound_and_one_pattern(judged: list[str]) -> None:
    unit = "[ab].{30}c"
    found = [f"{unit}{number}" for number in range(1_900)]
    assert len(any_of(found)) <= DEFAULT_LIMITS.text_bytes_max
    errors(lambda: parse(any_of(found)))
    spent = sum(compile_pattern(pattern, DEFAULT_LIMITS).preparation for pattern in judged[:-1])
    assert spent <= DEFAULT_LIMITS.condition_preparation_max
    assert len(judged) < 400


def test_what_was_stored_before_the_bounds_were_as_they_are_still_loads_and_can_shrink() -> None:
    detector = Detector(limits=Limits(condition_preparation_max=10**9))
    rule = detector.add_rule("n", any_of(COSTLY))
    low = Limits(condition_preparation_max=1, detector_preparation_max=1, pattern_program_max=1)
    loaded = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=low)
    text = COSTLY[7].replace("[ab].{20}", "b" + "x" * 20)
    assert len(loaded.evaluate({"t": text}, 0)) == 1
    assert errors(lambda: loaded.change_rule(rule, condition=any_of(COSTLY[:1])))[0][0] == 1302
    loaded.change_rule(rule, name="other")
    loaded.remove_rule(rule)


@pytest.mark.parametrize(
    "conditions",
    [
        [f"t matches 'word{number}'" for number in range(80)],
        [f"x == 1 and t matches 'word{number}'" for number in range(80)],
        [f't contains "word{number}"' for number in range(80)],
        [f"t matches 'word{number}.*[a-m]'" for number in range(80)],
        [any_of([f"[a-m]{number}" for number in range(80)])],
    ],
    ids=["literals", "behind a test", "contains", "with literals", "without"],
)
def test_an_event_compiles_next_to_nothing_after_rules_were_added_or_loaded(
    conditions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = Detector()
    for condition in conditions:
        detector.add_rule("n", condition)
    compile_pattern.cache_clear()
    loaded = Detector.load(detector.dump(), Detector.STATE_VERSION)
    compiled: list[str] = []
    real = patterns.compiled_set

    def noted(expressions: list[str], memory_bytes_max: int) -> object:
        compiled.extend(expressions)
        return real(expressions, memory_bytes_max)

    monkeypatch.setattr(patterns, "compiled_set", noted)
    monkeypatch.setattr(sets, "compiled_set", noted)
    monkeypatch.setattr(patterns.re2, "compile", lambda *_: pytest.fail("compiled at an event"))
    for each in (detector, loaded):
        compiled.clear()
        compile_pattern.cache_clear()
        assert each.submit({"t": "word7a, word70 and a10 " * 900, "x": 1}, 0).actions
        each.submit({"t": "word7a and a10", "x": 1}, 0)
        assert len(compiled) <= TRIED_SINGLY_MAX


def test_a_stored_condition_is_not_judged_again(judged: list[str]) -> None:
    document = json.loads('{"leaf": {"fact": "t", "op": "matches", "value": "a{1000}b{1000}.{1000}"}}')
    condition_from_stored(document)
    assert judged == []
