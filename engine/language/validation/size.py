"""Limits on the size of a condition, checked on its text and its document before anything else."""

from collections.abc import Iterator, Mapping
from typing import Final

from engine.language.diagnostics import TOO_LARGE, ConditionError, Entry
from engine.language.forms.table import FORMS
from engine.language.forms.terms import TERM_FORMS
from engine.language.limits import Limits
from engine.language.operators import OPERANDS_MAX

LEVELS_PER_CONDITION = 2
"""The maximum number of JSON containers from a condition or a term to its child: `{"all": [`, `{"since":
{`."""

LEVELS_OF_A_LEAF = 4
"""The maximum nesting of JSON in a condition without children: `{"in_relation": {"args": [{`."""

_TAKING: Final = frozenset({"add", "mul"})
"""The terms with any number of operands, up to a limit."""


def check_text_size(text: str, limits: Limits) -> None:
    """Refuse a text that is too long, in bytes of UTF-8."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > limits.text_bytes_max:
        raise _too_large(
            f"the text of the condition has {size} bytes; at most {limits.text_bytes_max} are allowed"
        )


def check_size(document: object, limits: Limits, levels_above: int = 0) -> None:
    """Refuse a document with too many conditions or too deep nesting, whatever else is wrong with it.

    Every value in the place of a condition or a term counts. The check is iterative, and stops at the first
    excess. `levels_above` is the number of conditions around the document.
    """
    nodes = deepest = operands = 0
    pending = [(document, levels_above + 1)]
    while pending:
        value, depth = pending.pop()
        nodes += 1
        deepest = max(deepest, depth)
        if nodes > limits.nodes_max or deepest > limits.depth_max or operands > OPERANDS_MAX:
            break
        before = len(pending)
        pending.extend((child, depth + 1) for child in child_documents(value))
        if (
            len(pending) - before > OPERANDS_MAX
            and isinstance(value, Mapping)
            and not _TAKING.isdisjoint(value)
        ):
            operands = len(pending) - before
    if deepest > limits.depth_max:
        raise too_deep(limits)
    if nodes > limits.nodes_max:
        raise _too_large(
            f"the condition has more than {limits.nodes_max} conditions and terms in it, itself included"
        )
    if operands > OPERANDS_MAX:
        raise _too_large(f"a term has {operands} operands; at most {OPERANDS_MAX} are allowed")


def too_deep(limits: Limits) -> ConditionError:
    """Return the error for a condition that is nested too deeply."""
    return _too_large(f"the condition is nested more than {limits.depth_max} levels deep")


def _too_large(sentence: str) -> ConditionError:
    return ConditionError(Entry(TOO_LARGE, sentence))


def json_levels_max(limits: Limits) -> int:
    """Return the maximum nesting of JSON in a condition within the limits."""
    return (limits.depth_max - 1) * LEVELS_PER_CONDITION + LEVELS_OF_A_LEAF


def child_documents(document: object) -> Iterator[object]:
    """Yield the values in the document of a condition or a term where conditions or terms are expected."""
    if not isinstance(document, Mapping):
        return
    for name, value in document.items():
        # A member and a term with the same name, such as `count`, have conditions in the same fields.
        form = FORMS.get(name) or TERM_FORMS.get(name)
        if form is None:
            continue
        for field, is_array in form.nested:
            if is_array:
                yield from value if isinstance(value, list | tuple) else ()
            elif form.is_bare:
                yield value
            elif isinstance(value, Mapping) and field in value:
                yield value[field]
