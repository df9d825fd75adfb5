"""What is written is read as the same, whatever names and texts are."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.cli.rule_files.reading import rules_file_of
from api.cli.rule_files.writing import rules_file_text

TRAPS = (
    *("on", "no", "null", "~", "1", "1e3", "0x1", "1:30", "2024-01-01", ".inf", "true", "<<", "=", "-", "?"),
    *("- a", "a: b", " a", "a ", "#", "a #b", "'", '"', "{}", "[", "&a", "*a", "!a", "|", ">", "%", "@", "`"),
    *("\ufeff", "\u2028", "\x85", "😀", "a" * 255, "\t", "a\nb", "\n", "use 'x'", "...", "---"),
    *("define", "rules", "condition"),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(TRAPS)
names = texts.filter(
    lambda name: 0 < len(name) < 256 and not any(ord(char) < 32 and char not in "\t\n" for char in name)
).filter(lambda name: not any("\x7f" <= char <= "\x9f" for char in name))
lines = st.lists(texts, max_size=4).map("\n".join)
scalars = texts | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
members = st.fixed_dictionaries(
    {"condition": lines.map(lambda text: f"a == 1 # {text.replace(chr(10), chr(10) + '# ')}")},
    optional={
        "description": lines,
        "notify": st.booleans(),
        "labels": st.dictionaries(texts.filter(lambda name: 0 < len(name) <= 64), scalars, max_size=3),
    },
)


@given(
    st.dictionaries(names, members, max_size=4),
    names,
    st.dictionaries(texts.filter(bool), st.lists(st.tuples(scalars, texts), max_size=3), max_size=2),
)
def test_what_is_written_is_read(rules: dict[str, Any], detector: str, relations: dict[str, Any]) -> None:
    text = rules_file_text(rules, detector, relations)
    found = rules_file_of(text, "r.yaml")
    assert found.detector == detector
    read = {
        name: {
            member: getattr(rule, member)
            for member in ("condition", "description", "notify", "labels")
            if member in rules[name]
        }
        for name, rule in found.rules.items()
    }
    assert read == rules
    assert list(read) == list(rules)
    assert {name: len(tuples) for name, tuples in found.relations.items()} == {
        name: len({(one, type(one) is bool, other) for one, other in tuples})
        for name, tuples in relations.items()
    }


def test_it_is_written_for_people() -> None:
    rules = {
        "short": {"condition": "a == 1"},
        "long": {"description": "One.\nTwo.", "condition": "a == 1  # why\nand b == 2", "notify": True},
    }
    assert (
        rules_file_text(rules, "shop", {"vip": [("ada",), ("bob",)], "owns": [("ada", 7)], "big": "big.csv"})
        == """\
detector: shop

relations:
  vip:
  - ada
  - bob
  owns:
  - [ada, 7]
  big:
    file: big.csv

rules:
  short: a == 1

  long:
    description: |-
      One.
      Two.
    condition: |-
      a == 1  # why
      and b == 2
    notify: true
"""
    )
