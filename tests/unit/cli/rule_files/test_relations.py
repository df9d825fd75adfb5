from pathlib import Path

import pytest

from api.cli.rule_files import relations
from api.cli.rule_files.reading import RuleFileError, rules_file_of


def read(folder: Path, relation: str, **files: str) -> list[tuple[object, ...]]:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, "utf-8")
    text = f"relations:\n  r: {relation}\nrules: {{}}\n"
    return rules_file_of(text, str(folder / "rules.yaml")).relations["r"]


@pytest.mark.parametrize(
    ("relation", "name", "text", "tuples"),
    [
        ("[[ada, 1], [bob, 2.5]]", "x_txt", "", [("ada", 1), ("bob", 2.5)]),
        ("[a, b, a]", "x_txt", "", [("a",), ("b",)]),
        ("[[1], [1.0], [true], ['1']]", "x_txt", "", [(1,), (True,), ("1",)]),
        ("[]", "x_txt", "", []),
        (
            "{file: x.txt}",
            "x_txt",
            "# networks\n10.0.0.0/8\r\n\n 192.168.0.0/16 \n",
            [("10.0.0.0/8",), ("192.168.0.0/16",)],
        ),
        ("{file: ./x.csv}", "x_csv", 'a,1\n"b,c",2\n\n', [("a", "1"), ("b,c", "2")]),
        (
            "{file: x.csv, header: true, types: [string, number]}",
            "x_csv",
            "user,n\na,1\nb,2.5\n",
            [("a", 1), ("b", 2.5)],
        ),
        ("{file: x.csv, types: [boolean]}", "x_csv", "true\nfalse\n", [(True,), (False,)]),
        ("{file: x.ndjson}", "x_ndjson", '["a", 1]\n\n["b", true]\n', [("a", 1), ("b", True)]),
        ("{file: x.jsonl}", "x_jsonl", '"a"\n7\n', [("a",), (7,)]),
    ],
)
def test_relations_are_inline_or_in_a_file_beside(
    tmp_path: Path, relation: str, name: str, text: str, tuples: list[object]
) -> None:
    assert read(tmp_path, relation, **{name: text}) == tuples


@pytest.mark.parametrize(
    ("relation", "name", "text", "said"),
    [
        ("{file: x.csv}", "x_csv", "a,b\nc\n", "x.csv, line 2: it has 1 value, the first tuple 2"),
        ("{file: x.csv}", "x_csv", 'a\n"b\n', "x.csv, line 2: unexpected end of data"),
        (
            "{file: x.csv, types: [number]}",
            "x_csv",
            "1\nx\n",
            "x.csv, line 2: its cells are not of the types number",
        ),
        (
            "{file: x.csv, types: [number]}",
            "x_csv",
            "NaN\n",
            "x.csv, line 1: its cells are not of the types number",
        ),
        (
            "{file: x.csv, types: [number]}",
            "x_csv",
            "1,2\n",
            "x.csv, line 1: it has 2 cells, and `types` has 1",
        ),
        ("{file: x.csv, types: [text]}", "x_csv", "", "types[0]: expected `string`, `number` or `boolean`"),
        ("{file: x.ndjson}", "x_ndjson", '["a"]\n[', "x.ndjson, line 2: it is not JSON"),
        (
            "{file: x.ndjson}",
            "x_ndjson",
            "[null]",
            "line 1: a tuple holds strings, numbers and booleans, not null",
        ),
        ("{file: x.ndjson}", "x_ndjson", "NaN", "line 1: a tuple holds finite numbers, not nan"),
        ("{file: x.ndjson}", "x_ndjson", '["\\ud800"]', "line 1: a tuple holds no halves of surrogate pairs"),
        ("{file: x.txt, header: true}", "x_txt", "a", "only CSV has `header` and `types`"),
        ("{file: y.txt}", "x_txt", "a", "y.txt: no such file or directory"),
        ("{}", "x_txt", "", "relation `r`: file: missing"),
        ("a", "x_txt", "", "relation `r`: expected an object, got a string"),
    ],
)
def test_a_relation_that_cannot_be_read_is_told_with_its_place(
    tmp_path: Path, relation: str, name: str, text: str, said: str
) -> None:
    with pytest.raises(RuleFileError) as refusal:
        read(tmp_path, relation, **{name: text})
    assert str(refusal.value).startswith(f"{tmp_path}/rules.yaml: line 2, column ")
    assert ": relation `r`: " in str(refusal.value)
    assert said in str(refusal.value)


def test_relations_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "TUPLES_MAX", 2)
    with pytest.raises(RuleFileError, match="line 3: a relation has at most 2 tuples"):
        read(tmp_path, "{file: x.txt}", x_txt="a\nb\nc\n")
    monkeypatch.setattr(relations, "FILE_BYTES_MAX", 3)
    with pytest.raises(RuleFileError, match="it has more than 0 MiB"):
        read(tmp_path, "{file: x.txt}")
    with pytest.raises(RuleFileError, match="it has more than 0 MiB"):
        read(tmp_path, "{file: /dev/zero}")
