"""Hints about valid conditions that probably do not mean what was intended, and what to write instead."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from engine.language import condition as language
from engine.language.condition import Condition, FactArg, Scalar, walk
from engine.language.diagnostics import nearest, quoted
from engine.language.forms.form import CALLS, PREFIXES, Content, Form, Shape
from engine.language.forms.table import FORM_OF, FORMS, facts_of, first_form
from engine.language.hints.comparisons import about_comparison, windowed_term
from engine.language.hints.contradictions import excluded_alternatives, idle_alternative
from engine.language.hints.truths import Truths
from engine.language.terms import Fact, Prev
from engine.language.text.errors.foreign_words import instead_of
from engine.language.text.lexical import words_of
from engine.language.text.printer import format as text_of
from engine.language.text.sugar import SUGAR, pattern_of, sugar_of

HINTS_MAX: Final = 10
"""The maximum number of hints about one condition."""

_FUNCTIONS: Final = ("exists", "missing", "startswith", "endswith", "contains")
_NEAR_CHARS_MIN: Final = 5
"""Shorter names are too easily near another."""

_KB: Final = 1_000
_WITHOUT_WINDOW: Final = {Shape.PREFIX, Shape.INFIX}
_WITH_WINDOW: Final = {
    Shape.PREFIX_WITHIN: "{} within 30d …",
    Shape.PREFIX_FOR: "{} for 30d …",
    Shape.INFIX_WITHIN: "… {} within 30d …",
}


KeyBytes = Callable[[Condition], int]
"""Returns the maximum number of bytes that a condition's own state takes for a key."""


def hints(
    condition: Condition, key_bytes: KeyBytes | None = None, relations: Collection[str] = ()
) -> list[str]:
    """Return the hints about a condition, in document order, without duplicates, at most HINTS_MAX.

    With `key_bytes`, hints about keys that are kept for ever say how much memory each takes. `relations` has
    the names of existing relations.
    """
    return [*islice(dict.fromkeys(_hints(condition, key_bytes, relations)), HINTS_MAX)]


def _hints(condition: Condition, key_bytes: KeyBytes | None, relations: Collection[str]) -> Iterator[str]:
    truths = Truths(condition)
    explained: set[int] = set()
    """The conditions covered by a hint about a condition around them."""
    for node, keys in walk(condition):
        if id(node) in explained:
            continue
        reason = truths.reason(node)
        if reason is not None:
            yield reason
        match node:
            case language.InRelation(name, args):
                yield from _about_function(name, args)
            case language.Ref(_, "in" | "nin", reference) if reference in relations:
                yield _about_list(node)
            case language.Leaf(fact, "matches", str() as pattern):
                yield from _about_wildcards(node, fact, pattern)
            case language.Anywhere(inner):
                yield from _about_names(inner)
            case language.Any(members) if node not in truths.known:
                explained.update(id(member) for member in members if isinstance(member, language.Any))
                yield from filter(None, [excluded_alternatives(node) or _about_alternatives(node)])
            case language.Compare() if node not in truths.known:
                yield from filter(None, [about_comparison(node)])
            case language.Keyed(inner, key) if not keys:
                yield from _kept_for_ever(inner, key, key_bytes)
            case _ if FORM_OF[type(node)].looks_before and FORM_OF[type(node)].shape in PREFIXES:
                yield from _about_previous(node, explained)
            case _:
                pass


def _about_names(inner: Condition) -> Iterator[str]:
    """Yield a hint if a name inside `anywhere` never has a value."""
    facts = [fact for node, _ in walk(inner) for fact in facts_of(node)]
    unknown = [fact for fact in facts if fact != "it" and not fact.startswith("$")]
    if unknown:
        yield (
            f"{quoted(unknown[0])} has no value inside `anywhere`, where only `it`, the string, and "
            "variables have one; write `it`"
        )


def _about_list(ref: language.Ref) -> str:
    """Return the hint for `x in y` if y is a relation."""
    meant: Condition = language.InRelation(ref.reference, (language.FactArg(ref.fact),))
    if ref.op == "nin":
        meant = language.Not(meant)
    return (
        f"{quoted(text_of(ref))} looks in a list that the event has under {quoted(ref.reference)}, not in "
        f"the relation of that name; to look in the relation, write {quoted(text_of(meant))}"
    )


def _about_alternatives(node: language.Any) -> str | None:
    """Return a hint about a member of an `or` that adds nothing."""
    found = idle_alternative(node)
    if found is None:
        return None
    narrow, wide = map(text_of, found)
    if narrow == wide:
        return f"{quoted(narrow)} stands twice in an `or`; leave one out"
    return f"{quoted(narrow)} adds nothing to {quoted(wide)}, which is true wherever it is; leave one out"


def _about_previous(node: Any, explained: set[int]) -> Iterator[str]:
    """Yield a hint if a comparison with the previous value is meant. Add what it covers to `explained`."""
    form, inner = FORM_OF[type(node)], node.inner
    if isinstance(inner, language.Ref) and inner.op != "eq" and _is_of_itself(inner):
        explained.add(id(inner))
        yield _compared_with_itself(node, form, inner)
    if not isinstance(node, language.Previous):
        return
    match inner:
        case language.Ref(fact, "eq" | "neq" as op, reference) if fact != reference:
            yield _compared_before(node, fact, op, reference)
        case language.Compare(Fact(fact), op, Fact(reference)) if fact != reference:
            yield _compared_before(node, fact, op, reference)
        case _:
            pass


def _compared_before(node: Condition, fact: str, op: str, other: str) -> str:
    """Return the hint for `previous x == y`, where the previous value of x is probably meant."""
    one = quoted(text_of(language.Compare(Prev(fact), op, Fact(other))))
    both = quoted(text_of(language.Compare(Prev(fact), op, Prev(other))))
    return (
        f"{quoted(text_of(node))} compares two values of the event before; that the value before and the one "
        f"now compare so is written {one}; if both are of the event before, write {both}"
    )


def _about_wildcards(leaf: Condition, fact: str, pattern: str) -> Iterator[str]:
    """Yield a hint about `x like "%a%"`, in which `%` is not a wildcard."""
    word, text = sugar_of(pattern) or ("", "")
    if word in SUGAR and SUGAR[word].has_wildcards and (text.startswith("%") or text.endswith("%")):
        meant = language.Leaf(fact, "matches", pattern_of(word, text.replace("%", "*")))
        yield f"in {quoted(text_of(leaf))}, a `%` is no wildcard; write {quoted(text_of(meant))}"


def _is_of_itself(ref: language.Ref) -> bool:
    return ref.fact == ref.reference


def _compared_with_itself(node: Condition, form: Form, ref: language.Ref) -> str:
    """Return the hint for `earlier x == x`, where the previous value is probably meant."""
    name = quoted(ref.fact)
    verdict = "is never true"
    word = form.word
    counting: Any = first_form(Shape.CALL_OF_FACT, Content.COUNT).make
    two = quoted(text_of(counting(ref.fact, None, 3_600.0, "gte", 2)))
    changed = quoted(text_of(language.Compare(Fact(ref.fact), "neq", Prev(ref.fact))))
    return (
        f"{quoted(text_of(node))} {verdict}: `{word}` takes a whole condition, and this one compares "
        f"{name} with itself. That the value differs from the one before is written {changed}; that there "
        f"were several values, as in {two}"
    )


def _kept_for_ever(inner: Condition, key: str, key_bytes: KeyBytes | None) -> Iterator[str]:
    """Yield a hint if each key is kept for ever although a window would bound that."""
    for node, _ in walk(inner):
        windowed = _windowed(node)
        if windowed:
            cost = "" if key_bytes is None else f", which takes up to {_bytes_text(key_bytes(node))} each"
            yield (
                f"{quoted(text_of(node))} has no window, so {quoted('per ' + key)} remembers each value of "
                f"{quoted(key)} for ever{cost}; past `--max-keys` and `--max-state-bytes` the longest unseen "
                f"are forgotten. A window bounds that, as in `{windowed}`"
            )
            return


def _bytes_text(bytes_: int) -> str:
    """Return a number of bytes in a readable form."""
    return f"{bytes_} bytes" if bytes_ < _KB else f"{bytes_ / _KB:.0f} KB"


def _windowed(node: Any) -> str:
    """Return how to write a condition without a window with one; empty for any other condition."""
    form = FORM_OF[type(node)]
    if isinstance(node, language.Compare):
        return windowed_term(node)
    if form.shape in CALLS:
        is_bounded = getattr(node, "window_secs", None) is not None
        return "" if is_bounded else f"{form.word}(…) within 30d"
    if form.shape not in _WITHOUT_WINDOW:
        return ""
    shapes = {other.shape for other in FORMS.values() if other.word == form.word}
    return next((text.format(form.word) for shape, text in _WITH_WINDOW.items() if shape in shapes), "")


def _about_function(name: str, args: Sequence[FactArg | Scalar]) -> Iterator[str]:
    """Yield what to write instead if a relation has the name of a function, or nearly."""
    fact = next((arg.fact for arg in args if isinstance(arg, FactArg)), "x")
    text = next((arg for arg in args if isinstance(arg, str)), "…")
    instead = instead_of(name, fact, text)
    if instead is None and len(name) >= _NEAR_CHARS_MIN:
        calls = (word for word in words_of(CALLS) if len(word) >= _NEAR_CHARS_MIN)
        near = nearest(name.lower(), (*calls, *_FUNCTIONS))
        instead = None if near is None or name.lower() == f"{near}s" else instead_of(near, fact, text)
    if instead is not None:
        yield f"{quoted(name)} is no function here: what looks like one looks in a relation; {instead}"
