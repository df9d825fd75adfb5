"""Bounds on the size of a condition, checked on its text and its document before anything else."""

from collections.abc import Iterator, Mapping

from engine.language.diagnostics import TOO_LARGE, ConditionError, Entry
from engine.language.forms.form import Content
from engine.language.forms.table import FORMS
from engine.language.limits import Limits

LEVELS_PER_CONDITION = 2
"""The most JSON containers between a condition and its child: `{"all": [` or `{"since": {`."""

LEVELS_OF_A_LEAF = 4
"""The most nested JSON containers of a condition without children: `{"in_relation": {"args": [{`."""


def check_text_size(text: str, limits: Limits) -> None:
    """Refuse a text that is too long, in bytes of UTF-8."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > limits.text_bytes_max:
        raise _too_large(
            f"the text of the condition has {size} bytes; at most {limits.text_bytes_max} are allowed"
        )


def check_size(document: object, limits: Limits, levels_above: int = 0) -> None:
    """Refuse a document with too many conditions or too deep a nesting, whatever else is wrong with it.

    Every value in the place of a condition counts. The check is iterative and stops at the first excess.
    `levels_above` is the number of conditions around the document.
    """
    nodes = deepest = 0
    pending = [(document, levels_above + 1)]
    while pending:
        value, depth = pending.pop()
        nodes += 1
        deepest = max(deepest, depth)
        if nodes > limits.nodes_max or deepest > limits.depth_max:
            break
        pending.extend((child, depth + 1) for child in child_documents(value))
    if deepest > limits.depth_max:
        raise too_deep(limits)
    if nodes > limits.nodes_max:
        raise _too_large(f"the condition has more than {limits.nodes_max} conditions in it, itself included")


def too_deep(limits: Limits) -> ConditionError:
    """Return the error for a condition that is nested too deep."""
    return _too_large(f"the condition is nested more than {limits.depth_max} levels deep")


def _too_large(sentence: str) -> ConditionError:
    return ConditionError(Entry(TOO_LARGE, sentence))


def json_levels_max(limits: Limits) -> int:
    """Return the deepest nesting of JSON in a condition within the limits."""
    return (limits.depth_max - 1) * LEVELS_PER_CONDITION + LEVELS_OF_A_LEAF


def child_documents(document: object) -> Iterator[object]:
    """Yield the values directly inside a condition's document that should be conditions."""
    if not isinstance(document, Mapping):
        return
    for name, value in document.items():
        form = FORMS.get(name)
        if form is None:
            continue
        members = value if isinstance(value, Mapping) else {}
        for field, content in form.fields.items():
            if content is Content.CONDITIONS and isinstance(value, list | tuple):
                yield from value
            elif content is Content.CONDITION and form.is_bare:
                yield value
            elif content is Content.CONDITION and field in members:
                yield members[field]
