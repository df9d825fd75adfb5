"""What a notebook shows, and that nothing in it is taken for HTML."""

from html.parser import HTMLParser
from typing import Any

import pytest

from engine import Detector, explain, parse

HOSTILE = "<script>alert('1')</script> & \"more\""


class Seen(HTMLParser):
    """The elements and the text of a page; every element is closed by its own end."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data + "\n"


def seen(shown: Any) -> Seen:
    return Seen(shown._repr_html_())


def detector(name: str = "after a bad one", value: str = "bad") -> Detector:
    made = Detector()
    made.add_rule(name, f"ok == true and per user once within 10m kind == {value!r}")
    made.evaluate({"user": "ada", "kind": value}, 1_709_542_800_000)
    return made


def test_a_condition_is_shown_as_its_tree() -> None:
    shown = seen(parse("a == 1 and per k (once within 10m b == 2)"))
    assert shown.text.split("\n")[:-1] == [
        "a == 1 and per k once within 10m b == 2",
        "a == 1",
        "per k once within 10m b == 2",
        "once within 10m b == 2",
        "b == 2",
    ]
    assert shown.tags.count("li") == 5


def test_an_explanation_is_shown_with_verdicts_values_keys_and_times() -> None:
    explanation = explain(detector(), {"user": "ada", "ok": True, "kind": "good"}, 1_709_542_860_000)
    for shown in (seen(explanation), seen(explanation.rules[0])):
        for part in (
            "after a bad one",
            "fires",
            "✓",
            "✗",
            "ok: true",
            'slice user: "ada"',
            "settled at 2024-03-04 09:00:00 UTC",
            "until 2024-03-04 09:10:00 UTC",
        ):
            assert part in shown.text


def test_an_explanation_shows_what_counts_and_terms_found() -> None:
    made = Detector()
    made.add_rule("counted", "count(a == 1) >= 1")
    made.add_rule("compared", "x > 2 * avg(x)")
    shown = seen(explain(made, {"a": 1, "x": 10}, 0)).text
    assert "found 1\n" in shown
    assert "found 2 * avg(x): 20.0, avg(x): 10.0" in shown


def test_a_detector_is_shown_as_a_table_of_its_rules() -> None:
    assert "1 rules, 1 events, clock at 2024-03-04 09:00:00 UTC" in seen(detector()).text
    assert "no event yet" in seen(Detector()).text
    assert seen(detector()).tags.count("tr") == 2


def test_hostile_names_values_and_keys_are_shown_as_they_are() -> None:
    made = detector(HOSTILE, "<b>")
    event = {"user": HOSTILE, "ok": HOSTILE, "kind": HOSTILE}
    explanation = explain(made, event, 1_709_542_860_000)
    condition = parse(f"`{HOSTILE.replace('`', '')}` == '<i>'")
    for shown in (seen(made), seen(explanation), seen(condition)):
        assert not {"script", "i"} & set(shown.tags)
        assert "<script>" in shown.text


def test_large_trees_and_many_rules_are_cut() -> None:
    shown = seen(parse(" and ".join(f"a == {number}" for number in range(1_500))))
    assert shown.tags.count("li") == 500
    made = Detector()
    for number in range(150):
        made.add_rule(f"rule {number}", f"a == {number}")
    assert seen(made).tags.count("tr") == 101
    assert "… and 50 more rules" in seen(made).text


@pytest.mark.parametrize("time_ms", [8.64e15, -8.64e15])
def test_times_that_no_calendar_has_are_shown_as_numbers(time_ms: float) -> None:
    made = Detector()
    made.evaluate({}, time_ms)
    assert f"{round(time_ms * 1_000)} µs" in seen(made).text
