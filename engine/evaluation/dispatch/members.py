"""The members of the index: the rules to evaluate and the memories to update."""

from typing import NamedTuple

from engine.evaluation.dispatch.weighing import Weight
from engine.evaluation.plan.triggers import Triggers
from engine.evaluation.rules import Rule
from engine.evaluation.state.node_names import NodeName


class EnabledRule(NamedTuple):
    """An enabled rule with what its evaluation needs."""

    rule: Rule
    birth: int
    memories: tuple[NodeName, ...]
    """The memories of its temporal nodes, in the order of `requirements_of`."""
    triggers: Triggers | None
    """None if every event is evaluated for the rule, and while rules are not indexed."""
    weight: Weight | None = None
    """None until it is asked for."""


class Updater(NamedTuple):
    """The update of one memory, for all rules that read it."""

    number: int
    """Below 0, which distinguishes it from the priority of a rule."""
    name: NodeName
    stage: int
    """See `update_stage`."""
    triggers: Triggers | None
