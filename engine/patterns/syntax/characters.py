"""Sets of characters as ranges of code points, and RE2's named sets."""

from typing import Final

POINT_MAX: Final = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]
"""Unsorted ranges of code points, each as its first and its last."""

_ASCII_MAX: Final = 127

_DIGITS: Final[Ranges] = ((48, 57),)
_WORD: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Final[Ranges] = ((9, 10), (12, 13), (32, 32))
PERL: Final[dict[str, Ranges]] = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
POSIX: Final[dict[str, Ranges]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGITS,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}


def complement(ranges: Ranges) -> Ranges:
    """Return all other code points."""
    rest, low = [], 0
    for start, end in sorted(ranges):
        if start > low:
            rest.append((low, start - 1))
        low = max(low, end + 1)
    if low <= POINT_MAX:
        rest.append((low, POINT_MAX))
    return tuple(rest)


def merged(ranges: Ranges) -> Ranges:
    """Return the same code points in sorted and disjoint ranges."""
    return complement(complement(ranges))


def folded(ranges: Ranges) -> Ranges:
    """Add the code points of the other case. If any is beyond ASCII, add all beyond ASCII."""
    more = [*ranges, *other_case(ranges)]
    if any(end > _ASCII_MAX for _, end in ranges):
        more.append((_ASCII_MAX + 1, POINT_MAX))
    return tuple(more)


def other_case(ranges: Ranges) -> list[tuple[int, int]]:
    """Return the code points of the other case."""
    more = []
    for start, end in ranges:
        for low, high, other in ((65, 90, 32), (97, 122, -32)):
            if start <= high and end >= low:
                more.append((max(start, low) + other, min(end, high) + other))
    # Two letters beyond ASCII fold into ASCII letters.
    for letter, kin in ((107, 0x212A), (115, 0x17F)):
        if any(start <= letter <= end for start, end in (*ranges, *more)):
            more.append((kin, kin))
    return more
