"""Warnings about an event: missing relations, and texts that are too long for some patterns."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from engine.evaluation.facts.look_up import fact_shown
from engine.evaluation.facts.values import Event
from engine.evaluation.kernel.needs import NAME_CHARS_SHOWN, RELATIONS_NAMED_MAX
from engine.evaluation.kernel.rule_set import RuleSet
from engine.language.diagnostics import Entry
from engine.language.limits import Limits

_NOTHING: Final[Mapping[str, Any]] = {}


def warnings_on(
    fields: Mapping[str, Any], sent: Mapping[str, Any], rule_set: RuleSet, limits: Limits
) -> Iterator[Entry]:
    """Yield the messages 2003 and 2004 about an event."""
    if rule_set.unstored:
        yield from _missing_relations(sent, rule_set)
    texts, arrays = rule_set.texts, rule_set.arrays
    if texts and (rule_set.patterns.bounded or not texts.are_small(fields, sent)):
        yield from _long_texts(fields, sent, rule_set, limits)
    if arrays and not arrays.are_small(fields, sent):
        yield from _long_arrays(fields, sent, rule_set)


def warnings_on_many(
    events: Sequence[Event], rule_set: RuleSet, limits: Limits
) -> Iterator[tuple[int, list[Entry]]]:
    """Yield the messages about each of some events that has any, with its index.

    They were evaluated just before.
    """
    texts, arrays, unstored = rule_set.texts, rule_set.arrays, rule_set.unstored
    reached = rule_set.patterns.reached()
    missing: list[Entry] = []
    read: Mapping[str, Any] | None = None
    for place, (fields, _, sent) in enumerate(events):
        context = sent or _NOTHING
        if unstored and context is not read:
            # The events of a batch have one context.
            missing, read = [*_missing_relations(context, rule_set)], context
        entries = missing
        if texts and (reached or not texts.are_small(fields, context)):
            entries = [*missing, *_long_texts(fields, context, rule_set, limits)]
        if arrays and not arrays.are_small(fields, context):
            entries = [*entries, *_long_arrays(fields, context, rule_set)]
        if entries:
            yield place, entries


def _long_texts(
    fields: Mapping[str, Any], sent: Mapping[str, Any], rule_set: RuleSet, limits: Limits
) -> Iterator[Entry]:
    chars_max = limits.pattern_text_chars_max
    cut = rule_set.patterns.begin(fields, sent)
    for said, bytes_max, text in rule_set.texts.largest_in(fields, sent):
        if len(text) > chars_max:
            tried = f"patterns are tried on at most {chars_max}"
        elif 4 * len(text) > bytes_max < len(text.encode("utf-8", "surrogatepass")):
            # Up to four bytes a character: most texts need not be encoded to know that they are short.
            tried = f"the largest of its patterns is tried on at most {bytes_max} bytes"
        elif rule_set.patterns.is_untried(said):
            tried = "its patterns are not tried: together they would take too long"
        elif said in cut:
            tried = "the slow ones among its patterns are not tried: together they would take too long"
        else:
            continue
        yield Entry(2004, f"`{_shown(said)}` has {len(text)} characters; {tried}")


def _long_arrays(fields: Mapping[str, Any], sent: Mapping[str, Any], rule_set: RuleSet) -> Iterator[Entry]:
    for fact, most, array in rule_set.arrays.largest_in(fields, sent):
        if len(array) > most:
            at_most = f"`some` is false of more than {most}"
            yield Entry(2004, f"`{_shown(fact)}` has {len(array)} elements; {at_most}")


def _missing_relations(sent: Mapping[str, Any], rule_set: RuleSet) -> Iterator[Entry]:
    unstored = rule_set.unstored
    missing = len(unstored) - sum(name in rule_set.relations and name not in rule_set.stored for name in sent)
    named = islice((name for name in unstored if name not in sent), RELATIONS_NAMED_MAX)
    for name in named:
        yield Entry(2003, f"the relation `{_shown(name)}` is neither stored nor sent, and holds nothing")
    if missing > RELATIONS_NAMED_MAX:
        more = missing - RELATIONS_NAMED_MAX
        yield Entry(2003, f"{more} more relations are neither stored nor sent, and hold nothing")


def _shown(name: str) -> str:
    said = fact_shown(name)
    return said if len(said) <= NAME_CHARS_SHOWN else said[:NAME_CHARS_SHOWN] + "…"
