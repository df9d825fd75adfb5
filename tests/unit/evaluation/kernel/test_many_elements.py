"""Elements of long arrays: many rules search them together, and decide as if each did alone."""

from typing import Any

import pytest

from engine import Detector, parse
from engine.evaluation.facts import lookups
from engine.evaluation.kernel.code import predicates
from engine.patterns import fact_patterns
from engine.patterns.fact_patterns import FactPatterns
from tests.reference import Event, verdict
from tests.work_growth import grows_linearly

COUNT, RULES, WALKS = 100, 30, 4
TEXTS = [f"word {number} of some length" for number in range(COUNT)]
OBJECTS = [
    {"name": text, "n": number % 7, "tags": [f"t{number}", 1], "a": {"n": number == 9}}
    for number, text in enumerate(TEXTS)
]
ODD = ["word 5 of", {"name": 5, "n": True}, {"name": "word 9", "n": 1.0, "tags": "t5"}, {"n": [1]}]
FIELDS = {"texts": [*TEXTS, 1, None, ["word 3 of"]], "files": [*OBJECTS, *ODD]}
CONDITIONS = (
    "anywhere (it matches 'word {n}\\b.*length')",
    'anywhere (it icontains "WORD {n} OF" and not it icontains "0")',
    'anywhere (it icontains ["nowhere {n}", "WORD {n} O"])',
    "anywhere (it matches 'word {n}\\b' and it == 'no')",
    "some texts (it matches 'd {n} .f')",
    "some texts (not it matches 'd {n} .f')",
    "some files (name matches 'd {n} .f' and n >= 5)",
    "some files (name matches 'd {n} .f' or n == {n})",
    "some files (name matches '(a|b){12}c' or name matches 'd {n} .f' or name matches 'x{n}[yz]')",
    "some files (it matches 'd {n} .f' or name matches 'none {n}.')",
    "some files (name matches 'no{n}..thing')",
    'some texts (it == "word {n} of some length")',
    'some texts (it == "word {n} of some length" and it contains "no")',
    'some texts (it in ["word {n}", "word {n} of", "word 1{n} of some length"])',
    'some texts (it contains "ord {n} o")',
    'some files (name contains "word 9" and n == {n})',
    'some files (n == {n} or name == "word {n} of some length")',
    'some files (n == {n} or not name contains "o")',
    'some files (it contains "{n}" or tags contains "t{n}" or n == 1.0)',
    "some files (n > 5 and n != {n})",
    'some files (n == 3 and tags contains "t{n}")',
    'some files (a.n == true or n == $n and name contains "{n} o")',
    'anywhere (it == "word {n} of some length")',
)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that a pattern is tried on, one by one."""
    found, tried = FactPatterns.found, []

    def noted(self: FactPatterns, pattern: str, compiled: Any, text: str) -> bool:
        tried.append(text)
        return found(self, pattern, compiled, text)

    monkeypatch.setattr(FactPatterns, "found", noted)
    return tried


@pytest.fixture(autouse=True)
def few_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fact_patterns, lookups):
        monkeypatch.setattr(module, "WALKS_MAX", WALKS)


def with_rules(rule: str) -> Detector:
    detector = Detector()
    for number in range(RULES):
        detector.add_rule(str(number), rule.replace("{n}", str(number)))
    return detector


def fired(detector: Detector, fields: dict[str, Any]) -> list[str]:
    return [action["name"] for action in detector.evaluate(fields, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("found_max", [0, 1_000_000])
@pytest.mark.parametrize("rule", CONDITIONS)
def test_many_rules_decide_as_the_reference(
    monkeypatch: pytest.MonkeyPatch, rule: str, found_max: int
) -> None:
    for module in (fact_patterns, lookups):
        monkeypatch.setattr(module, "FOUND_MAX", found_max)
    conditions = [parse(rule.replace("{n}", str(number))) for number in range(RULES)]
    wanted = [verdict(condition, [Event(0, FIELDS, {})]) for condition in conditions]
    told = fired(with_rules(rule), FIELDS)
    assert told == [str(number) for number in range(RULES) if wanted[number]]


@pytest.mark.parametrize("rule", ["it matches 'd {n} .f'", "it contains 'd {n} of'"])
def test_an_array_that_its_owner_changes_is_searched_again(rule: str) -> None:
    detector, texts = with_rules(f"some texts ({rule})"), [*TEXTS]
    assert len(fired(detector, {"texts": texts})) == RULES
    texts[:] = ["word 9 of"] * COUNT
    assert fired(detector, {"texts": texts}) == ["9"]


@pytest.mark.parametrize(
    ("rule", "walks"),
    # Those of the first rules, and of the single elements that the others and the index try.
    [("anywhere (it matches 'word {n}\\b.*length')", WALKS + 2), ("anywhere (it matches 'no{n}.a')", 2)],
)
def test_only_few_rules_try_elements_that_their_pattern_cannot_match(
    tries: list[str], rule: str, walks: int
) -> None:
    detector = with_rules(rule)
    tries.clear()
    fired(detector, {"a": TEXTS[::-1]})
    assert len(tries) <= walks * COUNT


@pytest.mark.parametrize("found_max", [0, 1_000_000])
@pytest.mark.parametrize(
    ("rule", "keyed", "walked"),
    [
        ('it == "word {n} of some length" and it contains "o"', 2, 1),
        ('it contains "ord {n} of" and it != "no"', 1, 1),
        ('it in ["word {n} of some length", "no"] and it != "no"', 1, 1),
        ('(it == "word {n} of some length" or it contains "no {n}") and it != "no"', 2, 2),
    ],
)
def test_only_few_rules_try_elements_that_have_other_values(
    monkeypatch: pytest.MonkeyPatch, rule: str, keyed: int, walked: int, found_max: int
) -> None:
    """Nor do they each look at all elements. With too many keys, each rule tries all."""
    monkeypatch.setattr(lookups, "FOUND_MAX", found_max)
    fewest, fields_of = predicates._fewest, predicates.fields_of_element
    tried: list[int] = []
    looked: list[object] = []

    def noted(*given: Any) -> Any:
        found = fewest(*given)
        tried.append(len(found))
        return found

    monkeypatch.setattr(predicates, "_fewest", noted)
    monkeypatch.setattr(predicates, "fields_of_element", lambda one: looked.append(one) or fields_of(one))
    detector = with_rules(f"some texts ({rule})")
    for _ in range(2):
        tried.clear()
        looked.clear()
        fired(detector, {"texts": TEXTS})
        later = 1 if found_max else COUNT
        assert tried == [COUNT] * WALKS * walked + [later] * (RULES - WALKS * walked)
        assert len(looked) == keyed * COUNT if found_max else len(looked) <= keyed


# Of the second rule, more elements would not stay in the processor's cache beside other processes.
@pytest.mark.parametrize(
    ("rule", "count"), [("n > {n} and n < 99999", 10_000), ('ip in network "10.0.{n}.0/24"', 5_000)]
)
def test_the_work_grows_with_the_number_of_elements(rule: str, count: int) -> None:
    detector = with_rules(f"some xs ({rule})")
    elements = [{"n": 100 + number, "ip": f"192.168.{number}"} for number in range(count)]
    assert grows_linearly(lambda count: fired(detector, {"xs": elements[:count]}), len(elements) // 4)
