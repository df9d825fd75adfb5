"""The engine of the Rule Detector Service. Programs that use it as a library import `rule_detector`."""

from engine.evaluation.detector import Detector
from engine.evaluation.events.outcomes import BatchRefused, Outcome
from engine.evaluation.explanation.explaining import explain, explain_row
from engine.evaluation.explanation.firings import explain_feeds
from engine.evaluation.explanation.nodes import ExplainedRule, Explanation, Node
from engine.evaluation.relations.builder import RelationBuilder
from engine.evaluation.relations.stored import TupleRefused
from engine.evaluation.rules import Rule
from engine.language.condition import Condition
from engine.language.diagnostics import ConditionError, Entry, Refusal
from engine.language.limits import Limits
from engine.language.text.parser import parse
from engine.language.text.printer import format  # noqa: A004 -- the inverse of parse is called format
from engine.notebook import show_in_notebooks

show_in_notebooks()
explain_feeds()

__all__ = [
    "BatchRefused",
    "Condition",
    "ConditionError",
    "Detector",
    "Entry",
    "ExplainedRule",
    "Explanation",
    "Limits",
    "Node",
    "Outcome",
    "Refusal",
    "RelationBuilder",
    "Rule",
    "TupleRefused",
    "explain",
    "explain_row",
    "format",
    "parse",
]
