"""Recognizes idioms of other languages, and suggests what to write instead.

Each kind examines the words around the one that cannot be read.
"""

import json
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Final, NamedTuple

from engine.language.forms.form import INFIXES, PREFIXES, Content, Shape
from engine.language.forms.table import first_form
from engine.language.operators import INEQUALITIES
from engine.language.text.errors.foreign_words import (
    ABSENT,
    NETWORK,
    OPERATORS,
    PRESENT,
    aggregate_names,
    instead_of,
    words_before,
)
from engine.language.text.errors.near_misses import about_terms
from engine.language.text.lexical import (
    COMPARISON_TERMINALS,
    DURATIONS,
    END,
    LITERALS,
    NAMES,
    Word,
    contextual_keywords,
    from_backquotes,
    is_reserved,
    terminals_of,
    words_of,
)

_LOOKED_AT: Final = 20
"""The maximum number of words examined before and after the one that cannot be read."""
_TEXTS: Final = {"STRING", "VERBATIM"}
_NULLS: Final = {"null", "none", "nil"} | ABSENT
_ENDS: Final = {END, "AND", "OR", "RPAR", "COMMA"}
"""The terminals after a whole condition, besides the words of infixes."""
_AFTER_KEYS: Final = {END, "LPAR", "NOT", "PER"}
"""The terminals after the last key, besides the words of prefixes."""
_INEQUALITIES: Final = frozenset(INEQUALITIES.values())
_RESETS: Final = {"after", "from", "until", "unless"}
_IN_ORDER: Final = {"then", "followed", "before", "after"}
_WINDOWED: Final = {"over", "during", "in", "for", "last"}


class Place(NamedTuple):
    """A word that cannot be read, those around it, and the terminals accepted in its place."""

    before: Sequence[Word]
    word: Word
    after: Sequence[Word]
    accepted: AbstractSet[str]

    @property
    def follows_condition(self) -> bool:
        """Whether a whole condition precedes the word."""
        return "AND" in self.accepted and "EQUAL" not in self.accepted and self.accepted != {"AND"}

    @property
    def follows_term(self) -> bool:
        """Whether a term that is not a name precedes the word, and its comparison is still missing."""
        return self.accepted >= COMPARISON_TERMINALS and "CONTAINS" not in self.accepted


def place_of(words: Sequence[Word], failed: int, accepted: AbstractSet[str]) -> Place:
    """Return the surroundings of the word at an index."""
    before = words[max(0, failed - _LOOKED_AT) : failed]
    return Place(before, words[failed], words[failed + 1 :][:_LOOKED_AT], accepted)


def about_idiom(place: Place) -> Iterator[str]:
    """Yield what to write instead if the words around the place have a meaning in other languages."""
    yield from _about_operators(place)
    yield from _about_presence(place)
    yield from _about_keys(place)
    yield from _about_counts(place)
    yield from _about_ages(place)
    yield from _about_calls(place)
    yield from _about_values(place)
    yield from about_terms(place.before, place.word, place.accepted)
    yield from _about_order(place)


def about_unfinished(place: Place) -> Iterator[str]:
    """Yield how to make a condition of a name without an operator, or of a window without one."""
    match place.before:
        case [*_, Word("LPAR"), name, Word("RPAR")] | [*_, name] if _is_name(name) and _ends(place.word):
            if name.text not in contextual_keywords() and "EQUAL" in place.accepted:
                yield f"a name alone is no condition; if it is a boolean, write `{name.text} == true`"
    if place.follows_condition and place.word.terminal == "WITHIN":
        yield f"the window follows its operator, as in `once within {_window(place)} a == 1`"


def _about_operators(place: Place) -> Iterator[str]:
    """`x startswith "a"`, `x not contains "a"`, `x in network "10.0.0.0/8"`, `x is not 1`."""
    value = _text(place.after[0]) if place.after else "…"
    has_value = bool(place.after) and place.after[0].terminal in LITERALS
    word = place.word.text.lower()
    match place.before:
        case [*_, fact, Word("NOT")] if _is_name(fact) and place.accepted == {"IN"} and word in OPERATORS:
            yield from _instead(word, fact, value, is_negated=True)
        case [*_, fact, Word("NOT"), Word("IN"), Word(_, network)] if network.lower() in NETWORK:
            if place.word.terminal in _TEXTS and _is_name(fact):
                yield from _instead(network, fact, _text(place.word), is_negated=True)
        case [*_, fact, Word("IN"), Word(_, network)] if network.lower() in NETWORK and _is_name(fact):
            if place.word.terminal in _TEXTS:
                yield from _instead(network, fact, _text(place.word))
        case [*_, fact] if _is_name(fact) and "EQUAL" in place.accepted:
            if word in OPERATORS and not (word in PRESENT and has_value):
                yield from _instead(word, fact, value)
            elif word == "is" and place.after[:1] and place.after[0].terminal in {"NOT", "IN"}:
                meant = "in" if place.after[0].terminal == "IN" else "!="
                if not (_is_null(place.after[1:]) or _is_present(place.after[1:])):
                    yield f'did you mean "{meant}"?'


def _about_presence(place: Place) -> Iterator[str]:
    """`x is null`, `x is not null`, `x not null`, `exists x`."""
    word, after = place.word, place.after
    match place.before:
        case [*_, fact, Word("NOT")] if _is_name(fact) and place.accepted == {"IN"} and _is_null([word]):
            yield from _instead("exists", fact)
        case [*_, Word(_, verb)] if verb.lower() in PRESENT | ABSENT and word.terminal in NAMES:
            if "EQUAL" in place.accepted:
                yield from _instead(verb, word)
        case [*_, fact] if _is_name(fact) and "EQUAL" in place.accepted and word.text.lower() == "is":
            is_negated = bool(after) and after[0].terminal == "NOT"
            said = after[1:] if is_negated else after
            if _is_null(said) or _is_present(said):
                yield from _instead("missing", fact, is_negated=is_negated != _is_present(said))


def _about_keys(place: Place) -> Iterator[str]:
    """`per user, ip (…)`, `per (user, ip) …`, `count(…) by user`, `group by user`."""
    keys = _keys(place)
    if len(keys) == 1:
        yield f"a key stands without parentheses, as in `per {keys[0]} (a == 1)`"
    elif keys:
        yield f"each key has its own `per`, as in `{' '.join(f'per {key}' for key in keys)} (a == 1)`"
    words = [*place.before[-1:], place.word, *place.after[:2]]
    behind = place.follows_condition or place.follows_term
    begins = "EQUAL" in place.accepted and place.before and place.before[-1].text in {"by", "group"}
    if (behind and place.word.text in {"per", "by", "group"}) or begins:
        key = next(
            (word.text for word in words[1:] if _is_name(word) and word.text not in {"by", "group"}), "x"
        )
        yield f"a key stands before its condition, as in `per {key} ({_counted()})`"


def _keys(place: Place) -> list[str]:
    """Return the names after a `per` that are joined as if it took several, or are in parentheses."""
    match place.before:
        case [*_, Word("PER"), Word(terminal, first)] if terminal in NAMES:
            if place.word.terminal not in {"COMMA", "AND"}:
                return []
            keys, rest, is_enclosed = [first], [place.word, *place.after], False
        case [*_, Word("PER")] if place.word.terminal in {"LPAR", "OPEN"}:
            keys, rest, is_enclosed = [], [Word("COMMA", ",", 0), *place.after], True
        case _:
            return []
    while len(rest) > 1 and rest[0].terminal in {"COMMA", "AND"} and _is_name(rest[1]):
        keys.append(rest[1].text)
        rest = rest[2:]
    ends = {"RPAR", "CLOSE"} if is_enclosed else _AFTER_KEYS | terminals_of(PREFIXES)
    return keys if rest and rest[0].terminal in ends else []


def _about_counts(place: Place) -> Iterator[str]:
    """`count(*)`, a count of the values of a fact, a count that is not compared, or not with `within`."""
    word, counters = place.word, terminals_of({Shape.CALL_OF_CONDITION})
    is_of_all = word.terminal in {"STAR", "RPAR"}
    match place.before:
        case [*others, Word(terminal, name), Word("LPAR")] if terminal in counters and is_of_all:
            keys = [key.text for per, key in pairwise(others) if per.terminal == "PER"]
            fact = keys[-1] if keys else "x"
            yield (
                f'"{name}" takes a condition; to count every event that has a fact, write '
                f"`{name}({fact} == {fact}) within 10m >= 5`"
            )
        case [*_, Word(terminal), Word("LPAR"), Word(_, name)] if (
            terminal in counters and name == _counting_values() and _is_name(word)
        ):
            yield f"different values are counted by `{name}({word.text}) within 10m >= 5`"
        case [*_, Word("WITHIN"), _] if place.follows_term and word.terminal == "SINCE":
            yield 'a count has a window or a "since", not both'
        case _ if place.follows_term and word.text in _RESETS and "SINCE" in place.accepted:
            yield 'did you mean "since"?'
        case _ if place.follows_term and _ends(word) and _follows_reset(place):
            if word.terminal in {"AND", "OR"}:
                yield 'several conditions after "since" stand in parentheses'
            name = first_form(Shape.CALL_SINCE, Content.COUNT).word
            yield f"compare it with a number, as in `{name}(a == 1) since b == 2 >= 5`"
        case _ if place.follows_term and _ends(word) and _follows_aggregate(place):
            yield f"compare it with a number, as in `{_counted()}`"
        case _ if place.follows_term and word.text in _WINDOWED and "WITHIN" in place.accepted:
            yield 'did you mean "within"?'


def _about_ages(place: Place) -> Iterator[str]:
    """`once within (5m, 1h) a`, `once within 5m to 1h a`, `once between 5m and 1h a`, `[5m 1h]`."""
    word, following = place.word, [each.terminal for each in place.after[:1]]
    joins = word.terminal in {"AND", "COMMA"} and not DURATIONS.isdisjoint(following)
    is_range = False
    match [each.terminal for each in place.before]:
        case [*_, "RPAR", "WITHIN"] if word.terminal == "OPEN":
            yield "only operators that look for an event take a lower bound, not those that count or add up"
        case [*_, "WITHIN" | "FOR"]:
            is_range = word.terminal == "LPAR"
        case [*_, "WITHIN" | "FOR", ("NUMBER" | "DURATION")]:
            is_range = joins or word.terminal in DURATIONS
        case [*_, "WITHIN" | "FOR", ("NUMBER" | "DURATION"), "WORD"]:
            is_range = word.terminal in DURATIONS
        case [*_, "OPEN", ("NUMBER" | "DURATION")] if place.accepted == {"COMMA"}:
            is_range = word.terminal in DURATIONS
        case [*_, "WORD", "BETWEEN"] if place.before[-2].text in words_of(PREFIXES):
            # Here, the word of an addition is a name.
            is_range = word.terminal in DURATIONS
        case [*_, last] if last in terminals_of(PREFIXES) and word.terminal == "BETWEEN":
            is_range = not DURATIONS.isdisjoint(following)
    if is_range:
        yield "both bounds of a window stand in brackets, as in `once within [5m, 1h] a == 1`"


def _follows_reset(place: Place) -> bool:
    """Return whether the word follows the `since` of a count and the condition after that."""
    return not place.accepted & {"SINCE", "WITHIN"} and "SINCE" in [each.terminal for each in place.before]


def _about_calls(place: Place) -> Iterator[str]:
    """`lower(x) == "a"`, `x == prev(x)`, `contains(x, "a")`, `x.contains("a")`."""
    word, before = place.word, [*place.before]
    compares = word.terminal in COMPARISON_TERMINALS or word.terminal == "WITHIN"
    match before:
        case [*_, Word("RPAR")] if compares and "LPAR" in (terminals := [each.terminal for each in before]):
            start = len(terminals) - 1 - terminals[::-1].index("LPAR")
            name = before[start - 1]
            if start and _is_name(name) and name.text.lower() not in aggregate_names():
                yield from _call(name.text, [*before[start + 1 : -1], *place.after[:1]])
        case [*_, Word(sign), Word(_, name)] if sign in COMPARISON_TERMINALS and word.terminal == "LPAR":
            yield from _call(name, place.after[:1])
        case [*_, Word(sign), Word(_, name)] if sign in COMPARISON_TERMINALS and _is_name(word):
            if name.lower() in words_before():
                yield from _call(name, [word])
        case [*_, Word("PATH", path)] if word.terminal == "LPAR":
            holder, _, method = path.rpartition(".")
            yield from _call(method, [Word("PATH", holder, 0), *place.after[:1]])
    match place.after:
        case [Word("LPAR"), fact, Word("COMMA"), *_] if _is_name(fact) and "PER" in place.accepted:
            if word.terminal in {"CONTAINS", "MATCHES"}:
                yield from _call(word.text, place.after[1:4])


def _about_values(place: Place) -> Iterator[str]:
    """`x in (1, 2)`, `x between 1, 2`, `x == 1 or 2`, `1 < x < 5`, `true`, `x[0]`."""
    word, accepted = place.word, place.accepted
    match place.before:
        case [*_, Word("IN")] if word.terminal == "LPAR":
            yield "a list stands in brackets, as in `x in [1, 2]`"
        case [*_, Word("BETWEEN")] if word.terminal == "LPAR":
            yield "the two values are joined by `and`, as in `x between 1 and 5`"
        case [*_, fact] if _is_name(fact) and word.terminal == "OPEN" and "EQUAL" in accepted:
            if "COMMA" not in [each.terminal for each in place.after[:2]]:
                asked = f"some {fact.text} (it == 1)"
                yield f"a name in an object follows a dot, as in `x.a`; elements are asked about by `{asked}`"
    if accepted == {"AND"}:
        yield "the two values are joined by `and`, as in `x between 1 and 5`"
    match place.before:
        case [*_, Word(text) as value, Word("IN")] if text in _TEXTS and _is_name(word):
            yield f"the name stands first, as in `{word.text} contains {value.text}`"
        case [*_, fact, Word("EQUAL"), first, Word("OR"), other] if _ends(word) and place.follows_term:
            if _is_name(fact) and {first.terminal, other.terminal} <= LITERALS:
                yield f"write `{fact.text} in [{first.text}, {other.text}]`"
        case [*_, first, sign, fact] if _is_name(fact) and {sign.terminal, word.terminal} <= _INEQUALITIES:
            bound = place.after[0].text if place.after else "…"
            said = f"{first.text} {sign.text} {fact.text} and {fact.text} {word.text} {bound}"
            yield f"comparisons do not chain; write `{said}`"
        case [*_, Word("TRUE" | "FALSE")] if _ends(word) and place.follows_term:
            yield "a condition asks about a fact, as in `x == true`"


def _about_order(place: Place) -> Iterator[str]:
    """`within 10m a == 1`, `once(a == 1, 10m)`, `a == 1 for 5m`, `a == 1 then b == 2`, `a == 1, b == 2`."""
    word = place.word
    has_window = bool(_window(place, ""))
    begins = word.terminal == "WITHIN" and "PER" in place.accepted and "FOR" not in place.accepted
    follows = [each.terminal for each in place.after[:1]]
    is_argument = word.terminal == "COMMA" and place.follows_condition and follows == ["DURATION"]
    if has_window and (begins or is_argument):
        once = f"once within {_window(place)} a == 1"
        yield f"a window belongs to an operator, as in `{once}` or `{_counted()}`"
    if word.text in _WINDOWED and has_window and {"WITHIN", "PER"} <= place.accepted:
        yield 'did you mean "within"?'
    if place.follows_condition:
        if word.terminal == "FOR" and has_window:
            yield f"the window follows its operator, as in `historically for {_window(place)} a == 1`"
        elif word.text.lower() in _IN_ORDER:
            earlier = first_form(Shape.PREFIX_WITHIN, looks_before=True).word
            yield f"first a, then b is written `b == 2 and {earlier} within 10m a == 1`"
        elif word.terminal == "COMMA":
            yield 'did you mean "and"?'


def _follows_aggregate(place: Place) -> bool:
    """Return whether an aggregate precedes the word."""
    return "WITHIN" in place.accepted or [word.terminal for word in place.before[-2:-1]] == ["WITHIN"]


def _counted() -> str:
    """Return an example of a count."""
    return f"{first_form(Shape.CALL_OF_CONDITION, Content.COUNT).word}(a == 1) within 10m >= 5"


def _counting_values() -> str:
    """Return the word of the aggregate that counts the values of a fact."""
    return first_form(Shape.CALL_OF_FACT, Content.COUNT).word


def _ends(word: Word) -> bool:
    """Return whether a word can follow a whole condition."""
    return word.terminal in _ENDS or word.terminal in terminals_of(INFIXES)


def _window(place: Place, default: str = "10m") -> str:
    """Return the text of the duration after the place, or of both bounds."""
    match place.after:
        case [Word(terminal, window), *_] if terminal in DURATIONS:
            return window
        case [Word("OPEN"), Word(_, least), Word("COMMA"), Word(terminal, window), *_]:
            return f"[{least}, {window}]" if terminal in DURATIONS else default
        case _:
            return default


def _call(name: str, args: Sequence[Word]) -> Iterator[str]:
    """Yield what to write instead of a call."""
    fact = next((arg for arg in args if _is_name(arg)), Word("WORD", "x", 0))
    value = next((_text(arg) for arg in args if arg.terminal in _TEXTS), "…")
    yield from _instead(name, fact, value)


def _instead(name: str, fact: Word, value: str = "…", *, is_negated: bool = False) -> Iterator[str]:
    named = from_backquotes(fact.text) if fact.terminal == "BACKQUOTED" else fact.text
    instead = instead_of(name, named, value, is_negated=is_negated)
    if instead is not None:
        yield instead


def _text(word: Word) -> str:
    """Return the value of a text literal; an ellipsis for any other word."""
    match word.terminal:
        case "STRING":
            value: str = json.loads(word.text)
            return value
        case "VERBATIM":
            return word.text[1:-1]
        case _:
            return "…"


def _is_name(word: Word) -> bool:
    return word.terminal in NAMES and not is_reserved(word.text)


def _is_null(words: Sequence[Word]) -> bool:
    return bool(words) and words[0].text.lower() in _NULLS


def _is_present(words: Sequence[Word]) -> bool:
    return bool(words) and words[0].text.lower() in PRESENT | {"set", "there"}
