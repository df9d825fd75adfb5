"""How large a condition is: nodes and depth, told from the document before anything else is judged."""

from collections.abc import Iterator, Mapping

from engine.language.diagnostics import TOO_LARGE, ConditionError, Entry
from engine.language.limits import Limits

LEVELS_PER_CONDITION = 2
"""JSON containers that one condition puts around another, at most: `{"all": [` or `{"since": {`."""

LEVELS_OF_A_LEAF = 4
"""JSON containers of a condition that holds no other, at most: `{"in_relation": {"args": [{`."""


def check_text_size(text: str, limits: Limits) -> None:
    """Refuse a text that is too long, in bytes of UTF-8, before it is read at all."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > limits.text_bytes_max:
        raise ConditionError(
            Entry(
                TOO_LARGE,
                f"the text of the condition has {size} bytes; at most {limits.text_bytes_max} are allowed",
            )
        )


def check_size(document: object, limits: Limits, levels_above: int = 0) -> None:
    """Refuse a document that is nested too deep or has too many nodes, whatever else is wrong with it.

    Counts the values that stand where a condition is expected. Iterative, and done when a bound is passed.
    `levels_above` is how many conditions are already open around the document.
    """
    nodes = depth_seen = 0
    waiting = [(document, levels_above + 1)]
    while waiting:
        value, depth = waiting.pop()
        nodes += 1
        depth_seen = max(depth_seen, depth)
        if nodes > limits.nodes_max or depth_seen > limits.depth_max:
            break
        waiting.extend((child, depth + 1) for child in children(value))
    if depth_seen > limits.depth_max:
        raise too_deep(limits)
    if nodes > limits.nodes_max:
        raise ConditionError(
            Entry(
                TOO_LARGE, f"the condition has more than {limits.nodes_max} conditions in it, itself included"
            )
        )


def too_deep(limits: Limits) -> ConditionError:
    """Give the error of a condition that is nested too deep."""
    return ConditionError(
        Entry(TOO_LARGE, f"the condition is nested more than {limits.depth_max} levels deep")
    )


def json_levels_max(limits: Limits) -> int:
    """Give the deepest nesting of JSON that a condition within the limits can have."""
    return (limits.depth_max - 1) * LEVELS_PER_CONDITION + LEVELS_OF_A_LEAF


def children(document: object) -> Iterator[object]:
    """Give what stands where a condition is expected, directly within a condition's document."""
    if not isinstance(document, Mapping):
        return
    for member, content in document.items():
        match member:
            case "not" | "once" | "historically":
                yield content
            case "all" | "any" if isinstance(content, list | tuple):
                yield from content
            case "since" | "since_within" | "once_within" | "historically_for" | "keyed":
                if isinstance(content, Mapping):
                    yield from (content[name] for name in ("left", "right", "inner") if name in content)
