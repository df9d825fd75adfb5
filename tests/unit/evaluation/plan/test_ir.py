"""Shapes, asked directly: the test that each predicate becomes, and what is read and written of memories."""

from collections import Counter
from typing import Any

import pytest

from engine import parse
from engine.evaluation.times import Regime
from engine.evaluation.plan.ir import Abstraction
from engine.evaluation.kernel.selection.known import Known, Value
from engine.evaluation.requirements import requirements_of
from engine.evaluation.plan.shapes import TRUE, Aggregate, Junction, Memory, Negation, Predicate, Slice
from engine.language.condition import Condition, FactArg, InRelation, OnceWithin, Ref

SEEN = Regime.SEEN


def parts_of(known: Known | None = None) -> Abstraction:
    return Abstraction(lambda fact, pattern: f"{pattern} in {fact}", known)


def memories_of(condition: Condition, birth: int = 0) -> dict[Any, Any]:
    """Give each memory of a condition a number, the first 100."""
    names = dict.fromkeys(requirements_of(condition, birth).memories)
    return {name: (100 + number, SEEN, number == 1) for number, name in enumerate(names)}


@pytest.mark.parametrize(
    ("leaf", "expected", "constants", "looked_up", "quantities"),
    [
        ("a == 5", Predicate("scalar", (0,), (0,)), [5], set(), {}),
        ("a == 'x'", Predicate("scalar", (0,), (0,)), ["x"], set(), {}),
        ("a == 1", Predicate("zero or one", (0,), (0,)), [1], set(), {}),
        ("a == 0", Predicate("zero or one", (0,), (0,)), [0], set(), {}),
        ("a == true", Predicate("boolean", (0,), (0,)), [True], set(), {}),
        ("a == [1]", Predicate("array", (0,), (0,)), [[1]], set(), {}),
        ("a != 5", Predicate("scalar", (0,), (0,), negated=True), [5], set(), {}),
        ("a in ['x', 'y']", Predicate("among texts", (0,), (0,)), [frozenset("xy")], set(), {}),
        ("a in [1, 2]", Predicate("among numbers", (0,), (0,)), [frozenset((1, 2))], set(), {}),
        (
            f"a in {[*range(65_500, 65_565)]}",
            Predicate("among many numbers", (0,), (0,)),
            [frozenset([*range(65_500, 65_536), *(b"%d" % number for number in range(65_536, 65_565))])],
            set(),
            {},
        ),
        ("a in []", Predicate("among none", (0,), (0,)), [frozenset()], set(), {}),
        ("a not in [1]", Predicate("among numbers", (0,), (0,), negated=True), [frozenset((1,))], set(), {}),
        ("a contains 'x'", Predicate("contains text", (0,), (0,)), ["x"], {0}, {}),
        ("a contains 5", Predicate("contains value", (0,), (0,)), [5], {0}, {}),
        ("a matches 'x'", Predicate("matches", (0,), (0,)), ["x in a"], set(), {}),
        ("a between 'a' and 'b'", Predicate("texts between", (0,), (0, 1)), ["a", "b"], set(), {}),
        ("a between 1 and 2", Predicate("between", (0,), (0, 1)), [1, 2], set(), {0: 1}),
        ("a >= 1", Predicate("at least", (0,), (0,)), [1], set(), {0: 1}),
        ("a <= 1", Predicate("at most", (0,), (0,)), [1], set(), {0: 1}),
        ("a > 1", Predicate("above", (0,), (0,)), [1], set(), {0: 1}),
        ("a < 1", Predicate("below", (0,), (0,)), [1], set(), {0: 1}),
    ],
)
def test_each_predicate_becomes_the_simplest_test(
    leaf: str, expected: Predicate, constants: list[Any], looked_up: set[int], quantities: dict[int, int]
) -> None:
    parts = parts_of()
    assert parts.shape(parse(leaf), 0, {}) == expected
    assert parts.constants == constants
    assert list(map(type, parts.constants)) == list(map(type, constants))
    assert (parts.facts, parts.looked_up, parts.quantities) == (("a",), looked_up, Counter(quantities))
    assert not parts.asks_relations


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("eq", Predicate("same", (0, 1), ())),
        ("neq", Predicate("same", (0, 1), (), negated=True)),
        ("in", Predicate("among fact", (0, 1), ())),
        ("nin", Predicate("among fact", (0, 1), (), negated=True)),
    ],
)
def test_a_comparison_of_two_facts_looks_both_up(op: Any, expected: Predicate) -> None:
    parts = parts_of()
    assert parts.shape(Ref("a", op, "b"), 0, {}) == expected
    assert (parts.facts, parts.looked_up) == (("a", "b"), {0, 1})


def test_a_relation_has_its_name_first_and_names_up_to_sixteen_arguments() -> None:
    parts = parts_of()
    shape = parts.shape(InRelation("r", (7, FactArg("a"), "x", FactArg("b"))), 0, {})
    assert shape == Predicate("related", (0, 1), (0, 1, 2), arguments=(False, True, False, True))
    assert (parts.constants, parts.facts, parts.asks_relations) == (["r", 7, "x"], ("a", "b"), True)
    parts = parts_of()
    parts.shape(InRelation("r", tuple(FactArg(f"f{number}") for number in range(16))), 0, {})
    assert len(parts.facts) == 16
    parts = parts_of()
    many = (FactArg("$a"), FactArg("b.c"), *range(15))
    assert parts.shape(InRelation("r", many), 0, {}) == Predicate("related by many", (), (0, 1))
    assert parts.constants[1]({"b": {"c": 2}}, {"a": 1}) == [1, 2, *range(15)]


def test_junctions_are_joined_and_what_is_known_is_left_out() -> None:
    a, b = Predicate("scalar", (0,), (0,)), Predicate("scalar", (1,), (1,))
    assert parts_of().shape(parse("a == 5 and b == 6"), 0, {}) == Junction("and", (a, b))
    assert parts_of().shape(parse("a == 5 or b == 6"), 0, {}) == Junction("or", (a, b))
    assert parts_of().shape(parse("not a == 5"), 0, {}) == Negation(a)
    known = parts_of(Value("a", 5))
    assert known.shape(parse("a == 5 and b == 6"), 0, {}) == a
    assert (known.facts, known.constants) == (("b",), [6])
    assert parts_of(Value("a", 5)).shape(parse("a == 5 or b == 6"), 0, {}) is TRUE
    assert parts_of(Value("a", 4)).shape(parse("a == 5 or b == 6"), 0, {}) == a


@pytest.mark.parametrize(
    "rule", ["a between 1 and 5 and a != 3", "a >= 1 and a != true", "a >= 1 and b != 1", "a >= 1 and a != 2"]
)
def test_a_range_without_its_end_is_one_test_only_if_the_end_is_its_own(rule: str) -> None:
    assert isinstance(parts_of().shape(parse(rule), 0, {}), Junction)


def test_a_memory_is_updated_by_its_operands_or_only_read() -> None:
    rule = parse("(a == 5 since within 2s b == 6) and once c == 7")
    parts = parts_of()
    since, once = parts.shape(rule, 0, memories_of(rule)).members  # type: ignore[union-attr]
    assert parts.constants[0] == 5
    assert [name for name, _ in since.operands] == ["left", "right"]
    assert (since.operator, since.path, since.far, since.viewed) == ("since_within", -1, False, False)
    assert [parts.constants[number] for number in since.constants] == [100, 2_000_000]
    assert (once.operator, once.path, once.far, once.viewed) == ("once", -1, False, True)
    assert [parts.constants[number] for number in once.constants] == [101]
    assert parts.sliced == {-1}
    parts = parts_of()
    since, once = parts.reader(rule, 0, memories_of(rule)).members  # type: ignore[union-attr]
    assert (since.operands, once.operands, parts.facts) == ((), (), ())
    assert parts.constants == [100, 2_000_000, 101]


@pytest.mark.parametrize(("secs", "far"), [(500_000_000_000, False), (500_000_000_001, True)])
def test_a_window_is_far_if_its_start_may_be_before_all_time(secs: int, *, far: bool) -> None:
    for rule in (OnceWithin(parse("a == 5"), secs), parse(f"count(a == 5) within {secs}s > 2")):
        shape = parts_of().shape(rule, 0, memories_of(rule))
        assert isinstance(shape, Memory | Aggregate)
        assert shape.far is far


def test_keys_are_numbered_from_the_outermost_and_their_facts_come_first() -> None:
    rule = parse("per k per j once a == 5")
    parts = parts_of()
    shape = parts.shape(rule, 0, memories_of(rule))
    assert (parts.facts, parts.paths, parts.sliced) == (("k", "j", "a"), (("k",), ("k", "j")), {1})
    assert isinstance(shape, Slice)
    assert isinstance(shape.inner, Slice)
    assert (shape.path, shape.inner.path, shape.inner.inner.path) == (0, 1, 1)  # type: ignore[union-attr]


def test_a_where_is_tested_unless_a_table_has_done_so() -> None:
    rule = parse("per k where b == 6 once a == 5")
    shape = parts_of().shape(rule, 0, memories_of(rule))
    assert isinstance(shape, Slice)
    assert isinstance(shape.where, Predicate)
    read = parts_of().reader(rule, 0, memories_of(rule))
    assert isinstance(read, Slice)
    assert read.where is None
    now = parse("per k where b == 6 a == 5")
    read = parts_of().reader(now, 0, {})
    assert isinstance(read, Slice)
    assert isinstance(read.where, Predicate)


def test_an_updater_writes_one_memory_and_reads_those_inside() -> None:
    node = parse("once (a == 5 and once b == 6)")
    parts = parts_of()
    shape = parts.updater(node, (), 0, memories_of(node))
    assert isinstance(shape, Memory)
    [(name, operand)] = shape.operands
    assert (name, shape.path) == ("inner", -1)
    assert isinstance(operand, Junction)
    assert isinstance(operand.members[1], Memory)
    assert operand.members[1].operands == ()
    keyed = {(each, ("k", *path)): memory for (each, path), memory in memories_of(node).items()}
    parts = parts_of()
    shape = parts.updater(node, ("k",), 0, keyed)
    assert isinstance(shape, Slice)
    assert (shape.path, parts.paths, shape.where) == (0, (("k",),), None)
    keyed = {(each, ("k", "j", *path)): memory for (each, path), memory in memories_of(node).items()}
    parts = parts_of()
    shape = parts.updater(node, ("k", "j"), 0, keyed)
    assert isinstance(shape, Slice)
    assert (shape.path, parts.paths, parts.facts[:2]) == (1, (("k",), ("k", "j")), ("k", "j"))


@pytest.mark.parametrize(
    ("rule", "measure", "op", "limits"),
    [
        ("count(a == 5) >= 3", "number", "gte", [3]),
        ("count(a == 5) > 3", "number", "gte", [4]),
        ("count(a == 5) < 3", "number", "lt", [3]),
        ("count(a == 5) <= 3", "number", "lt", [4]),
        ("count(a == 5) == 3", "number", "eq", [3, 4]),
        ("count(a == 5) != 3", "number", "neq", [3, 4]),
        ("count(a == 5) == 0", "number", "eq", [1]),
        ("count(a == 5) >= 0", "number", "gte", []),
        ("count(a == 5) > 0", "number", "gte", [1]),
        ("distinct(a) > 3", "number", "gte", [4]),
        ("sum(a) > 3", "sum", "gt", [3]),
        ("avg(a) <= 3", "mean", "lte", [3]),
        ("sum(a) > 3 * b", "sum", "gt", [3.0]),
    ],
)
def test_a_comparison_over_the_past_has_its_limits(
    rule: str, measure: str, op: str, limits: list[float]
) -> None:
    condition, parts = parse(rule), parts_of()
    shape = parts.shape(condition, 0, memories_of(condition))
    assert isinstance(shape, Aggregate)
    assert (shape.measure, shape.op, shape.path, shape.far, shape.viewed) == (measure, op, -1, False, False)
    assert [parts.constants[number] for number in shape.limits] == limits
    assert [parts.constants[number] for number in shape.constants] == [100]
    assert shape.facts == (() if "count" in rule else (0, 1) if "* b" in rule else (0,))
    assert (parts.facts[-1] if "* b" in rule else "b") == "b"
    assert parts.sliced == {-1}
    read = parts_of().reader(condition, 0, memories_of(condition))
    assert isinstance(read, Aggregate)
    assert read.added is None


@pytest.mark.parametrize(
    ("rule", "added"),
    [
        ("count(a == 5) > 1", Predicate("scalar", (0,), (2,))),
        ("distinct(a) > 1", Predicate("present", (0,), ())),
        ("sum(a) > 1", Predicate("present", (0,), ())),
        ("sum(a) > 1 * b", Predicate("present", (0,), ())),
        (
            "avg(a where b == 5) > 1",
            Junction("and", (Predicate("present", (0,), ()), Predicate("scalar", (1,), (2,)))),
        ),
    ],
)
def test_an_event_counts_if_it_has_the_fact_and_what_is_asked_is_true(rule: str, added: Any) -> None:
    condition = parse(rule)
    shape = parts_of().shape(condition, 0, memories_of(condition))
    assert isinstance(shape, Aggregate)
    assert shape.added == added


def test_rules_with_equal_lists_share_the_set() -> None:
    first, second = parts_of(), parts_of()
    for parts in (first, second):
        parts.shape(parse("a in [11, 12]"), 0, {})
    assert first.constants[0] is second.constants[0]
