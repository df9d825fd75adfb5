"""What was expected, in the language's own words, and what the writer may have meant."""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from engine.language.diagnostics import distance, listed, seen, slips_max
from engine.language.text.names import KEYWORDS, in_backquotes, is_reserved

END = "$END"

_CONDITION = {"LPAR", "NOT", "ONCE", "HISTORICALLY", "PER", "ALL", "ANY", "WORD", "PATH", "BACKQUOTED"}
_VALUE = {"STRING", "VERBATIM", "NUMBER", "TRUE", "FALSE", "OPEN"}
_NAME = {"WORD", "PATH", "BACKQUOTED"}
_DURATION = {"NUMBER", "DURATION"}
_OPERATOR = {
    "EQUAL", "UNEQUAL", "IN", "NOT", "CONTAINS", "MATCHES", "BETWEEN", "ABOVE", "AT_LEAST", "BELOW", "AT_MOST"
}  # fmt: skip

_GROUPS: tuple[tuple[AbstractSet[str], AbstractSet[str], str], ...] = (
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

_COMPARISONS = {"ABOVE", "AT_LEAST", "BELOW", "AT_MOST"}

WORDS_BACK_MAX = 3
"""How far before the word that cannot stand the misspelt one is looked for: in `al(a == 1)` it is three."""

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
    "notin": ("IN", "not in"),
    "has": ("CONTAINS", "contains"),
    "includes": ("CONTAINS", "contains"),
    "like": ("MATCHES", "matches"),
}
_UNIT_WORD = re.compile(
    r"(?P<ms>ms|millis(?:ec(?:ond)?s?)?)|(?P<s>s|sec(?:ond)?s?)|(?P<m>m|min(?:ute)?s?)"
    r"|(?P<h>h|hrs?|hours?)|(?P<d>d|days?)|(?P<w>w|weeks?)"
)
_NUMBER_RUN = re.compile(r"(?=[-+]*\.?[0-9])[-+.\w]+")
_WORD_RUN = re.compile(r"[-\w@$.]+")


class Word(NamedTuple):
    """A token as it was read: the name of its terminal, its text, its offset."""

    terminal: str
    text: str
    offset: int


class Trials(Protocol):
    """The parser, for trying what else a text may have been meant to say."""

    def accepted(self, index: int) -> AbstractSet[str]:
        """Give the terminals that could stand where the token of that index stands."""

    def goes_on(self, index: int, terminal: str, past: int) -> bool:
        """Tell whether the text can be read past a token if another had that terminal."""


class Finding(NamedTuple):
    """Where a text cannot be read, and what is said about it."""

    offset: int
    sentence: str


def explain(text: str, words: Sequence[Word], failed: int, trials: Trials) -> Finding:
    """Say why the word of index `failed` cannot stand there; the fault may lie a few words before."""
    word = words[failed]
    accepted = trials.accepted(failed)
    hint = _sure_hint(word, accepted)
    if hint:
        return _finding(word, accepted, hint)
    meant = _near_keyword(words, failed, trials)
    if meant:
        index, keyword = meant
        return _finding(words[index], trials.accepted(index), f'did you mean "{keyword}"?')
    operator = _misspelt_operator(text, word.offset)
    if operator:
        index = next(index for index in range(len(words)) if words[index].offset == operator.offset)
        return _finding(operator, trials.accepted(index), _operator_hint(operator))
    if failed and _is_stray_unit(words, failed - 1):
        number, unit = words[failed - 2 : failed]
        hint = f"the unit stands directly behind the number, as in `{number.text}{_unit(unit.text)}`"
        return _finding(unit, trials.accepted(failed - 1), hint)
    return _finding(word, accepted, next(_hints(words, failed, accepted), ""))


def explain_character(text: str, words: Sequence[Word], offset: int, trials: Trials) -> Finding:
    """Say why no word of the language begins at `offset`. A malformed string in `"` is told elsewhere."""
    char = text[offset]
    if char == "'":
        return Finding(offset, "expected a closing `'` on the same line")
    if char == "`":
        return Finding(offset, "expected a closing backquote after the name")
    operator = _misspelt_operator(text, offset)
    if operator:
        index = sum(word.offset < operator.offset for word in words)
        return _finding(operator, trials.accepted(index), _operator_hint(operator))
    accepted = trials.accepted(len(words))
    number = _NUMBER_RUN.match(text, offset)
    if number:
        places = "durations as a number with one of ms, s, m, h, d, w behind it"
        hint = f"numbers are written as in JSON{f', {places}' if 'DURATION' in accepted else ''}"
        return _finding(Word("", number[0], offset), accepted, hint)
    start = offset
    while start and _WORD_RUN.fullmatch(text[start - 1]):
        start -= 1
    whole = _WORD_RUN.match(text, start)
    hint = ""
    if whole and whole.end() > offset:
        hint = f"such a name is written {in_backquotes(whole[0])}, in backquotes"
    if whole and whole[0] == "$":
        hint = "a name stands directly behind its `$`"
    return _finding(Word("", char, offset), accepted, hint)


def expected(accepted: AbstractSet[str]) -> str:
    """Give what could stand at a place, in the language's own words."""
    rest = set(accepted)
    phrases = []
    for needed, covered, phrase in _GROUPS:
        if needed <= rest:
            phrases.append(phrase)
            rest -= covered
    words = [_MARKS.get(terminal, terminal.lower()) for terminal in rest - {END}]
    phrases += [f'"{word}"' for word in sorted(words, key=lambda word: (not word.isalpha(), word))]
    if END in rest:
        phrases.append("the end of the text")
    return listed(phrases)


def _finding(word: Word, accepted: AbstractSet[str], hint: str) -> Finding:
    got = "the end of the text" if word.terminal == END else seen(word.text)
    tail = f"; {hint}" if hint else ""
    return Finding(word.offset, f"expected {expected(accepted)}, got {got}{tail}")


def _misspelt_operator(text: str, offset: int) -> Word | None:
    """Give the characters of operators that stand together around one of them, if a known mistake."""
    if not _OPERATOR_RUN.match(text, offset):
        return None
    start = offset
    while start and _OPERATOR_RUN.fullmatch(text[start - 1]):
        start -= 1
    run = _OPERATOR_RUN.match(text, start)
    return Word("", run[0], start) if run and run[0] in _MEANT_OPERATORS else None


def _operator_hint(operator: Word) -> str:
    return f'did you mean "{_MEANT_OPERATORS[operator.text]}"?'


def _sure_hint(word: Word, accepted: AbstractSet[str]) -> str:
    """Give what is to be said of a word that is known, but not in this spelling."""
    keyword = word.text.lower()
    if keyword in KEYWORDS and keyword != "null" and word.text not in KEYWORDS:
        name = f", or the name {in_backquotes(word.text)}, in backquotes"
        return f'did you mean "{keyword}"{"" if keyword.upper() in accepted else name}?'
    terminal, meant = _MEANT_WORDS.get(keyword, ("", ""))
    return f'did you mean "{meant}"?' if terminal in accepted else ""


def _near_keyword(words: Sequence[Word], failed: int, trials: Trials) -> tuple[int, str] | None:
    """Give the word that is nearly a keyword with which the text could be read on, and that keyword."""
    found = []
    for index in range(failed, max(-1, failed - WORDS_BACK_MAX - 1), -1):
        word = words[index]
        if word.text.lower() == "null" or (word.terminal != "WORD" and word.text not in KEYWORDS):
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


def _hints(words: Sequence[Word], failed: int, accepted: AbstractSet[str]) -> Iterator[str]:
    """Give what is worth saying to a writer who put this word here, the most fitting first."""
    word = words[failed]
    before = words[failed - 1] if failed else Word("", "", 0)
    first = words[failed - 2] if failed > 1 else Word("", "", 0)
    if word.text.lower() == "null" and before.terminal in {"EQUAL", "UNEQUAL"} and first.terminal in _NAME:
        fact = first.text
        yield (
            f"a fact that is null is missing: `{fact} == {fact}` says that it is there, "
            f"`not {fact} == {fact}` that it is missing"
        )
    if word.terminal == "SINCE" and "AND" in accepted:
        yield '"since" does not chain: parentheses say which of them is meant first'
    if is_reserved(word.text) and "PATH" in accepted:
        yield f"as a name it is written {in_backquotes(word.text)}, in backquotes"
    if word.terminal in _NAME and "STRING" in accepted and before.terminal not in _COMPARISONS:
        yield f'a bare word is a name; the string is written "{word.text}"'
    if before.terminal in _COMPARISONS:
        yield f'"{before.text}" compares with a number only'
    if word.terminal == "DURATION":
        yield 'a duration stands only behind "within" or "for"'
    if word.terminal == "LPAR" and before.terminal == "PATH":
        yield "the name of a relation has no dots and no `$`, unless it is in backquotes"


def _is_stray_unit(words: Sequence[Word], index: int) -> bool:
    """Tell whether a word is the unit of the window before it: `within 5 minutes`."""
    window = [word.terminal for word in words[max(0, index - 2) : index]]
    return window in (["WITHIN", "NUMBER"], ["FOR", "NUMBER"]) and _unit(words[index].text) != ""


def _unit(word: str) -> str:
    """Give the unit that a word names, or nothing."""
    match = _UNIT_WORD.fullmatch(word.lower())
    return match.lastgroup or "" if match else ""
