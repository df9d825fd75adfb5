"""Explains syntax errors: what was expected, in the words of the language, and what was probably meant."""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, Protocol

from engine.language.diagnostics import edit_distance, enumerated, found, typos_max
from engine.language.forms.form import CALLS, INFIXES, PREFIXES
from engine.language.forms.terms import TERM_WORDS
from engine.language.operators import COMPARISONS, INEQUALITIES
from engine.language.text.errors.foreign_idioms import about_idiom, about_unfinished, place_of
from engine.language.text.errors.near_misses import about_aggregates, is_after_where
from engine.language.text.lexical import (
    ARITHMETIC_TERMINALS,
    DURATIONS,
    END,
    LITERALS,
    NAMES,
    OPERATOR_TERMINALS,
    Word,
    contextual_keywords,
    in_backquotes,
    is_reserved,
    keywords,
    terminals_of,
)
from engine.language.text.sugar import SUGAR

_TERM: Final = frozenset({"LPAR", *(word.upper() for word in TERM_WORDS)})
"""The terminals that begin a term, besides names and literals."""
_CONDITION: Final = frozenset(
    {
        *("NOT", "PER", "ALL", "ANY", "COMPARE", "EXISTS", "MISSING", "SOME", "ANYWHERE"),
        *_TERM,
        *NAMES,
        *LITERALS,
    }
)
"""The terminals that begin a condition, besides the words of prefixes and calls."""
_CALLED: Final = TERM_WORDS | {"compare"}
"""The keywords that only stand before a parenthesis."""
_SUGAR: Final = frozenset(map(str.upper, SUGAR))
_OPERATOR_TEXTS = sorted(OPERATOR_TERMINALS, key=str.islower)
_OPERATORS_LISTED = enumerated([f'"{text}"' for text in _OPERATOR_TEXTS])
_COMPARISONS_LISTED = enumerated([f'"{text}"' for text in COMPARISONS.values()])

_GROUPS: tuple[tuple[AbstractSet[str], AbstractSet[str], str], ...] = (
    ({"PER", "LPAR"}, _CONDITION, "a condition"),
    ({"LPAR", "STRING", "NUMBER"}, {*_TERM, "EARLIER", *LITERALS}, "a value"),
    ({"STRING", "NUMBER"}, LITERALS, "a value"),
    ({"PATH"}, NAMES | {"NETWORK"}, "a name"),
    ({"DURATION"}, DURATIONS, "a duration"),
    ({"EQUAL", "CONTAINS"}, {*OPERATOR_TERMINALS.values(), *_SUGAR}, f"an operator ({_OPERATORS_LISTED})"),
    ({"EQUAL", "ABOVE"}, {*OPERATOR_TERMINALS.values()}, f"a comparison ({_COMPARISONS_LISTED})"),
    ({"NUMBER"}, {"NUMBER"}, "a number"),
)
"""If all terminals of the first set are accepted, the phrase replaces those of the second set."""

_MARKS = {"LPAR": "(", "RPAR": ")", "COMMA": ",", "CLOSE": "]", "OPEN": "[", "STAR": "*"}

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
    "is": "==",
    "equals": "==",
    "eq": "==",
    "neq": "!=",
    "nin": "not in",
    "notin": "not in",
    "has": "contains",
    "includes": "contains",
}
_UNIT_WORD = re.compile(
    r"(?P<ms>ms|millis(?:ec(?:ond)?s?)?)|(?P<s>s|sec(?:ond)?s?)|(?P<m>m|min(?:ute)?s?)"
    r"|(?P<h>h|hrs?|hours?)|(?P<d>d|days?)|(?P<w>w|weeks?)"
)
_CURLY_QUOTES = "\u201c\u201d\u201e\u2018\u2019«»"
_NUMBER_RUN = re.compile(r"(?=[-+]*\.?[0-9])[-+.\w]+")
_WORD_RUN = re.compile(r"[-\w@$.]+")


class Trials(Protocol):
    """The parser, for trying other tokens in the text."""

    first: int
    """The index of the first token that can be replaced."""

    def accepted(self, index: int) -> AbstractSet[str]:
        """Return the terminals that the parser accepts in place of the token at an index."""

    def continues(self, index: int, terminal: str, last: int) -> bool:
        """Return whether the text can be read up to the token at `last` with that terminal at `index`."""


class SyntaxExplanation(NamedTuple):
    """Where a text cannot be read, and why."""

    offset: int
    sentence: str


def explain(text: str, words: Sequence[Word], failed: int, trials: Trials) -> SyntaxExplanation:
    """Explain why the word at index `failed` is not accepted. The error may be a few words earlier."""
    word = words[failed]
    accepted = trials.accepted(failed)
    place = place_of(words, failed, accepted)
    suggestion = next(about_idiom(place), "") or _other_spelling(word, accepted)
    if suggestion:
        return _explanation(word, accepted, suggestion)
    if "AND" not in accepted and is_after_where(words, failed):
        return _explanation(word, accepted, '"where" takes one predicate; put more of them in parentheses')
    meant = _near_keyword(words, failed, trials)
    if meant:
        index, keyword = meant
        return _explanation(words[index], trials.accepted(index), f'did you mean "{keyword}"?')
    operator = _misspelled_operator(text, word.offset)
    if operator:
        index = next(index for index in range(len(words)) if words[index].offset == operator.offset)
        return _explanation(operator, trials.accepted(index), _operator_suggestion(operator))
    for index in (failed - 1, failed):
        if _is_stray_unit(words, index):
            number, unit = words[index - 1 : index + 1]
            suggestion = f"the unit follows the number directly, as in `{number.text}{_unit(unit.text)}`"
            return _explanation(unit, trials.accepted(index), suggestion)
    return _explanation(word, accepted, next(_suggestions(words, failed, accepted), ""))


def explain_character(text: str, words: Sequence[Word], offset: int, trials: Trials) -> SyntaxExplanation:
    """Explain why no word of the language begins at `offset`, where no double-quoted string begins."""
    char = text[offset]
    if char == "'":
        return SyntaxExplanation(offset, "expected a closing `'` on the same line")
    if char == "`":
        return SyntaxExplanation(offset, "expected a closing backquote after the name")
    operator = _misspelled_operator(text, offset)
    if operator:
        index = sum(word.offset < operator.offset for word in words)
        return _explanation(operator, trials.accepted(index), _operator_suggestion(operator))
    accepted = trials.accepted(len(words))
    number = _NUMBER_RUN.match(text, offset)
    if number:
        places = "durations as a number followed by ms, s, m, h, d or w"
        suggestion = f"numbers are written as in JSON{f', {places}' if 'DURATION' in accepted else ''}"
        return _explanation(Word("", number[0], offset), accepted, suggestion)
    start = offset
    while start and _WORD_RUN.fullmatch(text[start - 1]):
        start -= 1
    whole = _WORD_RUN.match(text, start)
    suggestion = ""
    if whole and whole.end() > offset and whole[0].strip("-."):
        suggestion = f"such a name needs backquotes: {in_backquotes(whole[0])}"
    if whole and whole[0] == "$":
        suggestion = "the name follows its `$` directly"
    if char in _CURLY_QUOTES:
        suggestion = 'texts stand in straight quotes, as in `x == "a"`'
    if char == "{" and "OPEN" in accepted:
        suggestion = "a list stands in brackets, as in `x in [1, 2]`"
    return _explanation(Word("", char, offset), accepted, suggestion)


def expected(accepted: AbstractSet[str]) -> str:
    """Describe the accepted terminals in the words of the language."""
    # Other terminals say more: arithmetic could follow nearly everywhere.
    rest = accepted - ARITHMETIC_TERMINALS
    phrases = []
    for needed, covered, phrase in _GROUPS:
        if needed <= rest:
            phrases.append(phrase)
            rest -= covered
            if covered is _CONDITION:
                rest -= terminals_of(PREFIXES | CALLS)
    words = [_MARKS.get(terminal, terminal.lower()) for terminal in rest - {END}]
    phrases += [f'"{word}"' for word in sorted(words, key=lambda word: (not word.isalpha(), word))]
    if END in rest:
        phrases.append("the end of the text")
    return enumerated(phrases)


def _explanation(word: Word, accepted: AbstractSet[str], suggestion: str) -> SyntaxExplanation:
    got = "the end of the text" if word.terminal == END else found(word.text)
    tail = f"; {suggestion}" if suggestion else ""
    return SyntaxExplanation(word.offset, f"expected {expected(accepted)}, got {got}{tail}")


def _misspelled_operator(text: str, offset: int) -> Word | None:
    """Return the run of operator characters around an offset if it is a known mistake."""
    if not _OPERATOR_RUN.match(text, offset):
        return None
    start = offset
    while start and _OPERATOR_RUN.fullmatch(text[start - 1]):
        start -= 1
    run = _OPERATOR_RUN.match(text, start)
    return Word("", run[0], start) if run and run[0] in _MEANT_OPERATORS else None


def _operator_suggestion(operator: Word) -> str:
    return f'did you mean "{_MEANT_OPERATORS[operator.text]}"?'


def _other_spelling(word: Word, accepted: AbstractSet[str]) -> str:
    """Return the suggestion for a keyword in another case, or for a common synonym of an operator."""
    keyword = word.text.lower()
    if keyword in keywords() and keyword != "null" and word.text not in keywords():
        name = f", or the name {in_backquotes(word.text)}, in backquotes"
        return f'did you mean "{keyword}"{"" if keyword.upper() in accepted else name}?'
    meant = _MEANT_WORDS.get(keyword)
    return f'did you mean "{meant}"?' if meant and OPERATOR_TERMINALS[meant] in accepted else ""


def _near_keyword(words: Sequence[Word], failed: int, trials: Trials) -> tuple[int, str] | None:
    """Return the index of a misspelled keyword, and the keyword, if the text can be read further with it."""
    candidates = []
    known = keywords() | contextual_keywords()
    for index in range(trials.first, failed + 1):
        word = words[index]
        if _is_null(word) or (word.terminal != "WORD" and word.text not in known):
            continue
        accepted = trials.accepted(index)
        if index < failed and word.terminal in accepted and word.terminal == word.text.upper():
            # It was read as the keyword.
            continue
        for keyword in sorted(known):
            typos = edit_distance(word.text, keyword)
            if (
                (keyword not in _CALLED or _is_called(words, index))
                and typos <= min(typos_max(word.text), typos_max(keyword))
                and keyword != word.text
                and keyword.upper() in accepted
                and trials.continues(index, keyword.upper(), failed)
            ):
                candidates.append((typos, failed - index, keyword))
    if not candidates:
        return None
    _, back, keyword = min(candidates)
    return failed - back, keyword


def _is_called(words: Sequence[Word], index: int) -> bool:
    return words[index + 1 : index + 2] != [] and words[index + 1].terminal == "LPAR"


def _is_null(word: Word) -> bool:
    return word.text.lower() == "null"


def _suggestions(words: Sequence[Word], failed: int, accepted: AbstractSet[str]) -> Iterator[str]:
    """Yield suggestions for the word at index `failed`, the most likely first."""
    word = words[failed]
    match words[:failed]:
        case [*_, Word(terminal, fact), Word("EQUAL" | "UNEQUAL")] if terminal in NAMES and _is_null(word):
            yield (
                f"a fact that is null counts as missing: `{fact} == {fact}` tests that it is present, "
                f"`not {fact} == {fact}` that it is missing"
            )
    for terminal, other in (("FOR", "WITHIN"), ("WITHIN", "FOR")):
        if word.terminal == terminal and other in accepted:
            yield f'did you mean "{other.lower()}"?'
    if word.terminal in terminals_of(INFIXES) and "AND" in accepted:
        yield f'"{word.text}" does not chain; use parentheses'
    if is_reserved(word.text) and "PATH" in accepted:
        yield f"as a name it needs backquotes: {in_backquotes(word.text)}"
    match words[:failed]:
        case [*_, Word(terminal, sign)] if terminal in INEQUALITIES.values():
            if "PATH" not in accepted:
                yield f'"{sign}" compares with a number only'
        case [*_, Word("PATH")] if word.terminal == "LPAR":
            yield "the name of a relation with dots or `$` needs backquotes"
        case _ if word.terminal in NAMES and "STRING" in accepted:
            yield f'a bare word is a name; write the string as "{word.text}"'
    yield from about_aggregates(words, failed, accepted)
    yield from about_unfinished(place_of(words, failed, accepted))
    if word.terminal == "DURATION":
        yield 'a duration is only allowed after "within" or "for"'


def _is_stray_unit(words: Sequence[Word], index: int) -> bool:
    """Return whether a word is the unit of the preceding number, as in `within 5 minutes`."""
    match [word.terminal for word in words[:index]]:
        case [*_, "WITHIN" | "FOR", "NUMBER"]:
            return _unit(words[index].text) != ""
        case _:
            return False


def _unit(word: str) -> str:
    """Return the unit that a word names, or an empty string."""
    match = _UNIT_WORD.fullmatch(word.lower())
    return match.lastgroup or "" if match else ""
