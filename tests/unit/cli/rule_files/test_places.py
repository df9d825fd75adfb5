"""Every character of a string of a file is found where it stands, however the string is written."""

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from api.cli.rule_files.documents import Document, offsets_of

texts = st.text(st.sampled_from("ab'\"\\: #\n\té\u2028😀-|>{[&*!%@`x"), max_size=40)
STYLES = ["'", '"', "|", ">", None]


def check(document: Document, path: tuple[str | int, ...], value: str) -> None:
    place = document.place(path)
    offsets = offsets_of(document.text, place, value)
    assert offsets == sorted(offsets)
    assert len(offsets) == len(value) + 1
    for char, at, end in zip(value, offsets, offsets[1:], strict=False):
        if not char.isspace():
            there = document.text[at:end]
            assert there.startswith((char, "\\")) or there == "'" * 2, (char, there)
            assert place.value_start <= at < place.value_end


@given(texts, st.sampled_from(STYLES), st.sampled_from([20, 1000]), st.booleans())
def test_characters_of_yaml_are_found(text: str, style: str | None, width: int, nested: bool) -> None:
    class Styled(yaml.SafeDumper):
        pass

    Styled.add_representer(
        str, lambda dumper, one: dumper.represent_scalar("tag:yaml.org,2002:str", one, style)
    )
    value: Any = {"x": [text, "after"]} if nested else {"x": text}
    written = yaml.dump(value, Dumper=Styled, width=width, allow_unicode=True)
    document = Document("# before\n" + written, is_json=False)
    assert document.value == value
    check(document, ("x", 0) if nested else ("x",), text)


@given(texts, st.booleans())
def test_characters_of_json_are_found(text: str, ascii: bool) -> None:  # noqa: A002 -- its name in `dumps`
    value = {"x": {"y": [1, text, {}], "z": text}}
    document = Document(json.dumps(value, ensure_ascii=ascii, allow_nan=False, indent=1), is_json=True)
    check(document, ("x", "y", 1), text)
    check(document, ("x", "z"), text)


@pytest.mark.parametrize("is_json", [True, False])
def test_every_part_has_a_place(is_json: bool) -> None:
    text = '{"a": [1, {"b": "x"}, "y", [], [[2]]],\n "c": {}, "d": null}'
    places = Document(text if is_json else f"# YAML\n{text}", is_json=is_json).places
    whole = text if is_json else f"# YAML\n{text}"
    shown = {path: whole[place.start : place.start + 3] for path, place in places.items()}
    assert shown == {
        (): '{"a',
        ("a",): '"a"',
        ("a", 0): "1, ",
        ("a", 1): '{"b',
        ("a", 1, "b"): '"b"',
        ("a", 2): '"y"',
        ("a", 3): "[],",
        ("a", 4): "[[2",
        ("a", 4, 0): "[2]",
        ("a", 4, 0, 0): "2]]",
        ("c",): '"c"',
        ("d",): '"d"',
    }
    assert not re.search("x", str(places[()].style))
