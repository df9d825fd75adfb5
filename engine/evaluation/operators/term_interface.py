"""The interface of terms: the code of their values, their memories, and how time alone changes them.

The code of a missing number returns a non-finite number: everything computed from it is non-finite, too, and
no comparison with it is true. Other code returns None for a missing value.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar, cast

from engine.evaluation.operators.interface import Found, LookingBack, Reading, Triggers
from engine.evaluation.paths import Path
from engine.language.condition import Condition
from engine.language.nodes import ConditionNode, TermNode
from engine.language.terms import Term


class Kind(Enum):
    """The kind of value that the code of a term returns."""

    DOUBLE = "a double"
    COMPUTED = "a double, of which infinities count as missing, too"
    NUMBER = "a double, or an integer that is exact"
    TEXT = "a text, or None"
    BOOLEAN = "a boolean"
    SCALAR = "a value of any type, of which None, arrays and objects count as missing"


class Motion(Enum):
    """How a value changes between its steps, while no event comes."""

    STILL = 0
    STRAIGHT = 1
    """It changes in proportion to time, perhaps with a bend when something crosses 0."""
    ONE_WAY = 2
    """It only grows, or only falls, until something crosses 0."""
    BENT = 3
    """In some other way."""


def together(motions: Sequence[Motion]) -> Motion:
    """Return how a sum or difference changes, given the motions of its parts."""
    moving = [motion for motion in motions if motion is not Motion.STILL]
    if all(motion is Motion.STRAIGHT for motion in moving):
        return Motion.STRAIGHT if moving else Motion.STILL
    return moving[0] if len(moving) == 1 else Motion.BENT


TermT = TypeVar("TermT", bound=TermNode)


class TermOperator(ABC, Generic[TermT]):
    """A kind of term."""

    cost_ns: ClassVar[int] = 20
    """The approximate time that the code of a value takes, without its operands."""

    calls: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """The functions that its code calls, by name."""

    gives: ClassVar[Kind] = Kind.DOUBLE
    """The kind of value of all its terms."""

    def kind(self, term: TermT) -> Kind:  # noqa: ARG002 -- overridden
        """Return the kind of value of a term."""
        return self.gives

    def operands(self, term: TermT) -> tuple[Term, ...]:  # noqa: ARG002 -- overridden
        """Return the terms that a term computes with, as doubles."""
        return ()

    @abstractmethod
    def value(self, term: TermT, read: Reading, operands: Sequence[str]) -> str:
        """Return the expression for the value at an event, given those of its operands.

        Only a term that looks back may use the entry, the outcome and the birth of `read`.
        """

    def present_at(self, term: TermT, triggers: Triggers, path: Path) -> Found:  # noqa: ARG002 -- overridden
        """Return triggers for the events at which a term has a value, disregarding its operands."""
        return None

    # -- explanations ---------------------------------------------------------------------------------------

    def motion(self, term: TermT, operands: Sequence[Motion]) -> Motion:  # noqa: ARG002 -- overridden
        """Return how time changes a value, given the motions of its operands."""
        return Motion.STILL

    def steps_us(self, term: TermT, now_us: int, compared: Term | None) -> Iterator[int]:  # noqa: ARG002
        """Yield the times from `now_us` on just after which the time of day may step a value.

        If it is `compared` with another term, steps that cannot change the comparison may be left out.
        """
        yield from ()


class PastTerm(TermOperator[TermT], LookingBack[TermT]):
    """A kind of term that looks back."""

    cost_ns: ClassVar[int] = 60


def observed(node: ConditionNode) -> Condition:
    """Return the condition that a term observes."""
    return cast("Condition", node)


def observed_if(where: ConditionNode | None) -> Condition | None:
    """Return the `where` of a term, if it has one."""
    return None if where is None else observed(where)
