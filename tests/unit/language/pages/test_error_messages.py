"""Error messages as golden files: each has a text, a line of dashes, and the entries.

`RULE_DETECTOR_GOLDEN=write pytest tests/unit/language/pages/test_error_messages.py` rewrites the entries;
read the diff before you commit it. To add a case, add a file with a text and the line of dashes.
"""

import os
from pathlib import Path

import pytest

from engine.language.diagnostics import ConditionError
from engine.language.text.parser import parse

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))
LINE = "\n----\n"


def refusal_of(text: str) -> ConditionError:
    with pytest.raises(ConditionError) as refused:
        parse(text)
    return refused.value


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_text_is_refused_in_exactly_these_words(path: Path) -> None:
    text, _, expected = path.read_bytes().decode().partition(LINE)
    entries = refusal_of(text).entries
    told = "".join(f"{entry.code} {entry.message}\n" for entry in entries)
    if os.environ.get("RULE_DETECTOR_GOLDEN") == "write":
        path.write_bytes(f"{text}{LINE}{told}".encode())
    assert told == expected


def test_there_are_golden_files() -> None:
    assert len(GOLDEN) > 90


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_caret_stands_under_the_place_in_the_line_that_is_named(path: Path) -> None:
    text = path.read_bytes().decode().partition(LINE)[0]
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
    told = "\n".join(path.read_bytes().decode().partition(LINE)[2] for path in GOLDEN)
    for name in ("LPAR", "RPAR", "BACKQUOTED", "VERBATIM", "WORD", "PATH", "EQUAL", "__", "$END", "Token"):
        assert name not in told
