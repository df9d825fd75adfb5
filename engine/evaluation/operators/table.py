"""All operators, by the type of their nodes."""

from typing import Any, Final

from engine.evaluation.operators.counting.count import CountOperator
from engine.evaluation.operators.counting.distinct import DistinctOperator
from engine.evaluation.operators.counting.sums import AvgOperator, SumOperator
from engine.evaluation.operators.interface import Operator
from engine.evaluation.operators.temporal.earlier import EarlierOperator
from engine.evaluation.operators.temporal.historically import (
    HistoricallyForStrongOperator,
    HistoricallyOperator,
)
from engine.evaluation.operators.temporal.once import OnceOperator
from engine.evaluation.operators.temporal.previous import PreviousOperator
from engine.evaluation.operators.temporal.since import SinceOperator
from engine.language import condition as language
from engine.language.condition import Condition

_BY_TYPE: Final[dict[type, Operator[Any]]] = {
    language.Once: OnceOperator(),
    language.OnceWithin: OnceOperator(),
    language.Earlier: EarlierOperator(),
    language.EarlierWithin: EarlierOperator(),
    language.Historically: HistoricallyOperator(),
    language.HistoricallyFor: HistoricallyOperator(),
    language.Since: SinceOperator(),
    language.SinceWithin: SinceOperator(),
    language.Previous: PreviousOperator(),
    language.Count: CountOperator(),
    language.Distinct: DistinctOperator(),
    language.Sum: SumOperator(),
    language.Avg: AvgOperator(),
}
_STRONG: Final = HistoricallyForStrongOperator()


def operator_of(node: Condition) -> Operator[Any] | None:
    """Return the operator of a node, or None if it does not look back."""
    if isinstance(node, language.HistoricallyFor) and node.boundary == "strong":
        return _STRONG
    return _BY_TYPE.get(type(node))
