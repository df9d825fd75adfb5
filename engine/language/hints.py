"""What was expected, in the language's own words, and what the writer may have meant."""

import re
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple, Protocol

from engine.language.diagnostics import distance, listed, quoted, slips_max
from engine.language.names import KEYWORDS, in_backquotes, is_reserved

END = "$END"

_CONDITION = {"LPAR", "NOT", "ONCE", "HISTORICALLY", "PER", "ALL", "ANY", "WORD", "PATH", "BACKQUOTED"}
_VALUE = {"STRING", "VERBATIM", "NUMBER", "TRUE", "FALSE", "OPEN"}
_NAME = {"WORD", "PATH", "BACKQUOTED"}
_DURATION = {"NUMBER", "DURATION"}
_OPERATOR = {
    "EQUAL", "UNEQUAL", "IN", "NOT", "CONTAINS", "MATCHES", "BETWEEN", "ABOVE", "AT_LEAST", "BELOW", "AT_MOST"
}  # fmt: skip

_GROUPS: tuple[tuple[Set[str], Set[str], str], ...] = (
    ({"ONCE", "PER", "LPAR"}, _CONDITION, "a condition"),
    ({"STRING", "NUMBER"}, _VALUE, "a value"),
    ({"PATH"}, _NAME, "a name"),
    ({"DURATION"}, _DURATION, "a duration"),
    (
        {"EQUAL", "BETWEEN"},
        _OPERATOR,
        'an operator ("==", "!=", ">", ">=", "<", "<=", "in", "not in", "contains", "matches" or "between")',
    ),
    ({"NUMBER"}, {"NUMBER"}, "a number"),
)
"""What is said for many terminals at once: where all of the first are accepted, instead of the second."""

_MARKS = {"LPAR": "(", "RPAR": ")", "COMMA": ",", "CLOSE": "]", "OPEN": "["}

_OPERATOR_RUN = re.compile(r"[=!<>~&|≠≤≥]+")
_MEANT_OPERATORS = {
    "&&": "and",
    "&": "and",
    "||": "or",
    "|": "or",
    "!": "not",
    "<>": "!=",
    "=!": "!=",
    "!==": "!=",
    "≠": "!=",
    "===": "==",
    "=>": ">=",
    "≥": ">=",
    "=<": "<=",
    "≤": "<=",
    "=~": "matches",
    "~=": "matches",
    "~": "matches",
}
_MEANT_WORDS = {
    "is": ("EQUAL", "=="),
    "equals": ("EQUAL", "=="),
    "eq": ("EQUAL", "=="),
    "neq": ("UNEQUAL", "!="),
    "nin": ("IN", "not in"),
    "has": ("CONTAINS", "contains"),
    "includes": ("CONTAINS", "contains"),
    "like": ("MATCHES", "matches"),
}
_UNIT_WORD = re.compile(r"(?:ms|s|m|h|d|w|(?:milli)?sec(?:ond)?s?|min(?:ute)?s?|hours?|days?|weeks?)")
_NUMBER_RUN = re.compile(r"[-+.\w]+")
_WORD_RUN = re.compile(r"[-\w@$.]+")


class Word(NamedTuple):
    """A token as it was read: the name of its terminal, its text, its offset."""

    terminal: str
    text: str
    offset: int


class Trials(Protocol):
    """The parser, for trying what else a text may have been meant to say."""

    def accepted(self, index: int) -> Set[str]:
        """Give the terminals that could stand where the token of that index stands."""

    def goes_on(self, index: int, terminal: str, past: int) -> bool:
        """Tell whether the text can be read past a token if another had that terminal."""


class Finding(NamedTuple):
    """Where a text cannot be read, and what is said about it."""

    offset: int
    sentence: str


def explain(text: str, words: Sequence[Word], failed: int, trials: Trials) -> Finding:
    """Say why the word of index `failed` cannot stand where it does; the fault may lie a word or two before."""
    meant = _near_keyword(words, failed, trials)
    if meant:
        index, keyword = meant
        return _finding(words[index], trials.accepted(index), f'did you mean "{keyword}"?')
    run = _run_at(text, words[failed].offset)
    if run and run[1] in _MEANT_OPERATORS:
        start, written = run
        index = next(i for i in range(len(words)) if words[i].offset == start)
        word = Word("", written, start)
        return _finding(word, trials.accepted(index), f'did you mean "{_MEANT_OPERATORS[written]}"?')
    accepted = trials.accepted(failed)
    return _finding(words[failed], accepted, next(_hints(words, failed, accepted), ""))


def explain_character(text: str, offset: int, accepted: Set[str]) -> Finding:
    """Say why no word of the language begins at `offset`. (A malformed string in `"` is told elsewhere.)"""
    char = text[offset]
    if char == "'":
        return Finding(offset, "expected a closing `'` on the same line")
    if char == "`":
        return Finding(offset, "expected a closing backquote after the name")
    run = _run_at(text, offset)
    if run and run[1] in _MEANT_OPERATORS:
        return _finding(Word("", run[1], run[0]), accepted, f'did you mean "{_MEANT_OPERATORS[run[1]]}"?')
    number = _NUMBER_RUN.match(text, offset)
    if number and (char.isdecimal() or char in "-+."):
        hint = "a number is written as in JSON, a duration as a number and one of ms, s, m, h, d, w"
        return _finding(Word("", number[0], offset), accepted, hint)
    if char.isalnum() or char in "_$.":
        start = offset
        while start and _WORD_RUN.fullmatch(text[start - 1]):
            start -= 1
        whole = _WORD_RUN.match(text, start)
        hint = f"such a name is written {in_backquotes(whole[0])}" if whole else ""
        return _finding(Word("", char, offset), accepted, hint)
    return _finding(Word("", char, offset), accepted, "")


def expected(accepted: Set[str]) -> str:
    """Give what could stand at a place, in the language's own words."""
    rest = set(accepted)
    phrases = []
    for needed, covered, phrase in _GROUPS:
        if needed <= rest:
            phrases.append(phrase)
            rest -= covered
    phrases += [f'"{_MARKS.get(terminal, terminal.lower())}"' for terminal in sorted(rest - {END})]
    if END in rest:
        phrases.append("the end of the text")
    return listed(phrases)


def _finding(word: Word, accepted: Set[str], hint: str) -> Finding:
    got = "the end of the text" if word.terminal == END else quoted(word.text)
    tail = f"; {hint}" if hint else ""
    return Finding(word.offset, f"expected {expected(accepted)}, got {got}{tail}")


def _run_at(text: str, offset: int) -> tuple[int, str] | None:
    """Give the characters of operators that stand together around an offset, and where they begin."""
    start = offset
    while start and _OPERATOR_RUN.fullmatch(text[start - 1]):
        start -= 1
    run = _OPERATOR_RUN.match(text, start)
    return (start, run[0]) if run and run.end() > offset else None


def _near_keyword(words: Sequence[Word], failed: int, trials: Trials) -> tuple[int, str] | None:
    """Give the word that is nearly a keyword with which the text could be read on, and that keyword."""
    found = []
    for index in range(failed, max(-1, failed - 3), -1):
        word = words[index]
        if word.terminal != "WORD" and word.text not in KEYWORDS:
            continue
        accepted = trials.accepted(index)
        for keyword in sorted(KEYWORDS):
            apart = distance(word.text, keyword)
            if (
                apart <= slips_max(word.text)
                and keyword != word.text
                and keyword.upper() in accepted
                and trials.goes_on(index, keyword.upper(), failed)
            ):
                found.append((apart, failed - index, keyword))
    if not found:
        return None
    _, back, keyword = min(found)
    return failed - back, keyword


def _hints(words: Sequence[Word], failed: int, accepted: Set[str]) -> Iterator[str]:
    """Give what is worth saying to a writer who put this word here, the most fitting first."""
    word = words[failed]
    before = words[failed - 1] if failed else Word("", "", 0)
    first = words[failed - 2] if failed > 1 else Word("", "", 0)
    terminal, meant = _MEANT_WORDS.get(word.text.lower(), ("", ""))
    if terminal in accepted:
        yield f'did you mean "{meant}"?'
    if word.text.lower() == "null" and before.terminal in {"EQUAL", "UNEQUAL"} and first.terminal in _NAME:
        fact = first.text
        yield (
            f"a fact that is null is missing; `{fact} == {fact}` says that it is there, "
            f"`not {fact} == {fact}` that it is missing"
        )
    if word.terminal == "SINCE" and "AND" in accepted:
        yield '"since" does not chain: put parentheses around the one that is meant first'
    if is_reserved(word.text) and "PATH" in accepted:
        yield f"as a name it is written {in_backquotes(word.text)}"
    if before.terminal == "WORD" and first.terminal == "NUMBER" and _UNIT_WORD.fullmatch(before.text):
        yield f"the unit of a duration stands directly behind its number, as in `{first.text}{before.text[0]}`"
    if word.terminal in _NAME and "STRING" in accepted:
        yield f'a bare word is a name; the string is written "{word.text}"'
    if before.terminal in {"ABOVE", "AT_LEAST", "BELOW", "AT_MOST"}:
        yield f'"{before.text}" compares with a number only'
    if word.terminal == "LPAR" and before.terminal == "PATH":
        yield "the name of a relation has no dots and no `$`, unless it is in backquotes"
