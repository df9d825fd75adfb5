"""What an explanation says, in words and numbers, and where it ends."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import Detector, Limits, Refusal, explain, format  # noqa: A004
from engine.evaluation.explanation import decided, explaining, nodes, why_not
from engine.evaluation.explanation.firings import dry_run
from engine.evaluation.explanation.nodes import ExplainedRule, Node
from engine.evaluation.explanation.predicate_tree import PredicateTree
from engine.evaluation.facts.shown import VALUE_CHARS_MAX
from engine.evaluation.inspecting import explanations
from engine.evaluation.inspecting.explanations import DRY_BATCH_NODES_MAX, explain_body
from engine.evaluation.inspecting.states import PAGE
from engine.language.condition import Avg
from engine.language.diagnostics import Entry

OUT_OF_RANGE = "event.timestamp_ms: expected a number from -8.64e15 to 8.64e15, got 9000000000000000.0"


def node_of(text: str, fields: dict, timestamp_ms: float = 0, sent: dict | None = None) -> Node:
    """Return the node of a rule at the first event of a detector."""
    detector = Detector()
    detector.add_rule("rule", text)
    (explained,) = explain(detector, fields, timestamp_ms, sent).rules
    return explained.node


# -- values and notes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fields", "note"),
    [
        ("user.id == 7", {"user": {"id": "7"}}, '`user.id` is the string "7", compared with the number 7'),
        ("a != true", {"a": 1}, "`a` is the number 1, compared with the boolean true"),
        ("a == [1, 2]", {"a": {}}, "`a` is an object, compared with an array of numbers"),
        ("a == [1, 2]", {"a": ["x", 1]}, None),
        ("a == [1, 2.5]", {"a": {}}, "`a` is an object, compared with an array of numbers"),
        ("a == []", {"a": {}}, "`a` is an object, compared with an array"),
        ('a == "x"', {"a": 10**59}, f'`a` is the number {10**59}, compared with the string "x"'),
        ('a == "x"', {"a": 10**60}, f'`a` is the number {10**59}…, compared with the string "x"'),
        ('a in ["1"]', {"a": 1}, "`a` is the number 1, compared with strings"),
        ("a not in []", {"a": 1}, None),
        ("a between 1 and 2", {"a": "1"}, '`a` is the string "1", compared with numbers'),
        ('a contains "x"', {"a": 5}, "`a` is the number 5, neither a string nor an array"),
        ("a contains 5", {"a": "5"}, '`a` is the string "5", compared with the number 5'),
        ("a contains 5", {"a": ["5"]}, None),
        ('a matches "5"', {"a": 5}, "`a` is the number 5, not a string"),
        ("a == b", {"a": 1, "b": "1"}, '`a` is the number 1, compared with `b`, the string "1"'),
        ("a in b", {"a": 1, "b": 1}, "`b` is the number 1, not an array"),
        ("a in b", {"a": 1, "b": ["1"]}, None),
        ("a == b", {"a": 1}, "`b` is missing"),
        ("a in $b", {"a": 1}, "`$b` is missing"),
        ("exists a", {}, None),
        ("a == b", {"a": 1, "b": 2}, None),
        ("a in [1]", {"a": 2}, None),
        ("a == 1", {"a": 1}, None),
        ("a == 1", {}, None),
        ('a in network "::1"', {}, None),
        ("some a (it == 1)", {"a": [0] * 10_001}, "`a` has 10001 elements, more than are looked at"),
        ('anywhere (it == "x")', {"b": "y", "c": ["x"]}, 'the string "x" meets it'),
        ('anywhere (it == "x")', {"b": "y"}, "none of the event's 1 strings meets it"),
        (
            'anywhere (it == "x")',
            {"b": ["x"] * 10_001},
            "the event has 10001 strings, more than are looked at",
        ),
        ("per a once b == 1", {"b": 1}, "`a` is missing, so the event belongs to no slice"),
        (
            "per a once b == 1",
            {"a": [1]},
            "`a` is an array, which is no key, so the event belongs to no slice",
        ),
    ],
)
def test_a_note_says_where_types_never_meet(text: str, fields: dict, note: str | None) -> None:
    said = node_of(text, fields).note
    assert (said and said.removesuffix("; `a` is shown cut")) == note


def test_a_note_says_where_a_relation_holds_nothing() -> None:
    assert node_of("r(a)", {"a": 1}).note == "the relation `r` is neither stored nor sent"
    assert node_of("a in network r", {"a": "10.0.0.1"}).note == "the relation `r` is neither stored nor sent"
    assert node_of("r(a)", {"a": 1}, sent={"r": [1]}).note is None
    assert node_of("r(a)", {"a": [1]}, sent={"r": [1]}).note == "`a` is an array, which no relation holds"
    assert node_of("r(a, b)", {"a": 1}, sent={"r": [[1, 2]]}).note == "`b` is missing"


def test_long_values_are_cut_and_a_note_says_so() -> None:
    node = node_of('a contains "b" and not x == 1', {"a": "b" * 5_000})
    assert node.nodes[0].values == {"a": "b" * VALUE_CHARS_MAX + "…"}
    assert node.nodes[0].note == "`a` is shown cut"
    assert node_of("per a a == 1", {"a": "b" * 5_000}).key == {"a": "b" * VALUE_CHARS_MAX + "…"}
    compared = node_of("a != b and a > c + 1", {"a": "b" * 5_000, "c": 1}).nodes[1]
    assert compared.values == {"a": "b" * VALUE_CHARS_MAX + "…", "c": 1}


# -- witnesses ----------------------------------------------------------------------------------------------


def test_a_node_names_its_slice_the_event_that_settles_it_and_until_when() -> None:
    detector = Detector()
    detector.add_rule("rule", "per user once within 10m ok == false")
    detector.evaluate({"user": "ada", "ok": False}, 3_120)
    detector.evaluate({"user": "bob", "ok": False}, 4_000)
    (explained,) = explain(detector, {"user": "ada", "ok": True}, 44_120).rules
    keyed, once = explained.node, explained.node.nodes[0]
    assert (keyed.verdict, keyed.key, keyed.until_us) == (True, {"user": "ada"}, 603_120_000)
    assert (once.verdict, once.witness_us, once.until_us) == (True, 3_120_000, 603_120_000)
    assert once.nodes[0].values == {"ok": True}


def test_the_time_of_a_turn_is_found_in_all_the_time_that_there_is() -> None:
    earliest_us = -8_640_000_000_000_000_000
    assert node_of("age(a == 1) >= 1", {"a": 1}, earliest_us / 1000).until_us == earliest_us + 999_999
    assert node_of("now() > 0", {}, earliest_us / 1000).until_us == 0


def test_a_mean_over_a_window_that_is_longer_than_all_time_has_all_values() -> None:
    detector = Detector()
    detector.add_rule("mean", Avg("a", None, 1e300, "lt", 1.0))
    detector.evaluate({"a": 0}, -100)
    (explained,) = explain(detector, {"a": 1}, 100).rules
    assert (explained.verdict, explained.node.found) == (True, 0.5)
    assert detector.evaluate({"a": 1}, 100)


def test_a_late_event_is_explained_at_the_clock() -> None:
    detector = Detector()
    detector.add_rule("rule", "once a == 1")
    detector.evaluate({}, 1_000)
    explanation = explain(detector, {"a": 1}, 400)
    assert explanation.time_us == 1_000_000
    assert [entry.code for entry in explanation.messages] == [2001]
    assert explanation.rules[0].node.witness_us == 1_000_000


def test_a_note_says_that_an_action_is_held_back_and_for_how_long() -> None:
    detector = Detector()
    detector.add_rule("silent", "per host (not once within 5s exists beat)", timed=True, every_secs=60)
    detector.add_rule("beats", "exists beat", every_secs=0.5)

    def notes(at_ms: float, **fields: object) -> list[str | None]:
        return [one.node.note for one in explain(detector, {"host": "a", **fields}, at_ms).rules]

    assert notes(0, beat=1) == [None, None]
    detector.evaluate({"host": "a", "beat": 1}, 0)
    held = "the action is held back: for these values, `every_secs` has the rule act again in {} s"
    assert notes(499.999, beat=1) == [None, held.format("0.000001")]
    assert notes(500, beat=1) == [None, None]
    # Time alone has made it act before this event, and explaining that changes nothing.
    for _ in range(2):
        assert notes(7_000) == [held.format("58.000001"), None]
    assert [one.node.note for one in explain(detector, {"host": "b"}, 7_000).rules] == [None, None]
    assert [one.time_us for one in detector.tick(7_000_000)] == [5_000_001]
    assert detector.evaluate({"host": "a"}, 7_000) == []
    assert notes(65_000) == [held.format("0.000001"), None]
    assert notes(65_000.001) == [None, None]

    zoned = Detector()
    zoned.add_rule("zoned", "a == 1", every_secs=1, every_by=["$zone"])
    zoned.evaluate({"a": 1}, 0, {"zone": "x"})
    said = [explain(zoned, {"a": 1}, 0, {"zone": zone}).rules[0].node.note for zone in "xy"]
    assert said == [held.format(1), None]


# -- what would turn the verdict ----------------------------------------------------------------------------


FAR = 10**450


def turning(text: str, fields: dict) -> list[str] | None:
    detector = Detector()
    detector.add_rule("rule", text)
    (explained,) = explain(detector, fields, 0).rules
    return None if explained.why_not is None else [*map(format, explained.why_not)]


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("a == 1 and b == 1 and c == 1", {"a": 1}, ["b == 1", "c == 1"]),
        ("a == 1 and b == 1 or c == 1", {}, ["c == 1"]),
        ("(a == 1 or b == 1) and once c == 1", {"b": 1}, ["c == 1"]),
        ("a == 1 and not previous == 1", {"a": 1, "previous": 1}, ["previous == 1"]),
        # The same predicate twice: turned once, it is turned everywhere.
        ("(a == 1 and b == 1) or (a == 1 and c == 1)", {}, ["a == 1", "b == 1"]),
        ("(a == 1 and b == 1) or (not a == 1 and c == 1 and d == 1)", {"a": 1}, ["b == 1"]),
        ("a == 1 and not a == 1", {}, None),
        ("(b == 1 or a == 1) and (c == 1 or a == 1)", {}, ["a == 1"]),
        ("(b == 1 or a == 1) and (c == 1 or a == 1) and d == 1", {}, ["a == 1", "d == 1"]),
        ("a == 1 and b == 1 and (a == 1 or c == 1) and (b == 1 or c == 1)", {}, ["a == 1", "b == 1"]),
        ("(a == 1 and not a == 1) or (a == 1 and b == 1)", {}, ["a == 1", "b == 1"]),
        # The past is no predicate that an event could turn.
        ("sum(x) > 9 and a == 1 and (a == 1 or b == 1)", {"a": 1}, None),
        ("per user where b == 1 a == 1", {"user": 1, "a": 1, "b": 1}, ["a == 1"]),
        ("per a once b == 1", {}, None),
        # A comparison is one predicate.
        ("(b == 1 and c == 1) or x > 100", {}, ["x > 100"]),
        ("(b == 1 and c == 1) or x < 100", {"x": 200}, ["x < 100"]),
        ("x > 100", {"x": 100}, ["x > 100"]),
        ("x > 100 and not x >= 100", {"x": 1}, None),
        # Integers are exact beyond a double's range.
        (f"compare(x > {FAR})", {"x": 1}, [f"compare(x > {FAR})"]),
        (f"compare(x < -{FAR})", {"x": 1}, [f"compare(x < -{FAR})"]),
        (f"compare(x > {FAR}) and compare(x < {FAR + 9})", {"x": 1}, [f"compare(x > {FAR})"]),
        # What it is compared with is computed.
        ("x == abs(-7)", {}, ["x == abs(-7)"]),
        ("x == y + 3 and once y == 4", {"y": 4}, ["x == y + 3"]),
        ("0 == x + 1", {}, ["0 == x + 1"]),
        ("10 - 2 * x == 3", {}, ["10 - 2 * x == 3"]),
        ("x + 7 > 3 and x + 7 < 4", {}, ["x + 7 > 3", "x + 7 < 4"]),
        ("y == 12 and x / 4 + y == 20", {"y": 12}, ["x / 4 + y == 20"]),
        ("x == y * z", {}, ["x == y * z"]),
        ("length(x) * y == z", {"x": 0, "y": 0, "z": 1}, ["length(x) * y == z"]),
        ("length(x) == 20", {}, ["length(x) == 20"]),
        ("length(x) == 3 and x == x", {"x": "ab"}, ["length(x) == 3"]),
        ("length(x) < 0", {}, None),
        ('x < "a"', {}, ['x < "a"']),
        # What no event can be is not proposed.
        ('action == "login" and once within 10m action == "logout"', {"action": "login"}, None),
        ('action == "login" and once action == "logout"', {"action": "logout"}, None),
        (
            'action == "pay" and (once (action == "login" and ok == true) or amount > 5)',
            {"action": "pay"},
            ["amount > 5"],
        ),
        (
            '(action == "login" and ok == true and a == 1) or action == "logout"',
            {"action": "login"},
            ['action == "logout"'],
        ),
        ("x > 5 and (x < 3 or a == 1)", {"x": 1}, ["x > 5", "a == 1"]),
        ("x in [1, 2] and (x not in [1, 2] or a == 1)", {}, ["x in [1, 2]", "a == 1"]),
        ("x == y and x == 1 and once y == 2", {"y": 1}, None),
        ("x == y and not x == x", {"x": 1, "y": 1}, None),
        ('t contains "a" and t contains "b" and t != "ab"', {"t": "ab"}, ['t != "ab"']),
        ('t == "xyz" and t matches "^x" and (once t contains "q" or a == 1)', {"t": "xyz"}, ["a == 1"]),
    ],
)
def test_the_smallest_set_that_turns_the_verdict(text: str, fields: dict, expected: list[str] | None) -> None:
    assert turning(text, fields) == expected


def test_a_note_says_that_not_all_events_were_tried() -> None:
    text = "length(x) * y * z == w + 3 and length(w) == 1"
    assert turning(text, {}) is None
    assert (node_of(text, {}).note or "").endswith(explaining._NOT_FOUND)


def doubled(number: int, made: str) -> str:
    """Return a condition with each leaf twice, so that no set follows from those of the members."""
    one = [made.format(f"a{place}", place) for place in range(number)]
    pairs = [f"({left} or {right})" for left, right in itertools.combinations(one[:6], 2)]
    return " and ".join([*pairs, f"({' and '.join(one)} or b == 1)", f"({' or '.join(one)})"])


def test_a_note_says_that_the_search_for_the_smallest_set_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    text = doubled(14, "{} == {}")
    assert node_of(text, {}).note is None
    found = turning(text, {})
    assert found is not None
    monkeypatch.setattr(why_not, "STEPS_MAX", 5)
    # The first look is always taken.
    assert turning(text, {}) is not None
    assert node_of(text, {}).note == explaining._NOT_SMALLEST
    text = "a == 1 and (not a == 1 or b == 1)"
    assert (turning(text, {}), node_of(text, {}).note) == (None, explaining._NOT_FOUND)


@pytest.mark.slow
@pytest.mark.parametrize("made", ["{} == {}", "once within 10m {} == {}", "{} > {}"])
def test_what_turns_many_rules_of_doubled_leaves_is_bounded_work(
    made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rules of one explanation share a bound, however hard the smallest set of each is to find."""
    visited = 0
    plain = PredicateTree._all_truths

    def counted(tree: PredicateTree, truths: list[bool]) -> list[bool]:
        nonlocal visited
        visited += len(tree)
        return plain(tree, truths)

    monkeypatch.setattr(PredicateTree, "_all_truths", counted)
    detector = Detector()
    for number in range(12):
        detector.add_rule("rule", f"{doubled(20, made)} and c == {number}")
    explained = explain(detector, {}, 0)
    assert len(explained.rules) == 12
    nodes = sum(size(rule.node) for rule in explained.rules)
    assert visited < 4 * why_not.STEPS_MAX + 20 * nodes


def size(node: Node) -> int:
    return 1 + sum(map(size, node.nodes))


# -- bounds and refusals ------------------------------------------------------------------------------------


def test_a_disabled_rule_is_explained_as_what_it_is() -> None:
    detector = Detector()
    rule_id = detector.add_rule("rule", "a == 1")
    detector.change_rule(rule_id, enabled=False)
    (explained,) = explain(detector, {"a": 1}, 0, rule_id=rule_id).rules
    assert not explained.verdict
    assert explained.node.note == "the rule is disabled, so it observes no events"


def test_too_many_nodes_are_refused_unless_one_rule_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "NODES_MAX", 3)
    detector = Detector()
    large = detector.add_rule("large", "a == 1 and b == 1 and c == 1")
    assert len(explain(detector, {}, 0).rules) == 1
    detector.add_rule("small", "a == 1")
    with pytest.raises(Refusal, match="too many nodes; limit 3") as refused:
        explain(detector, {}, 0)
    assert refused.value.code == 1400
    assert len(explain(detector, {}, 0, rule_id=large).rules) == 1


def test_patterns_that_an_evaluation_does_not_try_are_not_tried() -> None:
    detector = Detector(limits=Limits(pattern_event_bytes_max=200_000))
    for number in range(100):
        detector.add_rule("rule", f"t matches '[a-m]{number}'")
    fields = {"t": "the quick brown fox 0123456789 " * 300 + "a1"}
    explanation = explain(detector, fields, 0)
    assert not any(one.verdict for one in explanation.rules)
    outcome = detector.submit(fields, 0)
    assert (outcome.fired, outcome.messages) == ((), list(explanation.messages))
    assert [entry.code for entry in explanation.messages] == [2004]


def test_the_rule_is_looked_for_before_the_time_is_judged() -> None:
    detector = Detector(limits=Limits(late_ms_max=10))
    detector.evaluate({}, 1_000)
    for rule_id, code in (("unknown", 1201), (None, 1402)):
        with pytest.raises(Refusal) as refused:
            explain(detector, {}, 0, rule_id=rule_id)
        assert refused.value.code == code
    with pytest.raises(Refusal) as refused:
        explain(detector, {"a": object()}, 1_000)
    assert refused.value.code == 1001


# -- as JSON ------------------------------------------------------------------------------------------------


def test_integers_of_any_size_are_shown() -> None:
    detector = Detector()
    detector.add_rule("rule", "a > 1")
    body = b'{"event": {"fields": {"a": %b}, "timestamp_ms": 0}}' % (b"9" * 4_000)
    assert b'"values":{"a":%b}' % (b"9" * 4_000) in explain_body(detector, body).result


def first_only(explained_rule: Callable[..., ExplainedRule]) -> Callable[..., ExplainedRule]:
    """Return a function that explains a rule, and fails when it is called again: the answer is full then."""
    calls = itertools.count()

    def once(*given: Any) -> ExplainedRule:
        assert next(calls) == 0, "no rule is explained once the answer is full"
        return explained_rule(*given)

    return once


def test_nodes_of_one_rule_are_left_out_where_the_answer_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector()
    deep = "a == 1"
    for _ in range(20):
        deep = f"(not {deep}) and b == 1"
    rule_id = detector.add_rule("deep", deep)
    body = b'{"event": {"fields": {}, "timestamp_ms": 0}, "ruleId": "%b"}' % rule_id.encode()
    whole = len(explain_body(detector, body).result)
    monkeypatch.setattr(explanations, "BYTES_MAX", whole // 4)
    cut = explain_body(detector, body).result
    assert len(cut) < whole // 2
    assert nodes.LEFT_OUT.encode() in cut
    assert json.loads(cut)["rules"][0]["node"]["nodes"][1]["text"] == "b == 1"


def test_more_than_a_bound_of_what_is_remembered_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector()
    for op in (">=", ">"):
        detector.add_rule("rule", f"count(a == 1) {op} 5")
    for _ in range(5):
        detector.evaluate({"a": 1}, 0)
    monkeypatch.setattr(decided, "ENTRIES_MAX", 10)
    assert len(explain(detector, {"a": 1}, 0).rules) == 2
    monkeypatch.setattr(decided, "ENTRIES_MAX", 9)
    fires = dry_run(detector, {"a": 1}, 0, {})
    assert (len(fires.rules), len(fires.nodes)) == (2, 1)
    with pytest.raises(Refusal, match="values are remembered for this event; limit 9;") as refused:
        explain(detector, {"a": 1}, 0)
    assert refused.value.code == 1400


def test_a_large_explanation_is_refused_unless_it_is_of_one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector()
    small = detector.add_rule("small", "a == 1")
    detector.add_rule("large", " or ".join(f"a == {number}" for number in range(100)))
    body = b'{"event": {"fields": {}, "timestamp_ms": 0}%b}'
    whole = explain_body(detector, body % b"").result
    bytes_of_rules = len(whole) - len(b'{"rules":[,]}')
    monkeypatch.setattr(explanations, "BYTES_MAX", bytes_of_rules)
    assert explain_body(detector, body % b"").result == whole
    monkeypatch.setattr(explanations, "BYTES_MAX", bytes_of_rules - 1)
    with pytest.raises(Refusal) as refused:
        explain_body(detector, body % b"")
    most = f"the explanation is too large; limit {bytes_of_rules - 1} bytes; name one rule"
    assert refused.value.entries == (Entry(1400, most),)
    monkeypatch.setattr(explanations, "BYTES_MAX", 1)
    monkeypatch.setattr(explaining, "explained_rule", first_only(explaining.explained_rule))
    with pytest.raises(Refusal):
        explain_body(detector, body % b"")
    monkeypatch.undo()
    monkeypatch.setattr(explanations, "BYTES_MAX", 1)
    of_one = json.loads(explain_body(detector, body % b', "ruleId": "%b"' % small.encode()).result)
    assert [rule["ruleId"] for rule in of_one["rules"]] == [small]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (b', "other": 1', "other: unknown member"),
        (b', "event": {"fields": {}, "timestamp_ms": 9e15}', OUT_OF_RANGE),
    ],
)
def test_the_body_of_an_explanation_is_judged_as_that_of_an_evaluation(more: bytes, said: str) -> None:
    with pytest.raises(Refusal) as refused:
        explain_body(Detector(), b'{"event": {"fields": {}, "timestamp_ms": 0}%b}' % more)
    assert refused.value.entries == (Entry(1001, said),)


def test_names_are_shown_as_they_are_written() -> None:
    detector = Detector()
    detector.add_rule("Zürich", "a == 1")
    answer = explain_body(detector, b'{"event": {"fields": {}, "timestamp_ms": 0}}').result
    assert '"name":"Zürich"'.encode() in answer


def test_the_page_about_inspecting_names_the_bounds() -> None:
    page = (Path(explanations.__file__).parents[3] / "api" / "INSPECTING.md").read_text(encoding="utf-8")
    words = " ".join(page.split())
    mebibytes = explanations.BYTES_MAX / 2**20
    assert f"An explanation has at most 4 000 nodes and {mebibytes:g} MiB." in words
    nodes = f"{DRY_BATCH_NODES_MAX:,}".replace(",", " ")
    assert f"The batch is refused with 1400 if the rules have more than {nodes} nodes." in words
    assert f"A page has at most `limit` entries (default and maximum {PAGE})." in words
