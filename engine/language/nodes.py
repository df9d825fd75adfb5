"""The base of conditions and terms: equality by typed content, and a cached hash."""

from typing import ClassVar, Final

_SMALL: Final = 1 << 16


def typed(value: object) -> object:
    """Return a form of a member that equals others only if the types are equal, too.

    `true` differs from `1`, and `1` equals `1.0`. The hash of a number is predictable, so thousands of
    conditions with large numbers could have the same hash. The hash of a text is not predictable.
    """
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, tuple):
        return ("array", *map(typed, value))
    if isinstance(value, int | float) and not -_SMALL < value < _SMALL:
        is_whole = isinstance(value, int) or value.is_integer()
        return ("number", hex(int(value)) if is_whole else float(value).hex())
    return value


class Node:
    """Compares and hashes by typed content: `Leaf("x", "eq", 1)` differs from `Leaf("x", "eq", True)`."""

    __slots__ = ("__weakref__", "_hash")
    _hash: int
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def _identity(self) -> tuple[object, ...]:
        return (type(self).__name__, *[typed(getattr(self, name)) for name in self.__match_args__])

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        for name in self.__match_args__:
            one, another = getattr(self, name), getattr(other, name)
            # Parts are often identical objects, because rules share them.
            if one is not another and typed(one) != typed(another):
                return False
        return True

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            # The hash covers the whole tree and is needed often.
            object.__setattr__(self, "_hash", hash(self._identity()))
            return self._hash


class ConditionNode(Node):
    """The base of all conditions."""

    __slots__ = ()


class TermNode(Node):
    """The base of all terms that are objects in JSON."""

    __slots__ = ()
