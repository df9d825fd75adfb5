"""What an expression can cost, told from its tree alone: the same on every machine and at every time.

RE2 searches with an automaton whose states it builds as a text demands them. Where few states exist, each is
built once and a byte of text costs a nanosecond or two. Expressions such as `[ab].{30}c` have billions: there
every byte of a text made for it demands another one, and costs some 10 ns for each place of the expression.
"""

from typing import Final, NamedTuple, assert_never

from engine.patterns.states import STATES_MAX, states, states_backwards
from engine.patterns.syntax import (
    POINT_MAX,
    Assertion,
    Char,
    Choice,
    Class,
    Opaque,
    Ranges,
    Repeat,
    Sequence,
    Tree,
    folded,
    merged,
)

CHOICES_MAX: Final = 6
"""Expressions with so few ambiguous places have few states; their states need not be counted."""

PLACES_MAX: Final = 2_000
"""With more places than that, states are not counted."""

_ROW_MAX: Final = 200
"""So many places of one row may be alive at once: their states still fit into RE2's memory."""

_ROW_BACKWARDS_MAX: Final = 1_000
"""Backwards, from the end of a match, one place of a row is alive at once."""

_RANGES_SIMPLE_MAX: Final = 8
_MANY: Final = 10**6
_WORDS_CHARACTERS_MAX: Final = 5_000

_BRIEF_CLASSES_MAX: Final = 4


def is_words(tree: Tree) -> bool:
    """Tell whether the expression is nothing but a choice of some texts, perhaps anchored.

    Its automaton has at most one state for each character of them.
    """
    return _words(tree)[1] <= _WORDS_CHARACTERS_MAX


def is_brief(tree: Tree) -> bool:
    r"""Tell whether it is made of texts, of rows of what is no letter, and of few single characters.

    `host[0-9]+:443` is: whatever is under way of it ends with the next letter that is not its own. So a
    thousand of them have few states together, as long as there is a letter in each.
    """
    return _brief_classes(tree) <= _BRIEF_CLASSES_MAX


def places(tree: Tree) -> int:
    """Give how many characters the expression has once its repetitions are written out; at most a million.

    A copy that may be left out counts as one more: RE2 has to look past it.
    """
    match tree:
        case Char() | Class() | Opaque():
            return 1
        case Assertion():
            return 0
        case Sequence() | Choice():
            return min(_MANY, sum(map(places, tree.parts)))
        case Repeat():
            copies = max(1, tree.least) if tree.most is None else tree.most
            return min(_MANY, places(tree.part) * copies + copies - min(copies, tree.least))
        case _:
            assert_never(tree)


def longest(tree: Tree) -> int | None:
    """Give how many characters a match has at most; None if there is no end to them."""
    match tree:
        case Char() | Class() | Opaque():
            return 1
        case Assertion():
            return 0
        case Sequence() | Choice():
            lengths = [length for part in tree.parts if (length := longest(part)) is not None]
            if len(lengths) < len(tree.parts):
                return None
            return min(_MANY, sum(lengths) if isinstance(tree, Sequence) else max(lengths))
        case Repeat():
            length = longest(tree.part)
            return None if length is None or tree.most is None else min(_MANY, length * tree.most)
        case _:
            assert_never(tree)


def is_vague(tree: Tree) -> bool:
    r"""Tell whether the expression has parts of unknown size, such as `\pL`, or classes of many ranges.

    A place then stands for many of RE2's instructions, and is no measure of its work.
    """
    match tree:
        case Opaque():
            return True
        case Class():
            return not _is_simple(tree.ranges)
        case Sequence() | Choice():
            return any(map(is_vague, tree.parts))
        case Repeat():
            return is_vague(tree.part)
        case Char() | Assertion():
            return False
        case _:
            assert_never(tree)


class Judged(NamedTuple):
    """What is told about the states that an expression has."""

    explodes: bool
    """Whether some text can make RE2 build one for nearly each of its bytes. In doubt, it can."""
    steps: int
    """How many it took to count them."""


def is_plain(tree: Tree) -> bool:
    """Tell whether the expression is one text, perhaps anchored."""
    parts = tree.parts if isinstance(tree, Sequence) else (tree,)
    return all(isinstance(part, Char) or (isinstance(part, Assertion) and not part.word) for part in parts)


def explodes(tree: Tree) -> bool:
    """Tell whether some text can make RE2 build a state for nearly each of its bytes. In doubt, it can."""
    return judged(tree).explodes


def judged(tree: Tree) -> Judged:
    """Tell whether an expression explodes, and what it took to tell."""
    if is_plain(tree) and is_words(tree):
        return Judged(explodes=False, steps=0)
    # RE2 searches forwards for a match's end, then backwards from there for its beginning.
    choices = (
        _choices(tree, repeated=False, row_max=_ROW_MAX),
        _choices(_reversed(tree), repeated=False, row_max=_ROW_BACKWARDS_MAX),
    )
    if is_words(tree) or max(choices) <= CHOICES_MAX:
        return Judged(explodes=False, steps=0)
    if _is_beyond_counting(tree, repeated=False) or places(tree) > PLACES_MAX:
        return Judged(explodes=True, steps=0)
    found = states(tree)
    if found.states > STATES_MAX:
        return Judged(explodes=True, steps=found.steps)
    backwards = states_backwards(tree)
    return Judged(backwards.states > STATES_MAX, found.steps + backwards.steps)


def _brief_classes(tree: Tree) -> int:
    """Give how many classes stand in it; a million where it is not brief."""
    match tree:
        case Char() | Assertion():
            return 0
        case Class():
            return 1
        case Sequence() | Choice():
            return min(_MANY, sum(map(_brief_classes, tree.parts)))
        case Repeat(Char(point), _, most) if not chr(point).isalpha():
            return 0 if most is None or most <= _BRIEF_CLASSES_MAX else _MANY
        case Repeat(Class(ranges), _, most) if not _has_letters(ranges):
            return 1 if most is None or most <= _BRIEF_CLASSES_MAX else _MANY
        case Repeat(part, 0, 1):
            return _brief_classes(part)
        case Repeat() | Opaque():
            return _MANY
        case _:
            assert_never(tree)


def _has_letters(ranges: Ranges) -> bool:
    """Tell whether there is an ASCII letter among them, or anything that is not ASCII."""
    letters = ((65, 90), (97, 122), (128, POINT_MAX))
    return any(low <= end and start <= high for low, high in ranges for start, end in letters)


def _is_simple(ranges: Ranges) -> bool:
    return len(ranges) <= _RANGES_SIMPLE_MAX or len(merged(ranges)) <= _RANGES_SIMPLE_MAX


def _is_beyond_counting(tree: Tree, *, repeated: bool) -> bool:
    """Tell whether it has parts that are unknown, or that hold at some places only and are repeated."""
    match tree:
        case Opaque():
            return True
        case Assertion():
            return repeated
        case Sequence() | Choice():
            return any(_is_beyond_counting(part, repeated=repeated) for part in tree.parts)
        case Repeat():
            return _is_beyond_counting(tree.part, repeated=True)
        case Char() | Class():
            return False
        case _:
            assert_never(tree)


def _reversed(tree: Tree) -> Tree:
    match tree:
        case Sequence():
            return Sequence(tuple(_reversed(part) for part in reversed(tree.parts)))
        case Choice():
            return Choice(tuple(map(_reversed, tree.parts)))
        case Repeat():
            return Repeat(_reversed(tree.part), tree.least, tree.most, tree.lazy)
        case _:
            return tree


def _words(tree: Tree) -> tuple[int, int]:
    """Give how many texts the expression stands for and their characters together; a million for no end."""
    match tree:
        case Char():
            return 1, 1
        case Assertion():
            return (_MANY, _MANY) if tree.word else (1, 0)
        case Choice():
            each = [_words(part) for part in tree.parts]
            return min(_MANY, sum(n for n, _ in each)), min(_MANY, sum(size for _, size in each))
        case Sequence():
            count, characters = 1, 0
            for part in tree.parts:
                more, size = _words(part)
                count, characters = (
                    min(_MANY, count * more),
                    min(_MANY, characters * more + size * count),
                )
            return count, characters
        case Class() | Opaque() | Repeat():
            return _MANY, _MANY
        case _:
            assert_never(tree)


def _choices(tree: Tree, *, repeated: bool, row_max: int = 0) -> int:
    """Give how many places can be alive or not, whatever stands before them: states are about two to that.

    `row_max`: how long a row may be that stands where a match begins.
    """
    match tree:
        case Char():
            return 0
        case Assertion():
            return int(repeated)
        case Class():
            return 1
        case Opaque():
            return 2
        case Sequence():
            return _choices_of_sequence(tree, repeated=repeated, row_max=row_max)
        case Choice():
            if is_words(tree):
                return 1
            each = sum(_choices(part, repeated=repeated, row_max=row_max) for part in tree.parts)
            return min(_MANY, each + len(tree.parts))
        case Repeat():
            single = isinstance(tree.part, Char | Class | Opaque)
            copies = tree.least if tree.most is None else tree.most
            # How far a row has come that begins anywhere is told by how long it is already.
            if single and ((tree.most is None and copies <= 1) or copies <= row_max):
                return 1
            # A part that is repeated and can overlap itself has more than its own choices.
            times = max(2, copies) if tree.most is None else copies
            return min(_MANY, times * (_choices(tree.part, repeated=True) + 1))
        case _:
            assert_never(tree)


def _choices_of_sequence(tree: Sequence, *, repeated: bool, row_max: int) -> int:
    total = 0
    before: Ranges | None = None
    for part in tree.parts:
        if isinstance(part, Repeat) and isinstance(part.part, Char | Class) and _is_apart(part, before):
            # What must come before a row cannot be in it, so that one row at most is under way.
            total += 1
        else:
            total += _choices(part, repeated=repeated, row_max=row_max)
        if not isinstance(part, Assertion):
            before, row_max = _last(part), 0
    return min(_MANY, total)


def _is_apart(row: Repeat, before: Ranges | None) -> bool:
    inside = _last(row.part)
    if before is None or inside is None:
        return False
    return not any(start <= high and low <= end for start, end in before for low, high in inside)


def _last(tree: Tree) -> Ranges | None:
    """Give the characters of which each match has one at its end; None where that is not told easily."""
    match tree:
        case Char():
            point = ((tree.point, tree.point),)
            return folded(point) if tree.fold else point
        case Class():
            return tree.ranges if len(tree.ranges) <= _RANGES_SIMPLE_MAX else None
        case Repeat() if tree.least > 0:
            return _last(tree.part)
        case Sequence() if tree.parts:
            return _last(tree.parts[-1])
        case _:
            return None
