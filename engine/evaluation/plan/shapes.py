"""Shapes: conditions without their names and values.

They are the intermediate representation between conditions and generated code. They say what is tested and
remembered, and nothing about the language of the code.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias, assert_never

from engine.evaluation.memory import Regime

Test: TypeAlias = Literal[
    "true",
    "present",
    "boolean",
    "zero or one",
    "scalar",
    "array",
    "among texts",
    "among numbers",
    "among many numbers",
    "among none",
    "contains text",
    "contains value",
    "matches",
    "texts between",
    "between",
    "at least",
    "at most",
    "above",
    "below",
    "same",
    "among fact",
    "related",
    "related by many",
]
"""What a predicate tests:

    true                             nothing
    present                          whether there is a fact
    boolean, zero or one, array      whether a fact equals a constant of this kind
    scalar                           whether a fact equals a text or any other number
    among texts, numbers, none       whether a fact is in a set
    contains text, contains value    whether a text or array contains a text, an array another value
    matches                          whether a text passes the test of a pattern
    texts between, between           whether a fact is in a range of texts, or of numbers
    at least, at most, above, below  whether a fact is a number in a range with one end
    same                             whether a fact equals another one
    among fact                       whether a fact is in the array that another one is
    related                          whether a relation, the first constant, has a tuple
    related by many                  the same; the second constant is a function that gives the tuple
"""

NUMERIC: Final[frozenset[Test]] = frozenset({"between", "at least", "at most", "above", "below"})
"""The tests that take their facts as numbers."""

LOOKED_UP: Final[frozenset[Test]] = frozenset({"contains text", "contains value", "same", "among fact"})
"""The tests that may walk through the values of facts. Look-ups bound that work."""


class Predicate(NamedTuple):
    """A predicate: a test of facts and constants, by their numbers."""

    test: Test
    facts: tuple[int, ...]
    constants: tuple[int, ...]
    negated: bool = False
    """Whether the facts must be ones that the test applies to, and the test must be false."""
    arguments: tuple[bool, ...] = ()
    """Which members of a relation's tuple are facts; the others are constants."""


class Junction(NamedTuple):
    """`all` or `any`."""

    word: Literal["and", "or"]
    members: "tuple[Shape, ...]"


class Negation(NamedTuple):
    """`not`."""

    inner: "Shape"


class Slice(NamedTuple):
    """`keyed`: inner, evaluated on the event's slice of a path."""

    path: int
    inner: "Shape"
    where: "Shape | None" = None
    """What tells whether the event belongs to a slice, unless the key of the path does."""


class Memory(NamedTuple):
    """A temporal node.

    `constants` are the numbers of its memory and, if it has one, of its window. `path` is -1 without keys.
    """

    operator: str
    regime: Regime
    far: bool
    """Whether the edge of the window may be before NEVER."""
    path: int
    constants: tuple[int, ...]
    operands: "tuple[tuple[str, Shape], ...]"
    """The operands that update the memory; none if it is only read, after its update for the event."""
    viewed: bool
    """Whether the memory is read through a view."""


class Aggregate(NamedTuple):
    """A comparison with what the records of a temporal node hold.

    An event is added to the record if `added` is true; the first fact, if any, is the value that is added.
    What is compared is the record after that. `constants` are those of a Memory.
    """

    measure: Literal["number", "sum", "mean"]
    """What is compared: how many times or values there are, or the sum or the mean of what was added."""
    op: str
    """One of COMPARISONS; if a number is compared, only `gte`, `lt`, `eq` or `neq`."""
    path: int
    far: bool
    constants: tuple[int, ...]
    facts: tuple[int, ...]
    """A second fact is what a sum or mean is compared with, times the limit."""
    limits: tuple[int, ...]
    """The constants to compare with: one; for `eq` and `neq` of a number, that number and the next one.

    A number is never less than 0, so 0 is no limit.
    """
    added: "Shape | None"
    """None if the records are only read, after their update for the event."""
    viewed: bool


Shape = Predicate | Junction | Negation | Slice | Memory | Aggregate

TRUE: Final = Predicate("true", (), ())
FALSE: Final = Predicate("true", (), (), negated=True)


def walk(shape: Shape) -> Iterator[Shape]:
    """Yield a shape and all shapes in it."""
    yield shape
    for part in _parts(shape):
        yield from walk(part)


def _parts(shape: Shape) -> Iterable[Shape]:
    match shape:
        case Predicate():
            return ()
        case Junction(_, members):
            return members
        case Negation(inner):
            return (inner,)
        case Slice(_, inner, where):
            return (inner,) if where is None else (where, inner)
        case Aggregate(added=added):
            return () if added is None else (added,)
        case Memory(operands=operands):
            return [operand for _, operand in operands]
        case _:
            assert_never(shape)


def updates(shape: Shape) -> bool:
    """Return whether a shape updates a memory."""
    return any(
        (isinstance(part, Memory) and part.operands)
        or (isinstance(part, Aggregate) and part.added is not None)
        for part in walk(shape)
    )
