"""Warnings about conditions that are valid but probably not meant."""

from typing import Any

import pytest

from engine.evaluation.facts.look_up import split_name, value_of
from engine.language.hints.samples import NAMES_MAX, PATH_CHARS_MAX, Sample
from engine.language.hints.warnings import ConditionWarning, condition_warnings
from engine.language.text.parser import parse

EVENT: dict[str, Any] = {
    "user": 1234,
    "ip": "10.0.0.1",
    "ok": True,
    "tags": ["a", "b"],
    "geo": {"city": "Ulm", "at": {"lat": 48.4}},
    "note": None,
    "empty": [],
    "files": [{"name": "a", "size": 5}, {"name": "b", "old": None}],
}
VARS = {"blocklist": [1, 2], "limit": 5, "owns": [["ann", 1]]}


def warned(text: str, *events: dict[str, Any], sent: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    sample = Sample()
    for event in events or (EVENT,):
        sample.add(event, sent)
    return [tuple(warning) for warning in condition_warnings(parse(text), sample)]


@pytest.mark.parametrize(
    "text",
    [
        "user == 1234 and user in [1, 2] and user between 1 and 5 and user > 3",
        'ip == "a" and ip matches "x" and ip contains "x" and ip between "a" and "b"',
        'tags contains "a" and tags == ["a"] and empty contains 5',
        'geo.city == "Ulm" and geo.at.lat > 5',
        "per user (once ok == true)",
        "user in []",
        'owns(ip, user) and owns("ann", user)',
        "$limit == 5",
        "ip == geo.city",
        "ip in tags",
        "sum(user where ok == true) > 5 and avg(geo.at.lat) < 0.5 * user",
        "distinct(ip) > 5 and distinct(ok) > 0 and distinct(user) <= 0",
        "count(ok == true) > 0 and count(ok == true) == 0",
        "count(ok == true) >= 1 and count(ok == true) < 1",
        "per user where ok == true previous ip == geo.city",
        'ip in network "10.0.0.0/8" and exists user and missing empty',
        'some files (name endswith "a" and size > 1) and some tags (it == "a")',
        "some empty (whatever == 1) and some files (name == $limit)",
    ],
)
def test_what_can_be_true_is_not_warned_about(text: str) -> None:
    assert warned(text) == []


def test_names_and_types_in_elements_are_those_of_the_elements() -> None:
    assert warned("some files (nam == 1 and user == 1)") == [
        ("some.inner.all[0].leaf.fact", "no element of `files` has `nam`; did you mean `name`?"),
        ("some.inner.all[1].leaf.fact", "no element of `files` has `user`"),
    ]
    assert warned('some files (old == 1 and size == "5")') == [
        (
            "some.inner.all[0].leaf.fact",
            "`old` is null in every element of `files` that has it, as if it were missing",
        ),
        (
            "some.inner.all[1].leaf.value",
            '`size == "5"` is always false: `size` is a number in every event that has it, never a string',
        ),
    ]
    assert warned("some user (it == 1) or some usr (it == 1)") == [
        (
            "any[0].some.fact",
            "`user` is a number in every event that has it: `some user (it == 1)` is always false",
        ),
        ("any[1].some.fact", "no event has `usr`; did you mean `user`?"),
    ]


def test_a_fact_that_is_no_text_is_in_no_network() -> None:
    assert warned('user in network "10.0.0.0/8"') == [
        (
            "in_network.fact",
            '`user` is a number in every event that has it: `user in network "10.0.0.0/8"` is always false',
        )
    ]


def test_a_name_of_the_context_is_not_suggested_for_a_fact_nor_the_other_way_round() -> None:
    assert warned("limt == 5", sent=VARS) == [("leaf.fact", "no event has `limt`")]
    assert warned("$usr == 5", sent=VARS) == [("leaf.fact", "no event has `$usr`")]


def test_an_unknown_fact_is_reported_once_with_the_nearest_name() -> None:
    assert warned("usr == 1 or once usr == 2") == [
        ("any[0].leaf.fact", "no event has `usr`; did you mean `user`?")
    ]
    assert warned("per USER (once ok == true)") == [
        ("keyed.key", "no event has `USER`; did you mean `user`?")
    ]
    assert warned("once within 5m lat > 1") == [
        ("once_within.inner.all[0].leaf.fact", "no event has `lat`; did you mean `geo.at.lat`?")
    ]
    assert warned("something == else_") == [
        ("ref.fact", "no event has `something`"),
        ("ref.reference", "no event has `else_`"),
    ]


def test_unknown_facts_of_aggregates_are_reported() -> None:
    assert warned(
        "sum(usr) > 2 * lmit and distinct(ups) > 1 and per usr2 where ookk == true earlier ok == true"
    ) == [
        ("all[0].sum.fact", "no event has `usr`; did you mean `user`?"),
        ("all[0].sum.value.fact", "no event has `lmit`"),
        ("all[1].distinct.fact", "no event has `ups`"),
        ("all[2].keyed.key", "no event has `usr2`; did you mean `user`?"),
        ("all[2].keyed.where.leaf.fact", "no event has `ookk`; did you mean `ok`?"),
    ]


def test_a_fact_that_is_always_null_is_reported() -> None:
    assert warned("not note == 1") == [
        ("not.leaf.fact", "`note` is null in every event that has it, as if it were missing")
    ]


SEEN = "in every event that has it"


@pytest.mark.parametrize(
    ("text", "place", "is_", "never"),
    [
        ('user == "1234"', "leaf.value", "`user` is a number", "a string"),
        ("ip > 5", "all[0].leaf.value", "`ip` is a string", "a number"),
        ('user matches "1.*"', "leaf.value", "`user` is a number", "a string"),
        ('user contains "1"', "leaf.value", "`user` is a number", "a string or an array"),
        ("ip == ok", "ref.reference", "`ip` is a string", "a boolean"),
        ("user not in ip", "ref.reference", "`ip` is a string", "an array"),
        ("user in tags", "ref.reference", "`user` is a number", "a string"),
    ],
)
def test_types_that_never_meet_are_reported(text: str, place: str, is_: str, never: str) -> None:
    assert warned(text) == [(place, f"`{text}` is always false: {is_} {SEEN}, never {never}")]


@pytest.mark.parametrize("text", ['user != "1234"', 'user not in ["1"]'])
def test_what_is_always_true_is_reported(text: str) -> None:
    said = f"`{text}` is true wherever `user` is there: `user` is a number {SEEN}, never a string"
    assert warned(text) == [("leaf.value", said)]


NO_KEY = "only strings, numbers and booleans are keys, so that this `per` is always false"
NO_VALUE = "only strings, numbers and booleans are counted, so that their number is always 0"
NO_RELATION = "relations hold strings, numbers and booleans; `owns(tags)` is always false"
NO_MEAN = "only numbers count, so that a comparison of the mean is always false"
NO_SUM = "only numbers count, so that the sum is always 0"
OF_TAGS = "`tags contains 1` is always false: the arrays in `tags` hold a string"
FALSE = "always false"
OF_IP = "`ip == 5` is always false: `ip` is a string in every event that has it, never a number"


@pytest.mark.parametrize(
    ("text", "place", "sentence"),
    [
        ("tags contains 1", "leaf.value", OF_TAGS),
        ("something == ip", "ref.fact", "no event has `something`"),
        (
            "ip == something",
            "ref.reference",
            'no event has `something`; a bare word is a name; write the string as "something"',
        ),
        ("ok == flase", "ref.reference", "no event has `flase`; did you mean `false`?"),
        ("owns(tags)", "in_relation.args[0].fact", f"`tags` is an array {SEEN}: {NO_RELATION}"),
        ("per geo (once ok == true)", "keyed.key", f"`geo` is an object {SEEN}: {NO_KEY}"),
        ("distinct(tags) > 1", "distinct.fact", f"`tags` is an array {SEEN}: {NO_VALUE}"),
        (
            "sum(ip) > 1",
            "sum.fact",
            f"`ip` is a string {SEEN}: {NO_SUM}",
        ),
        ("avg(ok where user == 1) > 1", "avg.fact", f"`ok` is a boolean {SEEN}: {NO_MEAN}"),
        (
            "avg(user) > 2 * ip",
            "avg.value.fact",
            f"`ip` is a string {SEEN}: `avg(user) > 2 * ip` is always false",
        ),
        ("sum(user) > ip", "sum.value.fact", f"`ip` is a string {SEEN}: `sum(user) > ip` is {FALSE}"),
        ("sum(user where ip == 5) > 3", "sum.where.leaf.value", OF_IP),
        ("per user where ip == 5 previous ok == true", "keyed.where.leaf.value", OF_IP),
    ],
)
def test_what_cannot_be_computed_is_reported(text: str, place: str, sentence: str) -> None:
    assert warned(text) == [(place, sentence)]


def test_types_that_meet_in_one_event_are_not_reported() -> None:
    assert warned('user == "1234"', {"user": 1}, {"user": "1234"}) == []
    assert warned("user == true", {"user": 1}, {"user": "1234"}) == [
        (
            "leaf.value",
            (
                "`user == true` is always false: `user` is a number or a string in every event "
                "that has it, never a boolean"
            ),
        )
    ]


def test_names_in_vars_are_checked_only_if_vars_came_with_events() -> None:
    assert warned("$limmit > 1 and $blocklist contains 3", sent=VARS) == [
        ("all[0].all[0].leaf.fact", "no event has `$limmit`; did you mean `$limit`?")
    ]
    assert warned("ip in $blocklist", sent=VARS) == [
        (
            "ref.reference",
            "`ip in $blocklist` is always false: `ip` is a string in every event that has it, never a number",
        )
    ]
    assert warned("$limmit > 1 and limit > 3") == [("all[1].all[0].leaf.fact", "no event has `limit`")]


def test_an_unknown_relation_is_reported_once() -> None:
    condition = parse("count(ip) and (once count(user)) and owns(ip) and listd(ip)")
    sample = Sample()
    sample.add(EVENT, VARS)
    assert condition_warnings(condition, sample, ["listed"]) == [
        ConditionWarning(
            "all[0].in_relation.relation",
            (
                "`count(ip)` looks in the relation `count`, which is not known: unless it is sent in "
                "`context.vars`, that is always false"
            ),
        ),
        ConditionWarning(
            "all[3].in_relation.relation",
            (
                "`listd(ip)` looks in the relation `listd`, which is not known: unless it is sent in "
                "`context.vars`, that is always false; did you mean `listed`?"
            ),
        ),
    ]
    assert [place for place, _ in condition_warnings(condition, relations=())] == [
        "all[0].in_relation.relation",
        "all[2].in_relation.relation",
        "all[3].in_relation.relation",
    ]


def test_without_a_sample_and_relations_there_are_no_warnings() -> None:
    assert condition_warnings(parse('usr == "1" and count(usr)')) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"a": {"b": {"c": 1}}, "a.b": {"c": "x"}},
        {"a.b.c": None, "a": {"b": {"c": 1}}},
        {"a": {"b.c": 1, "b": 2}, "x.y": {"z": 1}},
        {"": {"a": 1}, "a": {"": True}},
        {"a": [{"b": 1}], "b": [[1], {}]},
    ],
)
def test_a_sample_has_exactly_the_names_that_look_up_finds(fields: dict[str, Any]) -> None:
    sample = Sample()
    sample.add(fields)
    words = ["", "a", "b", "c", "x", "y", "z"]
    names = {*words, *fields, *(f"{p}.{q}" for p in words for q in words)}
    names |= {f"{name}.{word}" for name in names for word in words}
    for name in names:
        found = value_of(split_name(name), fields, {})
        assert bool(sample.types(name)) == (found is not None), name


def test_a_sample_of_more_names_than_anyone_has_is_given_up() -> None:
    sample = Sample()
    sample.add({"a": 1})
    sample.add({f"f{number}": 1 for number in range(NAMES_MAX - 1)})
    assert condition_warnings(parse("b == 1"), sample)
    assert not sample.overflows
    sample.add({"one": "more"})
    assert sample.overflows
    assert sample.names() == frozenset()
    sample.add({"a": 1})
    assert condition_warnings(parse("b == 1 and a == 'x'"), sample) == []


def test_long_paths_are_not_repeated_for_every_member() -> None:
    sample = Sample()
    inner = {f"m{number}": 1 for number in range(100)}
    sample.add({"x" * PATH_CHARS_MAX: inner, "y" * (PATH_CHARS_MAX - 1): inner, "z": {"z" * 2_000: inner}})
    assert len(sample.names()) == 3 + 100 + 1


@pytest.mark.parametrize(
    "text",
    [
        "user > 2 * prev(user) and ip != prev(ip) and length(tags) > length(ip)",
        "now() - time(ip) > 60 and user - geo.at.lat > abs(user / 2)",
        "max(user) > min(geo.at.lat) and last(ok where user == 1) == ok",
    ],
)
def test_terms_that_can_have_a_value_are_not_warned_about(text: str) -> None:
    assert warned(text) == []


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("usr > 2 * user", "compare.left.fact", "no event has `usr`; did you mean `user`?"),
        ("user > 2 * prev(usr)", "compare.right.mul[1].prev", "no event has `usr`"),
        ("user > user + ip", "compare.right.add[1].fact", "`ip` is a string in every event that has it: "),
        ("user > tags", "compare.right.fact", "`tags` is an array in every event that has it: "),
        ("length(user) > 5", "compare.left.length", "`user` is a number in every event that has it: "),
        ("now() > time(user)", "compare.right.time", "`user` is a number in every event that has it: "),
        ("x > y or not last(tags) == ip", "any[1].not.compare.left.last.fact", "`tags` is an array"),
        ("user > avg(ip)", "compare.right.avg.fact", "there is nothing to compute in `user > avg(ip)`"),
        ("5 > age(usr == 1)", "compare.right.age.leaf.fact", "no event has `usr`"),
    ],
)
def test_a_term_without_a_value_is_warned_about(text: str, place: str, told: str) -> None:
    found = dict(warned(text))
    assert told in found[place]
