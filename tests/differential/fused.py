"""How many rules are evaluated by one function before they are indexed."""

from collections.abc import Callable, Collection


def up_to(rules: int) -> Callable[..., bool]:
    """Give what to put in place of `rule_set.index_pays`: more rules than these are indexed."""

    def index_pays(weights: Collection[object], *, indexed: bool) -> bool:
        return len(weights) > rules

    return index_pays


def in_turns(weights: Collection[object], *, indexed: bool) -> bool:
    """Stand in for `rule_set.index_pays`: each change of a rule changes how rules are evaluated."""
    return not indexed
