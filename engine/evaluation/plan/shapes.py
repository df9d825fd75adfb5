"""Shapes: conditions without their names and values.

They are the intermediate representation between conditions and generated code.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, assert_never

from engine.evaluation.memory import Regime


class Predicate(NamedTuple):
    """A predicate: a Python expression with placeholders.

    `{f0}` … stand for facts, `{x0}` … for the same if they are numbers, otherwise NaN, `{q0}` … if they are
    numbers up to LARGEST, `{l0}` … for look-ups of facts, `{c0}` … for constants. Of the places of one fact,
    the first in the text is evaluated first.
    """

    expression: str
    facts: tuple[int, ...]
    constants: tuple[int, ...]


class Junction(NamedTuple):
    """`all` or `any`; `word` is `and` or `or`."""

    word: str
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
    viewed: bool = False
    """Whether the memory is read through a view."""


class Tally(NamedTuple):
    """A comparison with what the records of a temporal node hold.

    `add` adds the event to the record, if `added` is true. `truth` is the verdict after that. Both are Python
    expressions with placeholders:

        {store}          the records
        {at}             what a record is found by: the key, the slot, the time and number of the event
        {slot}           the slot
        {since}, {edge}  the time up to which a rule ignores the records, the oldest time inside the window
        {f0} … {c0} …    facts and constants, as in a Predicate; the first constants are those of a Memory
    """

    path: int
    far: bool
    windowed: bool
    facts: tuple[int, ...]
    constants: tuple[int, ...]
    truth: str
    add: str
    added: "Shape | None"
    """None if the records are only read, after their update for the event."""
    viewed: bool = False


Shape = Predicate | Junction | Negation | Slice | Memory | Tally

TRUE: Final = Predicate("True", (), ())
FALSE: Final = Predicate("False", (), ())


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
        case Tally(added=added):
            return () if added is None else (added,)
        case Memory(operands=operands):
            return [operand for _, operand in operands]
        case _:
            assert_never(shape)


def updates(shape: Shape) -> bool:
    """Return whether a shape updates a memory."""
    return any(
        (isinstance(part, Memory) and part.operands) or (isinstance(part, Tally) and part.added is not None)
        for part in walk(shape)
    )
