"""JSON objects and arrays with the spans of their members: the offsets of values in the source text."""


class SpannedObject(dict[str, object]):
    """A JSON object, with the offset of the value of each member, if known.

    It has no constructor, because each text creates many: whoever creates one sets the `offsets`.
    """

    __slots__ = ("offsets",)
    offsets: dict[str, int]


class SpannedArray(list[object]):
    """A JSON array, with the offset of each element, or of none."""

    __slots__ = ("offsets",)
    offsets: list[int]


def offset_of(container: object, member: str | int) -> int | None:
    """Return the offset of a member of a container; None if unknown."""
    match container, member:
        case SpannedObject(), str():
            return container.offsets.get(member)
        case SpannedArray(), int() if member < len(container.offsets):
            return container.offsets[member]
        case _:
            return None
