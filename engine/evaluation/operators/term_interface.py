"""What the file of a term says: the code of its value, what it remembers, and how time alone changes it.

The code of a number gives one that is not finite where the number is missing: then nothing that is computed
from it is finite, either, and no comparison with it is true. Other code gives None where a value is missing.
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
    """What the code of a term gives."""

    DOUBLE = "a double"
    COMPUTED = "a double, of which infinities count as missing, too"
    NUMBER = "a double, or an integer that is exact"
    TEXT = "a text, or None"
    BOOLEAN = "a boolean"
    SCALAR = "a value of any type, of which None, arrays and objects count as missing"


class Motion(Enum):
    """How a value changes while no event comes, between the times at which it steps."""

    STILL = 0
    STRAIGHT = 1
    """It grows or falls in proportion to time. At most, it bends where something crosses 0."""
    ONE_WAY = 2
    """It only grows or only falls, until something crosses 0."""
    BENT = 3
    """In some other way."""


def together(motions: Sequence[Motion]) -> Motion:
    """Return how a sum or difference changes whose parts change so."""
    moving = [motion for motion in motions if motion is not Motion.STILL]
    if all(motion is Motion.STRAIGHT for motion in moving):
        return Motion.STRAIGHT if moving else Motion.STILL
    return moving[0] if len(moving) == 1 else Motion.BENT


TermT = TypeVar("TermT", bound=TermNode)


class TermOperator(ABC, Generic[TermT]):
    """A kind of term."""

    cost_ns: ClassVar[int] = 20
    """About how long the code of a value takes, without that of its operands."""

    calls: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """What its code calls by its name."""

    gives: ClassVar[Kind] = Kind.DOUBLE
    """What the code of its terms gives, of all alike."""

    def kind(self, term: TermT) -> Kind:  # noqa: ARG002 -- overridden
        """Return what the code of a term gives."""
        return self.gives

    def operands(self, term: TermT) -> tuple[Term, ...]:  # noqa: ARG002 -- overridden
        """Return the terms that a term computes with, as doubles."""
        return ()

    @abstractmethod
    def value(self, term: TermT, read: Reading, operands: Sequence[str]) -> str:
        """Return the expression for the value at an event, by those of its operands.

        Of what `read` gives, only a term that looks back has an entry, an outcome and a birth.
        """

    def present_at(self, term: TermT, triggers: Triggers, path: Path) -> Found:  # noqa: ARG002 -- overridden
        """Return triggers for the events at which a term has a value; its operands are asked, too."""
        return None

    # -- explanations ---------------------------------------------------------------------------------------

    def motion(self, term: TermT, operands: Sequence[Motion]) -> Motion:  # noqa: ARG002 -- overridden
        """Return how time changes a value, by how it changes those of its operands."""
        return Motion.STILL

    def steps_us(self, term: TermT, now_us: int, compared: Term | None) -> Iterator[int]:  # noqa: ARG002
        """Yield the times from one on just after which a value may step, because of the time of day alone.

        If it is `compared` with another term, steps between which that cannot differ may be left out.
        """
        yield from ()


class PastTerm(TermOperator[TermT], LookingBack[TermT]):
    """A kind of term that looks back."""

    cost_ns: ClassVar[int] = 60


def observed(node: ConditionNode) -> Condition:
    """Return a condition that a term observes."""
    return cast("Condition", node)


def observed_if(where: ConditionNode | None) -> Condition | None:
    """Return the `where` of a term, if it has one."""
    return None if where is None else observed(where)
