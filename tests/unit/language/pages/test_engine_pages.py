"""Every example of the pages about the engine is run."""

import doctest
import json
import re
from dataclasses import fields
from importlib import import_module
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import pytest

from api.cli.rule_files.reading import line_conditions
from engine import Detector
from engine.evaluation.facts.look_up import ELEMENTS_MAX
from engine.evaluation.rule_book.rule_messages import doubts
from engine.language.condition import Condition
from engine.language.diagnostics import ConditionError
from engine.language.forms.table import FORMS
from engine.language.json.writer import condition_to_document
from engine.language.limits import DEFAULT_LIMITS
from engine.language.operators import COMPARISONS, OPERATORS
from engine.language.text.parser import parse
from engine.language.text.printer import format as text_of
from engine.patterns.compiled_pattern import UNICODE_CLASSES_MAX
from tests.unit.test_library_imports import ENGINE as ENGINE_PACKAGES

ENGINE = Path(__file__).parents[4] / "engine"
PAGES = ("README", "LANGUAGE", "SEQUENCES", "ERRORS", "JSON", "COSTS", "LIBRARY", "INSIDE", "TIMES")
"""The other page, SEMANTICS.md, has a test of its own."""
TEXT = "\n".join((ENGINE / f"{page}.md").read_text(encoding="utf-8") for page in PAGES)
BLOCKS = re.findall(r"^```(\S*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
KINDS = {
    "rules",
    "python",
    "way",
    "rule",
    "rule-error",
    "message",
    "doubt",
    "hint",
    "json",
    "same",
    "canonical",
    "trace",
    "timed",
    "sh",
}


def blocks(kind: str) -> list[str]:
    return [text.removesuffix("\n") for found, text in BLOCKS if found == kind]


def pairs(first: str, second: str) -> list[tuple[str, str]]:
    return [(one[1], other[1]) for one, other in pairwise(BLOCKS) if (one[0], other[0]) == (first, second)]


def test_every_block_is_of_a_kind_that_is_run() -> None:
    assert {kind for kind, _ in BLOCKS} == KINDS
    assert TEXT.count("```") == 2 * len(BLOCKS)


def test_every_page_is_listed_and_run() -> None:
    assert {page.stem for page in ENGINE.glob("*.md")} == {*PAGES, "SEMANTICS"}
    listed = re.findall(r"^\| \[(\w+)\.md\]", TEXT, re.MULTILINE)
    assert {"README", *listed} == {*PAGES, "SEMANTICS"}


def test_the_conditions_shown_are_valid_and_show_every_member_and_operator() -> None:
    [shown] = blocks("rules")
    documents = str([condition_to_document(parse(text)) for text in line_conditions(shown).values()])
    assert {name for name in FORMS.keys() | OPERATORS if f"'{name}'" not in documents} == set()


def test_the_packages_of_the_library_are_those_that_it_may_import() -> None:
    # `.ci/run` installs them, and runs an example with nothing else.
    [command] = blocks("sh")
    names = {"google-re2": "re2"}
    packages = command.partition(" --no-deps . ")[2].split()
    assert {
        "rule_detector",
        "engine",
        "google",
        *(names.get(name, name) for name in packages),
    } == ENGINE_PACKAGES


def test_the_examples_in_python_do_what_is_shown() -> None:
    example = "\n".join(blocks("python"))
    test = doctest.DocTestParser().get_doctest(example + "\n", {}, "LIBRARY.md", "LIBRARY.md", 0)
    assert len(test.examples) >= 8
    said: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(test, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize("way", blocks("way"), ids=["of a rule", "of an event"])
def test_a_way_leads_through_files_and_names_that_exist(way: str) -> None:
    steps = [line.split()[:2] for line in way.split("\n") if re.match(r"(\.\./)?\w+/", line)]
    assert len(set(map(tuple, steps))) == len(steps) > 20
    for file, name in steps:
        path = (ENGINE / file).resolve()
        assert path.exists(), file
        if file.endswith(".py"):
            module = ".".join(path.relative_to(ENGINE.parent).with_suffix("").parts)
            attrgetter(name)(import_module(module))


def test_the_way_of_a_rule_visits_each_file_once() -> None:
    files = re.findall(r"^\w+/\S+", blocks("way")[0], re.MULTILINE)
    assert len(set(files)) == len(files)


@pytest.mark.parametrize("text", blocks("rule"))
def test_a_rule_is_read_and_reads_back(text: str) -> None:
    assert parse(text_of(parse(text))) == parse(text)


@pytest.mark.parametrize("text", blocks("rule-error"))
def test_a_faulty_rule_is_refused(text: str) -> None:
    with pytest.raises(ConditionError):
        parse(text)


@pytest.mark.parametrize(("text", "message"), pairs("rule-error", "message"))
def test_a_faulty_rule_is_refused_in_these_words(text: str, message: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse(text.removesuffix("\n"))
    assert "".join(f"{entry.code} {entry.message}\n" for entry in refused.value.entries) == message


@pytest.mark.parametrize(("text", "hint"), pairs("doubt", "hint"))
def test_a_doubtful_rule_is_told_in_these_words(text: str, hint: str) -> None:
    assert doubts(parse(text)) == [hint.removesuffix("\n")]


@pytest.mark.parametrize(("text", "document"), pairs("rule", "json"))
def test_a_rule_and_its_json_say_the_same(text: str, document: str) -> None:
    assert parse(text) == parse(document)
    assert condition_to_document(parse(text)) == json.loads(document)


def test_every_member_and_operator_is_shown_as_json() -> None:
    shown = json.dumps([json.loads(document) for document in blocks("json")])
    for condition in Condition.__args__:
        member = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", condition.__name__).lower()
        assert f'"{member}": ' in shown
    for op in OPERATORS:
        assert f'"op": "{op}"' in shown


def test_every_comparison_is_told() -> None:
    [told] = re.findall(r"The comparisons are (.*?)\.", TEXT, re.DOTALL)
    assert re.findall(r"`(\S+)`", told) == list(COMPARISONS.values())


def test_each_message_and_each_json_follows_its_rule() -> None:
    assert len(pairs("rule-error", "message")) == len(blocks("message"))
    assert len(pairs("rule", "json")) == len(blocks("json"))
    assert len(pairs("doubt", "hint")) == len(blocks("hint")) == len(blocks("doubt"))


@pytest.mark.parametrize("text", blocks("same"))
def test_pairs_of_rules_mean_the_same(text: str) -> None:
    one, other = text.split("\n")
    assert parse(one) == parse(other)


@pytest.mark.parametrize("text", blocks("canonical"))
def test_the_second_line_is_the_canonical_text_of_the_first(text: str) -> None:
    given, canonical = text.split("\n")
    assert text_of(parse(given)) == canonical


@pytest.mark.parametrize("trace", blocks("trace"))
def test_a_trace_has_the_verdicts_that_it_shows(trace: str) -> None:
    condition, *events = trace.split("\n")
    detector = Detector()
    detector.add_rule(name="shown", condition=condition)
    for event in events:
        seconds, shown, verdict = re.fullmatch(r" *([0-9.]+)s +(\{.*\}) +(true|false)", event).groups()
        actions = detector.evaluate(json.loads(shown), round(float(seconds) * 1000))
        assert [len(actions), event] == [int(verdict == "true"), event]


@pytest.mark.parametrize("trace", blocks("timed"))
def test_a_timed_rule_fires_when_its_trace_shows_it(trace: str) -> None:
    condition, *lines = trace.split("\n")
    members = json.loads(lines.pop(0)) if lines[0].startswith("{") else {}
    detector, fired, shown = Detector(), [], []
    detector.add_rule(name="shown", condition=condition, timed=True, **members)
    detector.fired_by_time = fired
    for line in lines:
        seconds, what, told = re.fullmatch(r"([0-9.]+)s +(by time|tick|\{.*?\})(?: +(\S.*))?", line).groups()
        time_us = round(float(seconds) * 1_000_000)
        if what == "by time":
            shown.append((time_us, json.loads(told)))
        elif what == "tick":
            fired += detector.tick(time_us)
        else:
            actions = detector.evaluate(json.loads(what), time_us / 1_000)
            held_back = re.fullmatch(r"true(?: \(([0-9]+) held back\))?", told)
            expected = [] if held_back is None else [int(held_back[1] or 0)]
            assert [[action.get("suppressed", 0) for action in actions], line] == [expected, line]
    assert [(one.time_us, one.keys) for one in fired] == shown


@pytest.mark.parametrize("row", re.findall(r"^\| (.+) \| ([0-9]+)(?: bytes)? \|$", TEXT, re.MULTILINE))
def test_the_limits_are_those_of_the_engine(row: tuple[str, str]) -> None:
    known = {getattr(DEFAULT_LIMITS, field.name) for field in fields(DEFAULT_LIMITS)}
    assert int(row[1]) in {*known, UNICODE_CLASSES_MAX, ELEMENTS_MAX}


def test_the_code_in_running_text_is_of_the_language() -> None:
    """What stands between backquotes in a paragraph and looks like a condition can be read."""
    prose = re.sub(r"^(?:```.*?^```|\|.*?)$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    conditions = [
        text for text in re.findall(r"`([^`]+)`", prose) if re.search(r" (?:==|!=|>) |\w\(.*\w\)", text)
    ]
    assert len(conditions) > 9
    for text in conditions:
        is_term = re.fullmatch(r"(?:earlier )?(?:sum|avg|min|max|count)\([^)]*\)(?: within \w+)?", text)
        parse(f"compare({text} == 1)" if is_term else text)
