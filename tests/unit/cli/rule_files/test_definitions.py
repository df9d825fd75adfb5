from pathlib import Path

import pytest

from api.cli.rule_files import definitions
from api.cli.rule_files.reading import RuleFileError, conditions_of, rules_file_of
from engine import parse
from engine.language.limits import DEFAULT_LIMITS

GOLDEN = Path(__file__).parent / "refused"
"""Files that are refused, each beside what is said about it."""
FILES = sorted(file for file in GOLDEN.iterdir() if file.suffix != ".txt")


def refusal_of(text: str, path: str = "r.yaml") -> str:
    with pytest.raises(RuleFileError) as refusal:
        conditions_of(text, path)
    return str(refusal.value)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_wrong_is_told_with_file_line_and_column(file: Path) -> None:
    said = refusal_of(file.read_text("utf-8"), file.name)
    assert said + "\n" == file.with_name(f"{file.name}.txt").read_text("utf-8")


def test_there_are_golden_texts_to_look_at() -> None:
    assert len(list(GOLDEN.glob("*.txt"))) == len(FILES) > 5


def test_definitions_are_put_in_in_parentheses_and_may_use_others() -> None:
    text = """
define:
  failed: action == "login" and ok == false  # not ok
  many: count(use "failed") within 5m >= 10
  as json: {leaf: {fact: a, op: eq, value: 1}}
rules:
  one: per ip (use "many") or not use 'failed'
  two: {condition: use "as json" and use"as json", notify: true}
"""
    one, two = conditions_of(text, "r.yaml")
    failed = 'action == "login" and ok == false'
    assert one.condition == parse(f"per ip (count({failed}) within 5m >= 10) or not ({failed})")
    assert parse(one.text) == one.condition
    assert two.text == "(a == 1) and (a == 1)"


@pytest.mark.parametrize(
    "text",
    [
        "a == \"use 'x'\"",
        "a matches 'use \"x\"'",
        'a == 1 # use "x"',
        '`use "x"` == 1',
        'use == "x" and a.use == "x"',
    ],
)
def test_what_only_looks_like_a_use_is_left_alone(text: str) -> None:
    [rule] = conditions_of(f"define: {{x: b == 1}}\nrules:\n  r: |-\n    {text}\n", "r.yaml")
    assert (rule.text, rule.condition) == (text, parse(text))


def bomb(levels: int) -> str:
    lines = ["define:", "  d0: a == 1"]
    lines += [f"  d{n}: use 'd{n - 1}' or use 'd{n - 1}'" for n in range(1, levels)]
    return "\n".join([*lines, f"rules: {{r: use 'd{levels - 1}'}}"])


@pytest.mark.slow
def test_a_bomb_of_definitions_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def counted(source: definitions.PlacedText, *given: object) -> object:
        parsed.append(len(source.text))
        return parse(source, *given)

    monkeypatch.setattr(definitions, "parse", counted)
    said = refusal_of(bomb(60))
    assert "definition `d10`: 1303" in said, said
    assert max(parsed) <= DEFAULT_LIMITS.text_bytes_max
    assert len(parsed) < 20


def test_what_all_texts_take_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "CHARS_MAX", 1 << 20)
    rules = "".join(f"  r{n}: use 'big'\n" for n in range(20))
    said = refusal_of(f"define:\n  big: 'a == 1 # {'x' * 60_000}'\nrules:\n{rules}")
    assert "with their definitions the texts of the file have more than 1 MiB" in said


def test_definitions_stand_in_one_another_only_so_deep() -> None:
    for names in (range(1, 200), range(199, 0, -1)):
        define = "".join(f"  d{n}: use 'd{n - 1}'\n" for n in names)
        said = refusal_of(f"define:\n  d0: a == 1\n{define}rules: {{r: use 'd199'}}\n")
        assert "definitions stand in one another more than 64 deep" in said


def test_a_bare_map_may_have_rules_of_these_names() -> None:
    assert list(rules_file_of("detector: a == 1\ndefine: b == 1\nrules: c == 1\n", "r.yaml").rules) == [
        "detector",
        "define",
        "rules",
    ]
