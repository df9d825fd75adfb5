"""JSON documents to conditions, with every defect and its place; and conditions back to documents."""

from collections.abc import Callable, Mapping
from typing import Any as Anything
from typing import NamedTuple, assert_never

from engine.language.condition import (
    All,
    Any,
    Condition,
    FactArg,
    Historically,
    HistoricallyFor,
    InRelation,
    Keyed,
    Leaf,
    LeafValue,
    Not,
    Once,
    OnceWithin,
    Ref,
    Scalar,
    Since,
    SinceWithin,
)
