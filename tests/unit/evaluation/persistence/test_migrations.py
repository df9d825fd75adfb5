"""State of older versions is taken up: `golden/state_VERSION_*.msgpack` were written by those versions."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from engine.evaluation.dispatch import rule_set
from engine.evaluation.persistence.migrations import migrated
from engine.evaluation.state.storage import columns
from engine.evaluation.state.storage.pages import PAGE_SLOTS

from engine import Detector, Limits, parse
from engine.evaluation.persistence.capturing import capture
from engine.evaluation.persistence.packing import numbers_packed, numbers_unpacked
from engine.evaluation.persistence.saved import unpack, version_of
from engine.evaluation.times import FOREVER, NEVER
from tests.differential import fused

GOLDEN = Path(__file__).parent / "golden"
LIMITS = Limits(keys_max=6)
RULES = (
    "per k once within 10s a == 1",
    "per k historically a == 1",
    "per k per j (a == 1 since b == 1)",
    "once b == 1",
    "historically for 3s strong not a == 1",
    "per j historically for 2s a between 0 and 5",
    "a == 1",
)
COUNTING_RULES = (
    "per k previous a == 1",
    "per k earlier within 10s a == 1",
    "earlier b == 1",
    "per k count(a == 1) within 10s >= 2",
    "count(b == 1) > 3",
    "per j distinct(k) within 10s > 2",
    "a == 1",
    "distinct(k where a == 1) == 3",
    "per k sum(a) within 20s > 3 * b",
    "avg(j where a > 1) within 5s >= 1",
    "per j where (b == 1 and not previous b == 1) once within 10s a == 1",
    "per j where b == 1 per k count(a > 0) within 10s == 1",
)
NESTED = "per j once within 2s (b == 1 and not once within 1s a == 1)"
MORE_RULES = tuple(f'type == "t{number}" and per k once within 5s a == {number}' for number in range(6))


def evaluate(detector: Detector, number: int) -> list[str]:
    key = (1, "x", True, 2.5, 10**30)[number % 5]
    fields = {
        "k": key,
        "j": number % 3,
        "a": (number * 7) % 4,
        "b": (number // 6) % 2,
        "type": f"t{number % 6}",
    }
    return [action["ruleId"] for action in detector.evaluate(fields, number * 450)]


def newly_made(rules: tuple[str, ...]) -> Detector:
    """Give a detector that has seen the same events as the golden ones when they were saved."""
    numbers = itertools.count()
    made = Detector(limits=LIMITS, new_id=lambda: f"{next(numbers):032x}")
    for number, rule in enumerate(rules):
        made.add_rule(f"rule {number}", rule)
    made.change_rule(f"{6:032x}", enabled=False)
    for number in range(40):
        evaluate(made, number)
    return made


def made_apart() -> Detector:
    """Give a detector whose rules share memories though they were made at different times."""
    made = newly_made(RULES + MORE_RULES)
    for number in range(40, 60):
        made.add_rule(f"rule {number}", RULES[number % 3], rule_id=f"{number:032x}")
        evaluate(made, number)
    assert made.state.joined
    return made


@pytest.mark.parametrize(
    ("version", "name", "rules"),
    [
        (1, "few", RULES),
        (1, "many", RULES + MORE_RULES),
        (2, "few", RULES),
        (2, "many", RULES + MORE_RULES),
        (2, "paged", RULES + MORE_RULES),
        (3, "few", RULES),
        (3, "many", RULES + MORE_RULES),
        (3, "paged", RULES + MORE_RULES),
        (4, "few", RULES),
        (4, "many", RULES + MORE_RULES),
        (4, "paged", RULES + MORE_RULES),
        (5, "few", RULES),
        (5, "many", RULES + MORE_RULES),
        (5, "paged", RULES + MORE_RULES),
        (6, "few", RULES),
        (6, "many", RULES + MORE_RULES),
        (6, "paged", RULES + MORE_RULES),
        (6, "counting", COUNTING_RULES),
        (6, "many counting", COUNTING_RULES + MORE_RULES),
        (7, "few", RULES),
        (7, "many", RULES + MORE_RULES),
        (7, "paged", RULES + MORE_RULES),
        (7, "counting", COUNTING_RULES),
        (7, "many counting", COUNTING_RULES + MORE_RULES),
    ],
)
def test_a_detector_of_an_older_version_goes_on_as_if_it_had_always_been_of_this_one(
    version: int, name: str, rules: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(8))
    saved = (GOLDEN / f"state_{version}_{name.replace(' ', '_')}.msgpack").read_bytes()
    loaded = Detector.load(saved, version, limits=LIMITS)
    made = newly_made(rules)
    assert [rule.condition for rule in loaded.rules()] == [rule.condition for rule in made.rules()]
    assert loaded.state.live == made.state.live == 6
    assert loaded.state.indexed is made.state.indexed
    for number in range(40, 90):
        assert evaluate(loaded, number) == evaluate(made, number), number
        if number % 10 == 0:
            loaded = Detector.load(loaded.dump(), Detector.STATE_VERSION, limits=LIMITS)


MARKS = ("clock_us", "events_seen", "priority_highest", "rules", "indexed", "previous_us")
ARRAYS = dict.fromkeys(("held", "times", "first_ticks", "first_times"), b"")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_memory_of_an_older_version_keeps_its_birth(version: int) -> None:
    document = unpack((GOLDEN / f"state_{version}_few.msgpack").read_bytes())
    for birth, memory in enumerate(document["memories"], 1):
        memory[2] = birth
    births = [memory[2] for memory in migrated(document, version)["memories"]]
    assert births == [*range(1, 1 + len(births))]


def test_the_keys_of_version_1_get_slots_and_what_it_kept_of_others_is_left_out() -> None:
    document: dict[str, Any] = {
        **dict.fromkeys(MARKS),
        "clock_us": 9,
        "events_seen": 7,
        # One of them was evicted, and one is there twice.
        "tables": [[["k"], [["a"], ["b"], ["a"], ["c"]], [4, None, 5, 6], 2]],
        "memories": [
            [b"", ["k"], 0, [[0, 10], [1, 20], [2, 30], [3, 40]]],
            [b"", [], 0, None],
            [b"", [], 0, 50],
        ],
    }
    made = migrated(document, 1)
    assert [table["keys"] for table in made["tables"]] == [["a", "c"]]
    assert [[*numbers_unpacked(table["seen"])] for table in made["tables"]] == [[4, 6]]
    keyed, never, once = [memory[3] for memory in made["memories"]]
    assert [[*numbers_unpacked(numbers)] for numbers in keyed["few"]] == [[0, 1], [10, 40]]
    assert (keyed["whole_at"], never, once) == (7, [NEVER, 7], [50, 7]), "complete up to the last event"
    assert made["previous_us"] == 9
    assert migrated(document | {"clock_us": None}, 1)["previous_us"] == 0


def test_the_entries_of_version_2_are_counted_by_slot_and_by_page() -> None:
    def remembered(entries: dict[int, int], *, paged: bool) -> dict[str, Any]:
        slots, times = numbers_packed(entries), numbers_packed(entries.values())
        return {"slots": slots, "times": times, "paged": paged, "whole_at": 7, "ticks": [b"", b""]}

    few, many = {0: 10, 2: 20}, {0: 11, 1: 12, 300: 13}
    document = migrated(
        {
            **dict.fromkeys(MARKS),
            "tables": [
                {
                    "path": ["k"],
                    "keys": [[number] for number in range(301)],
                    "seen": numbers_packed(range(301)),
                }
                | ARRAYS,
                {"path": ["k", "j"], "keys": [["a", "b"], None], "seen": numbers_packed([1, 2])} | ARRAYS,
            ],
            "memories": [
                [b"", ["k"], 0, remembered(few, paged=False)],
                [b"", ["k"], 0, remembered(many, paged=True)],
                [b"", ["k", "j"], 0, remembered({}, paged=False)],
            ],
        },
        2,
    )
    assert [table["keys"] for table in document["tables"]] == [[*range(301)], [["a", "b"], None]]
    assert [[*numbers_unpacked(table["held"])] for table in document["tables"]] == [
        [2, 1, 1, *[0] * 297, 1],
        [0, 0],
    ]
    listed, paged, _ = [memory[3] for memory in document["memories"]]
    assert [[*numbers_unpacked(numbers)] for numbers in listed["few"]] == [[0, 2], [10, 20]]
    assert [[*numbers_unpacked(numbers)] for numbers in paged["counts"]] == [[0, 1], [2, 1]]
    times = numbers_unpacked(paged["pages"])
    assert len(times) == 2 * PAGE_SLOTS
    assert {slot: time for slot, time in enumerate(times) if time != NEVER} == many


@pytest.mark.parametrize(
    ("version", "table", "content"),
    [
        (3, {"seen": numbers_packed([5])}, {}),
        (3, {}, {"ticks": [numbers_packed([0, 1]), numbers_packed([5])]}),
        (2, {}, {"paged": True, "slots": numbers_packed([0])}),
    ],
)
def test_columns_of_different_lengths_are_no_state(
    version: int, table: dict[str, Any], content: dict[str, Any]
) -> None:
    sound = {"path": ["k"], "keys": ["a", None], "seen": numbers_packed([5, 3])} | ARRAYS
    empty = {
        "whole_at": 7,
        "few": [b"", b""],
        "ticks": [b"", b""],
        "paged": False,
        "slots": b"",
        "times": b"",
    }
    document = {
        **dict.fromkeys(MARKS),
        "tables": [sound | table],
        "memories": [[b"", ["k"], 0, empty | content]],
    }
    with pytest.raises(ValueError, match=r"shorter|longer"):
        migrated(document, version)


def test_what_version_3_kept_of_a_key_that_is_gone_is_left_out() -> None:
    table = {"path": ["k"], "keys": ["a", None], "seen": numbers_packed([5, 3]), "idle": b"", "turn": 0}
    ticks = [numbers_packed([0, 1, 2]), numbers_packed([5, 3, 4])]
    memory = {"whole_at": 7, "few": [b"", b""], "ticks": ticks, "swept": 0, "sweeping": b""}
    document = migrated(
        {
            **dict.fromkeys(("due", "doomed", *MARKS)),
            "tables": [table | ARRAYS],
            "memories": [[b"", ["k"], 0, memory], [b"", [], 0, [1, 2]]],
        },
        3,
    )
    assert document["tables"] == [
        {"path": ["k"], "keys": ["a", None], "seen": numbers_packed([5, FOREVER]), **ARRAYS}
    ]
    kept = {"whole_at": 7, "few": [b"", b""], "ticks": [numbers_packed([0]), numbers_packed([5])]}
    assert document["memories"] == [[b"", ["k"], 0, kept], [b"", [], 0, [1, 2]]]
    assert not document.keys() & {"due", "doomed"}


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("few", RULES),
        ("many", RULES + MORE_RULES),
        ("paged", RULES + MORE_RULES),
        ("counting", COUNTING_RULES),
        ("many counting", COUNTING_RULES + MORE_RULES),
    ],
)
def test_what_is_written_now_is_what_this_version_looks_like_to_the_byte(
    name: str, rules: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(8))
    if name == "paged":
        monkeypatch.setattr(columns, "PAGED_FROM", 0)
        monkeypatch.setattr(columns, "SPARSE_SHARE", 10**9)
    made = newly_made(rules)
    golden = GOLDEN / f"state_{version_of(capture(made))}_{name.replace(' ', '_')}.msgpack"
    assert made.dump() == golden.read_bytes()


@pytest.mark.parametrize("version", [5, 6, 7])
def test_rules_that_share_memories_are_written_and_go_on_as_they_did(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(8))
    saved = (GOLDEN / f"state_{version}_apart.msgpack").read_bytes()
    loaded, made = Detector.load(saved, version, limits=LIMITS), made_apart()
    assert made.dump() == (GOLDEN / "state_7_apart.msgpack").read_bytes()
    assert [evaluate(loaded, number) for number in range(60, 120)] == [
        evaluate(made, number) for number in range(60, 120)
    ]


def made_with_shadows() -> Detector:
    """Give a detector with a shadow rule, and with a draft that is compared with its rule."""
    made = newly_made(RULES)
    made.add_rule("shadow", RULES[0], rule_id=f"{40:032x}", shadow=True)
    made.add_rule(
        "draft",
        "a == 2 or per k once within 9s a == 1",
        rule_id=f"{41:032x}",
        shadow=True,
        draft_of=f"{0:032x}",
    )
    for number in range(40, 60):
        evaluate(made, number)
    return made


def test_shadow_rules_are_written_so_that_older_programs_refuse_them_and_are_read_as_they_were() -> None:
    saved, made = (GOLDEN / "state_8_shadows.msgpack").read_bytes(), made_with_shadows()
    assert made.dump() == saved
    assert version_of(capture(made)) == 8, "older programs would have them act"
    loaded = Detector.load(saved, 8, limits=LIMITS)
    assert loaded.rules() == made.rules()
    assert [(rule.shadow, rule.draft_of) for rule in loaded.rules()[-2:]] == [
        (True, None),
        (True, f"{0:032x}"),
    ]
    for number in range(60, 120):
        assert evaluate(loaded, number) == evaluate(made, number)
    compared, expected = loaded.comparison(f"{0:032x}"), made.comparison(f"{0:032x}")
    assert compared.dump() == expected.dump()
    assert min(compared.counts.values()) > 0
    for rule in made.rules()[-2:]:
        made.remove_rule(rule.id)
    assert version_of(capture(made)) == 7, "older programs can read it again"


def made_of_histories() -> Detector:
    """Give a detector whose rules share a history of histories that no rule of its own birth has any more."""
    made = newly_made((*RULES, NESTED))
    for number in range(40, 52):
        made.add_rule("rule", NESTED, rule_id=f"{number:032x}")
        evaluate(made, number)
    made.remove_rule(f"{len(RULES):032x}")
    assert made.state.inner
    return made


def test_histories_of_histories_that_rules_share_are_written_and_go_on_as_they_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(4))
    saved, made = (GOLDEN / "state_9_nested.msgpack").read_bytes(), made_of_histories()
    assert made.dump() == saved
    loaded = Detector.load(saved, 9, limits=LIMITS)
    fired = [evaluate(loaded, number) for number in range(60, 120)]
    assert fired == [evaluate(made, number) for number in range(60, 120)]
    assert len({tuple(ids) for ids in fired}) > 2


def test_records_that_wait_for_a_view_are_written_and_go_on_as_they_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(4))
    rules = ("per k (count(a == 1) >= 3)", "per k (distinct(j) >= 2)", "count(b == 1) > 4")
    made = newly_made((*RULES, *rules))
    for number, rule in enumerate(rules * 2, 40):
        made.add_rule("rule", rule, rule_id=f"{number:032x}")
        # At the very time of the birth.
        made.evaluate({"k": 1, "a": 1, "b": 1, "j": 1}, 39 * 450)
    evaluate(made, 40)
    saved = (GOLDEN / "state_10_waiting.msgpack").read_bytes()
    assert made.dump() == saved
    loaded = Detector.load(saved, 10, limits=LIMITS)
    fired = [evaluate(loaded, number) for number in range(60, 120)]
    assert fired == [evaluate(made, number) for number in range(60, 120)]
    assert loaded.state.joined.keys() == made.state.joined.keys() != set()


def test_a_version_that_is_not_known_yet_is_no_detector() -> None:
    with pytest.raises(AssertionError, match="unknown"):
        Detector.load(b"", Detector.STATE_VERSION + 1)


WRITTEN = "per k  # a key\n  (once a == 1)"


def test_conditions_are_kept_as_they_were_written() -> None:
    made = Detector(new_id=map("{:032x}".format, itertools.count()).__next__)
    given = (WRITTEN, "a == 1", '{"not": {"leaf": {"fact": "a", "op": "eq", "value": 1}}}', parse("a  == 2"))
    ids = [made.add_rule("rule", one) for one in given]

    def sources(detector: Detector) -> list[str | None]:
        return [detector.rule(one).source for one in ids]

    assert sources(made) == [WRITTEN, None, given[2], None]
    assert sources(Detector.load(made.dump(), Detector.STATE_VERSION)) == sources(made)
    made.evaluate({"k": 1, "a": 1}, 0)
    history = made.live[ids[0]].birth
    made.change_rule(ids[0], condition=f"{WRITTEN} # and more")
    made.change_rule(ids[0], name="other")
    assert made.rule(ids[0]).source == f"{WRITTEN} # and more"
    assert made.live[ids[0]].birth == history, "the same condition goes on with its history"
    made.change_rule(ids[0], condition="a == 1")
    assert made.rule(ids[0]).source is None


def test_a_document_without_sources_is_read() -> None:
    document = (GOLDEN / "state_7_few.msgpack").read_bytes()
    assert b"sources" not in document
    assert {rule.source for rule in Detector.load(document, Detector.STATE_VERSION).rules()} == {None}
