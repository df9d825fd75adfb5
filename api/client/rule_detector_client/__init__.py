"""A client of the service, for Python programs.

from rule_detector_client import Client, calls

with Client("http://127.0.0.1:8080", token) as client:
    detector = client.send(calls.create_detector("shop"))
    client.send(calls.add_rule(detector.id, "large", "amount > 1000"))
    for result in client.evaluate_many(detector.id, events):
        ...

`AsyncClient` has the same methods, to be awaited.
"""

from . import calls
from .calls import TokenBounds
from .clients import AsyncClient, Client
from .feed import Firing, Gap
from .results import (
    Action,
    Changes,
    Comparison,
    Detector,
    Difference,
    Entry,
    EventResult,
    Example,
    ExplainedNode,
    ExplainedRule,
    Identified,
    Ingested,
    ListedToken,
    LoggedChange,
    OwnToken,
    ParsedCondition,
    RefusedRecord,
    Relation,
    Rule,
    RuleDifference,
    ServiceError,
    ShownRule,
    Token,
)
from .sending import Event

__all__ = [
    "Action",
    "AsyncClient",
    "Changes",
    "Client",
    "Comparison",
    "Detector",
    "Difference",
    "Entry",
    "Event",
    "EventResult",
    "Example",
    "ExplainedNode",
    "ExplainedRule",
    "Firing",
    "Gap",
    "Identified",
    "Ingested",
    "ListedToken",
    "LoggedChange",
    "OwnToken",
    "ParsedCondition",
    "RefusedRecord",
    "Relation",
    "Rule",
    "RuleDifference",
    "ServiceError",
    "ShownRule",
    "Token",
    "TokenBounds",
    "calls",
]
