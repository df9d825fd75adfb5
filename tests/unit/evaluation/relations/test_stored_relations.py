"""Relations of a detector: what is put, changed, deleted, listed and paged, and what is refused."""

import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Detector, Limits, Refusal, explain
from engine.evaluation.persistence.capturing import capture
from engine.evaluation.persistence.packing import packed
from engine.evaluation.persistence.saved import dump
from engine.evaluation.relations import relation_book
from engine.evaluation.relations import stored as parts
from engine.evaluation.relations.builder import RelationBuilder
from engine.evaluation.relations.stored import CHUNK, TupleRefused
from engine.evaluation.rule_book.rule_messages import condition_messages


def names(detector: Detector, sent: Any = None, **fields: Any) -> list[str]:
    return [action["name"] for action in detector.evaluate(fields, 0, sent)]


def tuples(detector: Detector, name: str = "r") -> list[Any]:
    return detector.relation_page(name, 0, 10_000).tuples


def reloaded(detector: Detector) -> Detector:
    return Detector.load(detector.dump(), Detector.STATE_VERSION)


def test_types_stay_apart_and_numbers_are_equal_by_value() -> None:
    detector = Detector()
    detector.add_rule("r", "r(x)")
    detector.put_relation("r", [1, "2", True, 0.5, 1 << 70], 0)
    for there in (1, 1.0, "2", True, 0.5, 1 << 70, float(1 << 70)):
        assert names(detector, x=there) == ["r"], there
    for other in ("1", 2, False, 0, "true", (1 << 70) + 1, [1], {"a": 1}, None):
        assert names(detector, x=other) == [], other
    assert tuples(reloaded(detector)) == tuples(detector) == [[1], ["2"], [True], [0.5], [1 << 70]]


def test_a_change_is_seen_before_cached_look_ups_are_dropped() -> None:
    detector, sent = Detector(), dict[str, Any]()
    detector.add_rule("r", "r(x)")
    detector.put_relation("r", [], 0)
    assert not detector.submit_clean([({"x": 1}, 0, sent)]).fired[0]
    detector.put_relation("r", [1], 0)
    assert detector.submit_clean([({"x": 1}, 0, sent)]).fired[0]


def test_message_2003_names_only_what_is_neither_stored_nor_sent() -> None:
    detector = Detector()
    detector.add_rule("r", "r(x) or x in network s")
    codes = lambda sent=None: [message.code for message in detector.submit({"x": 1}, 0, sent).messages]  # noqa: E731
    assert codes() == [2003, 2003]
    detector.put_relation("r", [], 0)
    assert codes() == [2003]
    assert [*detector.submit_clean([({"x": 1}, 0, {})]).messages] == [0]
    assert codes({"s": []}) == []
    detector.put_relation("s", [], 0)
    assert codes() == []
    assert not detector.submit_clean([({"x": 1}, 0, {})]).messages
    [rule] = detector.rules()
    assert condition_messages(rule.condition, detector.stored) == []
    assert len(condition_messages(rule.condition, ["r"])) == 1
    assert explain(detector, {"x": "a"}, 0).rules[0].node.nodes[0].note is None
    detector.delete_relation("r")
    assert codes() == [2003]
    note = explain(detector, {"x": "a"}, 0).rules[0].node.nodes[0].note
    assert "neither stored nor sent" in str(note)


@pytest.mark.parametrize(
    ("given", "index"),
    [
        ([["a"], ["b", "c"]], 1),
        ([["a"], "b", ["c", 1], [1, 2]], 2),
        ([[], ["a"]], 1),
        (["a", None], 1),
        (["a", ["b"], [["c"]]], 2),
        ([1, {"a": 1}], 1),
        ([1.5, float("nan")], 1),
        ([1, float("inf")], 1),
    ],
)
def test_a_refused_tuple_is_named_and_changes_nothing(given: list[Any], index: int) -> None:
    detector = Detector()
    detector.put_relation("r", ["before"], 5)
    for change in (
        lambda: detector.put_relation("r", given, 6),
        lambda: detector.put_relation("s", given, 6),
    ):
        with pytest.raises(TupleRefused, match=rf"tuples\[{index}\]: expected") as refused:
            change()
        assert (refused.value.code, refused.value.index) == (1001, index)
        assert pickle.loads(pickle.dumps(refused.value)).index == index
    with pytest.raises(TupleRefused):
        detector.change_relation("r", add=["c", ["d", "e"]], remove=["before"], time_ms=6)
    with pytest.raises(TupleRefused):
        detector.change_relation("r", remove=[["d", "e"]], time_ms=6)
    assert [(one.name, one.tuples, one.changed_ms) for one in detector.relations()] == [("r", 1, 5)]
    assert tuples(detector) == [["before"]]


def test_an_index_counts_through_all_pieces() -> None:
    builder = RelationBuilder(Limits())
    builder.add(["a", "b"])
    with pytest.raises(TupleRefused) as refused:
        builder.add(["c", ["d", "e"]])
    assert refused.value.index == 3


def test_a_relation_that_is_built_in_pieces_is_refused_at_the_piece_that_is_too_much() -> None:
    builder = RelationBuilder(Limits(relations_bytes_max=10_000))
    builder.add(["a" * 1_000])
    with pytest.raises(Refusal) as refused:
        builder.add(["b" * 10_000])
    assert refused.value.code == 1400


@pytest.mark.parametrize("name", ["", "a\x00", "x" * 256])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(Refusal) as refused:
        Detector().put_relation(name, [], 0)
    assert refused.value.code == 1001


def test_a_relation_that_is_not_there_is_1203() -> None:
    detector = Detector()
    for ask in (
        lambda: detector.delete_relation("r"),
        lambda: detector.relation_page("r"),
        lambda: detector.change_relation("r", add=[1], time_ms=0),
    ):
        with pytest.raises(Refusal) as refused:
            ask()
        assert refused.value.code == 1203
    assert detector.relations() == []


def test_bounds_on_tuples_and_bytes_and_relations(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector(limits=Limits(relation_tuples_max=3, relations_bytes_max=6_000))
    detector.put_relation("r", [1, 2, 3, 3, 1], 0)

    def is_full(change: Any) -> bool:
        before = detector.dump()
        with pytest.raises(Refusal) as refused:
            change()
        assert detector.dump() == before
        return refused.value.code == 1400

    assert is_full(lambda: detector.put_relation("r", [1, 2, 3, 4], 0))
    assert is_full(lambda: detector.change_relation("r", add=[4], time_ms=0))
    detector.change_relation("r", add=[4], remove=[1], time_ms=0)
    assert is_full(lambda: detector.put_relation("s", ["x" * 6_000], 0))
    assert is_full(lambda: detector.put_relation("s", ["x" * 2_000], 0))
    detector.put_relation("s", ["x"], 0)
    assert detector.relations_bytes == sum(one.bytes for one in detector.relations())
    monkeypatch.setattr(relation_book, "RELATIONS_MAX", 2)
    assert is_full(lambda: detector.put_relation("t", [], 0))
    detector.put_relation("s", [], 0)
    # A bound that was lowered does not keep relations from becoming smaller.
    smaller = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=Limits(relations_bytes_max=2_200))
    smaller.change_relation("r", remove=[2], time_ms=0)
    assert tuples(smaller) == [[3], [4]]


def test_a_tuple_that_is_removed_and_added_is_there_and_an_empty_relation_takes_another_length() -> None:
    detector = Detector()
    detector.put_relation("r", ["a", "b"], 0)
    detector.change_relation("r", add=["a"], remove=["a"], time_ms=0)
    assert tuples(detector) == [["b"], ["a"]]
    changed = detector.change_relation("r", add=[[1, 2]], remove=["a", "b", "c"], time_ms=9)
    assert (changed.arity, len(changed), changed.changed_ms) == (2, 1, 9)
    assert detector.change_relation("r", remove=[[1, 2]], time_ms=9).arity is None
    detector.put_relation("none", [[]], 0)
    detector.add_rule("none", {"in_relation": {"relation": "none", "args": []}})
    assert names(detector) == names(reloaded(detector)) == ["none"]


def test_what_a_relation_takes_does_not_depend_on_how_it_came_to_be(seed: int) -> None:
    drawn = random.Random(seed)
    ways, values = Detector(), ["a", "b" * 40, 1, "10.0.0.1", "10.0.0.1/32", "10.0.0.0/8", True, 2.5]
    ways.put_relation("r", [], 0)
    for _ in range(200):
        ways.change_relation("r", drawn.choices(values, k=2), drawn.choices(values, k=3), time_ms=0)
        fresh = Detector()
        fresh.put_relation("r", tuples(ways), 0)
        assert ways.relations_bytes == fresh.relations_bytes == reloaded(ways).relations_bytes


def walked(detector: Detector, limit: int) -> Iterator[Any]:
    after: int | None = 0
    while after is not None:
        page, after = detector.relation_page("r", after, limit)
        assert len(page) <= limit
        yield page


@pytest.mark.parametrize("small", [4_096, 10])
def test_pages_have_every_tuple_once_in_the_order_in_which_they_came(
    small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_SMALL_MAX", small)
    detector, every = Detector(), [[number] for number in range(3 * CHUNK + 5)]
    builder = RelationBuilder(detector.limits)
    for first in range(0, len(every), 100):
        builder.add(every[first : first + 100])
    detector.install_relation("r", builder.built(0))
    for limit in (1, 7, CHUNK, 10_000):
        assert [row for page in walked(detector, limit) for row in page] == every
    # Half of each page is deleted, and more comes, before the next one.
    seen = list[Any]()
    for page in walked(detector, 50):
        detector.change_relation("r", add=[[-1], [-2]], remove=page[::2], time_ms=0)
        seen += page
    assert seen == [*every, [-1], [-2]]
    assert tuples(reloaded(detector)) == tuples(detector)


def test_a_capture_keeps_what_was_there_when_it_was_taken() -> None:
    detector = Detector()
    detector.put_relation("r", range(5_000), 0)
    detector.put_relation("s", ["a"], 0)
    before, captured = dump(detector), capture(detector)
    pieces = packed(captured)
    written = [next(pieces) for _ in range(8)]
    detector.change_relation("r", add=["new"], remove=range(0, 5_000, 2), time_ms=1)
    detector.delete_relation("s")
    assert b"".join([*written, *pieces]) == before


def test_a_fork_keeps_the_relations_that_there_were() -> None:
    detector = Detector()
    detector.add_rule("r", "r(x)")
    detector.put_relation("r", ["a"], 0)
    fork = detector.fork([])
    detector.change_relation("r", remove=["a"], time_ms=0)
    fork.put_relation("s", ["a"], 0)
    assert (names(fork, x="a"), names(detector, x="a")) == (["r"], [])
    assert [one.name for one in detector.relations()] == ["r"]


def test_networks_of_a_relation() -> None:
    detector = Detector()
    detector.add_rule("n", "ip in network r")
    detector.put_relation(
        "r", ["10.0.0.0/8", "10.1.0.0/16", "10.1.0.0/016", "::ffff:192.168.0.1", "2001:db8::/32", "x", 7], 0
    )
    there = ("10.1.2.3", "::ffff:10.1.2.3", "192.168.0.1", "2001:db8::5")
    for ip in there:
        assert names(detector, ip=ip) == names(reloaded(detector), ip=ip) == ["n"]
    for ip in ("11.0.0.1", "192.168.0.2", "2001:db9::5", "fe80::1%0", "x", 7):
        assert names(detector, ip=ip) == []
    detector.change_relation("r", remove=["10.0.0.0/8", "10.1.0.0/016"], time_ms=0)
    assert names(detector, ip="10.1.2.3") == ["n"]
    assert names(detector, ip="10.2.2.3") == []
    detector.change_relation("r", remove=["10.1.0.0/16"], time_ms=0)
    assert names(detector, ip="10.1.2.3") == []
    detector.put_relation("r", [["10.0.0.0/8", "a"]], 0)
    assert names(detector, ip="10.1.2.3") == []
