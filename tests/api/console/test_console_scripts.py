"""What the console's scripts decide without a page: run by the JavaScript engine of playwright."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright._impl._driver import compute_driver_executable

from api import console
from engine.language.forms.table import placed_children
from engine.language.json.writer import condition_to_document
from engine.language.text.parser import parse

SHARED = Path(console.__file__).parent / "static/shared"


def evaluated(script: str, expression: str) -> Any:
    """Return the value of an expression in which `it` is a script of the console."""
    node, _ = compute_driver_executable()
    imported = f"import * as it from {json.dumps((SHARED / script).as_uri())};"
    program = f"{imported} console.log(JSON.stringify({expression}))"
    command = [node, "--input-type=module", "-e", program]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def moments(*numbers: int) -> list[dict[str, int]]:
    return [{"number": number} for number in numbers]


@pytest.mark.parametrize(
    ("kept", "come", "then", "added"),
    [
        ([], [7, 8], [7, 8], [7, 8]),
        ([7, 8], [], [7, 8], []),
        # What was seen before a reconnection comes again.
        ([7, 8], [8, 9], [7, 8, 9], [9]),
        # The newest are kept.
        ([7, 8, 9], [10], [8, 9, 10], [10]),
        ([], [1, 2, 3, 4, 5], [3, 4, 5], [1, 2, 3, 4, 5]),
        # Events without the key, those that were left out, and those that nobody watched are missing.
        ([7, 8], [10, 12], [8, 10, 12], [10, 12]),
    ],
)
def test_a_timeline_keeps_its_newest_moments(
    kept: list[int], come: list[int], then: list[int], added: list[int]
) -> None:
    given = f"{json.dumps(moments(*kept))}, {json.dumps(moments(*come))}"
    joined = evaluated("moments.js", f"it.joined({given}, 3)")
    assert joined == {"kept": moments(*then), "added": moments(*added)}


def test_numbers_and_times_are_written_as_people_read_them() -> None:
    shown = evaluated(
        "format.js",
        "[it.count(1, 'event'), it.count(12345, 'event'), it.bytes(1536), it.bytes(3 * 2 ** 30),"
        " it.duration(-999), it.duration(90_061_000), it.time(1709542800000), it.time(1e20)]",
    )
    assert shown == [
        "1 event",
        "12,345 events",
        "1.5 KiB",
        "3 GiB",
        "-999 ms",
        "1 d 1 h",
        "2024-03-04 09:00:00Z",
        "100000000000000000000",
    ]


@pytest.mark.parametrize(
    ("fires_ms", "clock_ms", "now_ms", "said"),
    [
        (301_000.001, 1_000, 1_500, "in 5 m"),
        (301_000, 1_000, 299_999, "in 2 s"),
        (301_000, 1_000, 300_999, "in 1 s"),
        (301_000, 1_000, 301_000, "now"),
        (301_000, 1_000, 305_000, "now"),
        # A detector that is being replayed: its clock is far behind.
        (301_000, 1_000, 1_709_542_800_000, "5 m later by the detector's clock"),
    ],
)
def test_what_remains_until_a_rule_fires_is_rounded_up(
    fires_ms: float, clock_ms: int, now_ms: int, said: str
) -> None:
    assert evaluated("format.js", f"it.remaining({fires_ms}, {clock_ms}, {now_ms})") == said


LEAF = {"leaf": {"fact": "a", "op": "eq", "value": 1}}


@pytest.mark.parametrize(
    ("member", "content", "label"),
    [
        ("since", {"left": LEAF, "right": LEAF}, "since"),
        ("since_within", {"left": LEAF, "right": LEAF, "window_secs": 60}, "since within 1m"),
        ("once_within", {"inner": LEAF, "window_secs": 3600, "min_secs": 0.5}, "once within [500ms, 1h]"),
        (
            "historically_for",
            {"inner": LEAF, "window_secs": 9, "boundary": "weak", "min_secs": 5},
            "historically for [5s, 9s] weak",
        ),
        ("count", {"inner": LEAF, "window_secs": 60, "op": "gte", "value": 3}, "count within 1m >= 3"),
        ("count_since", {"inner": LEAF, "reset": LEAF, "op": "gte", "value": 3}, "count … since … >= 3"),
    ],
)
def test_the_tree_of_a_condition_has_the_words_of_its_text(member: str, content: Any, label: str) -> None:
    shown = evaluated(
        "../views/rules/condition.js", f"it.described({json.dumps(member)}, {json.dumps(content)})"
    )
    inside = [part for part in content.values() if part == LEAF]
    assert shown == {"label": label, "parts": inside}


@pytest.mark.parametrize(
    ("text", "label", "inside", "remembering"),
    [
        ("x > y", "x > y", 0, 0),
        ("compare(x == 5)", "x == 5", 0, 0),
        ("abs(x - 2 * y) >= length($z)", "abs((x - (2 * y))) >= length($z)", 0, 0),
        ('hour("Europe/Berlin") < minute()', 'hour("Europe/Berlin") < minute()', 0, 0),
        ("now() - time(x) > prev(y)", "(now() - time(x)) > prev(y)", 0, 1),
        ("age(a == 1) > last(x where b == 2)", "age(…) > last(x where …)", 2, 1),
        ("x > earlier avg(y) within 30d", "x > earlier avg(y) within 30d", 0, 1),
        ("count(a == 1) within 5m > 1 + max(x)", "count(…) within 5m > (1 + max(x))", 1, 1),
    ],
)
def test_the_tree_of_a_comparison_has_the_words_of_its_terms(
    text: str, label: str, inside: int, remembering: int
) -> None:
    document = condition_to_document(parse(text))
    [content] = document.values()
    shown = evaluated(
        "../views/rules/condition.js",
        f"[it.described('compare', {json.dumps(content)}), it.makeup({json.dumps(document)})]",
    )
    assert shown[0]["label"] == label
    assert shown[0]["parts"] == [condition_to_document(part) for _, part in placed_children(parse(text))]
    assert (len(shown[0]["parts"]), shown[1]["temporal"]) == (inside, remembering)


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("on", "on"),
        ("a == 1 and user.na", "user.na"),
        ('a == "on', ""),
        ('a == "x" and on', "on"),
        ("a == 'it\\'s' and on", "on"),
        ("`on", ""),
        ("`odd name` == 1 and on", "on"),
        ("# on", ""),
        ("# on\non", "on"),
        ("within 5m", ""),
        ("$on", ""),
        ("a ", ""),
        ("", ""),
    ],
)
def test_a_word_that_is_begun_is_known_outside_of_texts_and_comments(text: str, begun: str) -> None:
    assert evaluated("words.js", f"it.begunWord({json.dumps(text + ' tail')}, {len(text)})") == begun


def test_words_are_offered_that_begin_so_and_are_longer() -> None:
    words = json.dumps(["once", "on", "Online", "or", "onset", "once"])
    assert evaluated("words.js", f"it.offeredWords('on', {words})") == ["Online", "once", "onset"]
    assert evaluated("words.js", f"it.offeredWords('', {words})") == []


def test_the_names_that_conditions_read_are_found() -> None:
    condition = condition_to_document(
        parse("per user (amount > 3 and once within 5m `odd name` == 1) and compare(a.b > c) and e in [1]")
    )
    names = evaluated("words.js", f"it.namesRead([{json.dumps(condition)}])")
    assert {"user", "amount", "e"} <= set(names) <= {"user", "amount", "e", "a.b", "c"}


@pytest.mark.parametrize(
    "text", ['[9007199254740993,-12345678901234567890,"9007199254740993"]', '[1,1.5,true,null,{"a":[1e300]}]']
)
def test_integers_of_any_size_stay_exact(text: str) -> None:
    assert evaluated("exact.js", f"JSON.stringify(it.parseExact({json.dumps(text)}))") == text.replace(
        "1e300", "1e+300"
    )
