"""An operator that is added in one file is in the language, the engine and the interface."""

import importlib
import json
import random
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest

from api.http.routes import OPERATIONS
from api.schema.openapi import document
from engine import ConditionError, Detector, explain, format, parse  # noqa: A004
from engine.evaluation.explanation.nodes import node_document
from engine.evaluation.inspecting.holdings import memories
from engine.evaluation.inspecting.states import standing
from engine.evaluation.kernel.costs import estimate_of
from engine.evaluation.operators import table
from engine.language.condition import Leaf
from engine.language.json.writer import condition_to_document
from tests.differential.modes import MODES, in_mode

FILE = "tests.unit.evaluation.operators.twice"
TEXT = "twice within 10s x == 1"
DOCUMENT = {"twice_within": {"inner": {"leaf": {"fact": "x", "op": "eq", "value": 1}}, "window_secs": 10}}
WINDOW_MS = 10_000


@pytest.fixture(autouse=True, scope="module")
def twice() -> Iterator[ModuleType]:
    """The file of the operator, which enters it when it is imported."""
    assert FILE not in sys.modules
    module = importlib.import_module(FILE)
    yield module
    table.remove([module.FORM])
    del sys.modules[FILE]
    assert refusal("twice within 10s x == 1") == BEFORE


def refusal(source: Any) -> str:
    with pytest.raises(ConditionError) as refused:
        parse(source)
    return "\n".join(f"{entry.code} {entry.message}" for entry in refused.value.entries)


BEFORE = refusal(TEXT)
"""What the language says without the operator."""


# -- the language -------------------------------------------------------------------------------------------


def test_it_is_read_from_text_and_from_json_and_written_as_both(twice: ModuleType) -> None:
    condition = parse("(twice within 10000ms ((x == 1)))")
    assert condition == parse(DOCUMENT) == parse(json.dumps(DOCUMENT)) == parse(format(condition))
    assert type(condition) is twice.Twice
    assert format(condition) == TEXT
    assert json.dumps(condition_to_document(condition)) == json.dumps(DOCUMENT)
    nested = "not per user twice within 1m (previous a == 1 since b == 2)"
    assert format(parse(nested)) == nested


def test_its_word_is_still_a_name_where_no_condition_begins() -> None:
    assert parse("twice == 1") == Leaf("twice", "eq", 1)
    assert format(parse("once twice(twice, 1)")) == "once twice(twice, 1)"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"twice_within": {"inner": {"leaf": {"fact": "x"}}, "window_secs": -1, "windows": 2}},
            """\
1301 twice_within.inner.leaf: missing member `op`
1301 twice_within.inner.leaf: missing member `value`
1301 twice_within.window_secs: expected a number of seconds that is not negative
1301 twice_within.windows: unknown member""",
        ),
        ({"twice_witin": {}}, "1301 twice_witin: unknown member; did you mean `twice_within`?"),
        (
            "a == 1 and twice (a == 1)",
            """\
1300 line 1, column 18: expected "within", got `(`
a == 1 and twice (a == 1)
                 ^""",
        ),
        (
            "twcie within 5m a == 1",
            """\
1300 line 1, column 1: expected a condition, got `twcie`; did you mean "twice"?
twcie within 5m a == 1
^""",
        ),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_place(source: Any, message: str) -> None:
    assert refusal(source) == message


def test_the_interface_describes_it() -> None:
    schemas = document(OPERATIONS)["components"]["schemas"]
    assert schemas["Condition"]["properties"]["twice_within"] == {"$ref": "#/components/schemas/Twice"}
    told = schemas["Twice"]
    text = "An addition to the interface: inner was true at two events no older than the window."
    assert told["description"] == text
    assert told["required"] == list(told["properties"]) == ["inner", "window_secs"]


# -- the engine ---------------------------------------------------------------------------------------------


def events(drawn: random.Random) -> list[tuple[dict[str, Any], int]]:
    """Return events at times that are often exactly a window apart."""
    now_ms, made = 0, []
    for _ in range(60):
        now_ms += drawn.choice((0, 1, 2_000, 5_000, WINDOW_MS, WINDOW_MS + 1))
        made.append(({"x": drawn.randrange(3), "user": drawn.choice("ab")}, now_ms))
    return made


def fires(seen: Sequence[tuple[dict[str, Any], int]]) -> bool:
    """Whether x was 1 at two of the events that are no older than the window, by counting them."""
    now_ms = seen[-1][1]
    return len([fields for fields, at_ms in seen if fields["x"] == 1 and at_ms >= now_ms - WINDOW_MS]) > 1


def fires_for(seen: Sequence[tuple[dict[str, Any], int]]) -> bool:
    """The same for the events of the same user."""
    return fires([event for event in seen if event[0]["user"] == seen[-1][0]["user"]])


RULES = {TEXT: fires, f"per user {TEXT}": fires_for}


LATER, LATER_ID = 20, "f" * 32
"""The first event that a rule sees which is added later."""


def expected(seen: Sequence[tuple[dict[str, Any], int]]) -> set[str]:
    """Return the ids of the rules that fire at the last event."""
    return {f"{number:032x}" for number, judge in enumerate(RULES.values()) if judge(seen)}


def fired_by(detector: Detector, event: tuple[dict[str, Any], int]) -> set[str]:
    return {action["ruleId"] for action in detector.evaluate(*event)}


def made() -> Detector:
    """Return a detector with each of the rules."""
    detector = Detector()
    for number, text in enumerate(RULES):
        detector.add_rule(text, text, rule_id=f"{number:032x}")
    return detector


@pytest.mark.parametrize("mode", MODES)
def test_it_is_evaluated_as_its_definition_says(mode: str) -> None:
    verdicts = set()
    for seed in range(8):
        with in_mode(mode):
            detector, seen = made(), []
            for number, event in enumerate(events(random.Random(seed))):
                if number == LATER:
                    # This one remembers nothing of what was before.
                    detector.add_rule("later", TEXT, rule_id=LATER_ID)
                seen.append(event)
                fired = fired_by(detector, event)
                later = {LATER_ID} if number >= LATER and fires(seen[LATER:]) else set()
                assert fired == expected(seen) | later, (seed, number)
                verdicts.add((number >= LATER, *sorted(fired)))
    assert len(verdicts) > 6, "the events tell the rules apart"


@pytest.mark.parametrize("indexed", [False, True])
def test_both_ways_of_dispatch_are_tried(indexed: bool) -> None:
    with in_mode("indexed" if indexed else "fused"):
        detector = made()
        detector.evaluate({"x": 1}, 0)
        assert detector.rule_set.indexed is indexed


def test_it_is_explained_with_its_witness_and_until_when_it_stays() -> None:
    detector = Detector()
    detector.add_rule("rule", TEXT)
    detector.evaluate({"x": 1}, 1_000)
    detector.evaluate({"x": 0}, 4_000)
    [true] = explain(detector, {"x": 1}, 6_000).rules
    assert node_document(true.node) == {
        "text": TEXT,
        "verdict": True,
        "nodes": [{"text": "x == 1", "verdict": True, "values": {"x": 1}}],
        "witness_ms": 1_000,
        "until_ms": 1_000 + WINDOW_MS,
    }
    assert true.why_not == (parse("x == 1"),)
    [false] = explain(detector, {"x": 0}, 6_000).rules
    assert node_document(false.node) == {
        "text": TEXT,
        "verdict": False,
        "nodes": [{"text": "x == 1", "verdict": False, "values": {"x": 0}}],
    }


def test_explanations_agree_with_evaluations() -> None:
    detector = made()
    for event in events(random.Random(1)):
        told = {explained.rule.id for explained in explain(detector, *event).rules if explained.verdict}
        assert told == fired_by(detector, event)


def test_its_state_and_cost_are_shown() -> None:
    detector = made()
    for at_ms in (1_000, 2_000):
        detector.evaluate({"x": 1, "user": "a"}, at_ms)
    shown = [(memory["text"], memory["per"], memory["entries"]) for memory in memories(detector, 0, 10)]
    assert shown == [(TEXT, [], 1), (TEXT, ["user"], 1)]
    [node] = standing(detector, f"{1:032x}", {"user": "a"})["node"]["nodes"]
    assert (node["verdict"], node["witness_ms"], node["since_ms"]) == (True, 1_000, 2_000)
    assert estimate_of(parse(f"per user {TEXT}")).memories == {("user",): 2}


@pytest.mark.parametrize("mode", ["fused", "indexed"])
def test_it_is_saved_and_loaded(mode: str) -> None:
    with in_mode(mode):
        detector, seen = made(), []
        for event in events(random.Random(2)):
            seen.append(event)
            assert fired_by(detector, event) == expected(seen)
            dumped = detector.dump()
            detector = Detector.load(dumped, Detector.STATE_VERSION)
            assert detector.dump() == dumped
