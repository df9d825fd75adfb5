"""What a text from a stranger costs to read: work that grows with its length and no faster."""

from typing import Any

import pytest
from lark.parsers.lalr_interactive_parser import InteractiveParser

from engine.language.diagnostics import ConditionError
from engine.language.json.writer import condition_to_document
from engine.language.limits import Limits
from engine.language.text.parser import parse
from engine.language.text.printer import format as text_of
from tests.work_growth import grows_linearly

ROOMY = Limits(nodes_max=10**6)

SHAPES: dict[str, tuple[str, str, str]] = {
    "escapes without an end": ('a == "', r"\"", ""),
    "backslashes": ('a == "', "\\", ""),
    "escapes": ('a == "', r"\u0041", '" b'),
    "backquotes": ("`", "``", "a"),
    "quotes": ("", "'", ""),
    "operators": ("a ", "=", " 1"),
    "not operators": ("a ", "!<>~&|", ""),
    "one word": ("a == 1 ", "onc", ""),
    "a name": ("", "a.", ""),
    "digits": ("a == ", "1", "x"),
    "a wrong number": ("a == ", "1.", ""),
    "exponents": ("a == ", "1e", ""),
    "blanks": ("a", " ", "b"),
    "lines": ("a == 1", "\n", "b"),
    "comments": ("", "#\n", ""),
    "many lines": ("a == 1", "\r\n", "or or"),
    "one long line": ('a == "', "é", '" x'),
    "what is not shown": ("", "\u202e", ""),
    "a list": ("a in [", "1,", "1] b"),
    "a list that does not end": ("a in [", '"",', ""),
    "arguments": ("r(", "1,", "1)"),
    "members": ("", "a == 1 or ", "b"),
    "parentheses": ("", "(", ""),
    "parentheses that end": ("", "(", "a == 1" + ")" * 10),
    "prefixes": ("", "not ", ""),
    "keys": ("", "per a ", "a == 1"),
    "previous": ("", "previous ", "a == 1"),
    "earlier within": ("", "earlier within 5m ", "a == 1"),
    "counts": ("", "count(", ""),
    "counts that end": ("", "count(", "a == 1" + ") > 1" * 10),
    "counts of names": ("", "count count ", ""),
    "sums": ("", "sum(x where ", "a == 1"),
    "relations of these names": ("", "sum(", "1)"),
    "arguments of a sum": ("sum(", "sum, ", "1) > 5"),
    "values of a sum": ("sum(", "1 ", "sum("),
    "wheres": ("", "per k where a == 1 ", "b == 2"),
    "wheres of wheres": ("", "per k where ", ""),
    "names that are where": ("where == 1", " and where == 1", " where"),
    "stars": ("sum(x) > 1", " * 2", ""),
    "since": ("", "a == 1 since ", ""),
    "JSON that does not end": ("", '{"not":', ""),
    "JSON arrays": ('{"all": ', "[", ""),
    "JSON escapes": ('{"leaf": "', r"\"", ""),
    "JSON members": ("{", '"a": 1,', '"b": 1}'),
    "JSON violations": ('{"all": [', "1,", "1]}"),
    "JSON blanks": ("{", " ", "x"),
}


def read(text: str, limits: Limits = ROOMY) -> None:
    try:
        condition = parse(text, limits)
    except ConditionError as error:
        str(error)
    else:
        text_of(condition)
        condition_to_document(condition)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_reading_a_text_is_linear_in_its_length(shape: str) -> None:
    start, unit, end = SHAPES[shape]

    def work(size: int) -> None:
        read(start + unit * (size // len(unit)) + end)

    assert grows_linearly(work, 2_000)


@pytest.mark.parametrize(
    "text", ["a in [" + "1," * 500, "a == 1 or " * 200 + "onc b == 1", "r(" + "1," * 300 + "]"]
)
def test_an_error_is_explained_by_reading_the_text_once_more(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = 0
    feed: Any = InteractiveParser.feed_token

    def counted(self: InteractiveParser, token: object) -> object:
        nonlocal fed
        fed += 1
        return feed(self, token)

    read(text)
    monkeypatch.setattr(InteractiveParser, "feed_token", counted)
    read(text)
    tokens = len(text.replace(",", " , ").replace("[", " [ ").replace("(", " ( ").split())
    assert tokens / 2 < fed <= 2 * tokens + 300
