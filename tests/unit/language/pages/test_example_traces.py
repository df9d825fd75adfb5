"""Every example says in a sentence what it does; here the sentence is held against a trace."""

import json
import re
from pathlib import Path

import pytest

from api.cli.rule_files.reading import line_conditions, rules_file_of
from api.cli.sample import RULES
from engine import Detector, parse
from engine.language.text.printer import format as text_of
from tests.differential.comparison import Pair
from tests.worlds.scripts import Add, Submit

ROOT = Path(__file__).parents[4]
README = (ROOT / "README.md").read_text("utf-8")
LANGUAGE = (ROOT / "engine" / "README.md").read_text("utf-8")
TRACES = (ROOT / "tests" / "data" / "example_traces.txt").read_text("utf-8")

_EVENT = re.compile(r"(\S+) +(\{.*?\})(?:  (\{.*\}))? +(true|false)")


def canonical(text: str) -> str:
    return text_of(parse(text))


def traces() -> dict[tuple[str, str], list[str]]:
    """Return the lines of each trace by its sentence and its condition."""
    found = {}
    for block in TRACES.split("\n\n")[1:]:
        sentence, condition, *events = block.strip().split("\n")
        found[sentence.removeprefix("> "), canonical(condition)] = events
    return found


def shown() -> set[tuple[str, str]]:
    """Return sentence and condition of the first page's rule, of the language's examples and sample rules."""
    top = re.search(r'"([^"]+)" is one line:\n\n```\n(.*?)```', README, re.DOTALL)
    assert top
    block = re.search(r"^```rules\n(.*?)```", LANGUAGE, re.DOTALL | re.MULTILINE)
    assert block
    examples = {(" ".join(top[1].split()), canonical(top[2]))}
    for line in line_conditions(block[1]).values():
        text, _, sentence = line.strip().partition("\n")[0].rpartition("  # ")
        examples.add((sentence, canonical(text)))
    sample = {
        name: rule.text for name, rule in rules_file_of(RULES.read_text("utf-8"), RULES.name).rules.items()
    }
    return examples | {(name, canonical(text)) for name, text in sample.items()}


def at_ms(time: str) -> int:
    units = {"h": 3_600_000, "m": 60_000, "s": 1_000}
    return sum(int(count) * units[unit] for count, unit in re.findall(r"(\d+)([hms])", time))


def test_every_example_has_a_trace_and_every_trace_an_example() -> None:
    assert shown() == set(traces())


@pytest.mark.parametrize(("example", "events"), traces().items(), ids=lambda part: str(part)[:60])
def test_an_example_does_what_its_sentence_says(example: tuple[str, str], events: list[str]) -> None:
    engine, pair = Detector(), Pair()
    engine.add_rule("shown", example[1])
    pair.apply(Add("shown", parse(example[1]), notify=False))
    verdicts = set()
    for line in events:
        found = _EVENT.fullmatch(line)
        assert found, line
        event = Submit(json.loads(found[2]), at_ms(found[1]), json.loads(found[3] or "{}"))
        fired = bool(engine.evaluate(event.fields, event.timestamp_ms, event.vars))
        assert (line, fired) == (line, found[4] == "true")
        # The reference says the same of the engine, or this raises.
        pair.apply(event)
        verdicts.add(fired)
    assert verdicts == {True, False}, "a trace shows when an example fires and when it does not"
