"""What is written is read as the same, whatever names and texts are."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.cli.rule_files.reading import rules_file_of
from api.cli.rule_files.writing import rules_file_text
from tests.unit.cli.rule_files.drawn import labels, names, scalars, texts

lines = st.lists(texts, max_size=4).map("\n".join)
members = st.fixed_dictionaries(
    {"condition": lines.map(lambda text: f"a == 1 # {text.replace(chr(10), chr(10) + '# ')}")},
    optional={
        "description": lines,
        "notify": st.booleans(),
        "labels": labels,
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
