"""Error messages as a golden file: each text, and below it the entries without the line that they show.

`RULE_DETECTOR_GOLDEN=write pytest tests/unit/language/pages/test_error_messages.py` rewrites the entries;
read the diff before you commit it. To add a case, add a text and a line `1300 `.
"""

import os
import re
from pathlib import Path

import pytest

from engine.language.diagnostics import ConditionError
from engine.language.text.parser import parse

FILE = Path(__file__).parent / "error_messages.txt"
CASE = re.compile(r"((?s:.*?))\n((?:13\d\d .*\n)+)")
GOLDEN = dict(CASE.findall(FILE.read_bytes().decode()))


def refusal_of(text: str) -> ConditionError:
    with pytest.raises(ConditionError) as refused:
        parse(text)
    return refused.value


def told(text: str) -> str:
    """Return the entries without the line that they show."""
    return "".join(f"{code} {message.splitlines()[0]}\n" for code, message in refusal_of(text).entries)


def test_the_golden_file_is_written_anew_if_that_is_asked_for() -> None:
    if os.environ.get("RULE_DETECTOR_GOLDEN") == "write":
        FILE.write_bytes("".join(f"{text}\n{told(text)}" for text in GOLDEN).encode())
    assert len(GOLDEN) > 200


@pytest.mark.parametrize("text", GOLDEN, ids=ascii)
def test_a_text_is_refused_in_exactly_these_words(text: str) -> None:
    assert told(text) == GOLDEN[text]


@pytest.mark.parametrize("text", GOLDEN, ids=ascii)
def test_the_caret_stands_under_the_place_in_the_line_that_is_named(text: str) -> None:
    for code, message in refusal_of(text).entries:
        if code != 1300:
            assert "\n" not in message
            continue
        sentence, shown, caret = message.split("\n")
        place = sentence.split(": ")[0]
        line, column = (int(word) for word in place.removeprefix("line ").split(", column "))
        source = text.split("\n")[line - 1].rstrip("\r")
        assert 1 <= column <= len(source) + 1
        assert caret.endswith("^")
        assert set(caret[:-1]) <= {" ", "\t"}
        if "東" not in shown:
            under = shown[len(caret) - 1 :][:1]
            assert under == source[column - 1 :][:1].replace("\xa0", under)


def test_no_message_speaks_of_the_parsers_tokens() -> None:
    said = "\n".join(GOLDEN.values())
    for name in ("LPAR", "RPAR", "BACKQUOTED", "VERBATIM", "WORD", "PATH", "EQUAL", "__", "$END", "Token"):
        assert name not in said
