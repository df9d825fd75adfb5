"""JSON objects and arrays with the spans of their members: where each value begins in the source text."""


class SpannedObject(dict[str, object]):
    """A JSON object, with the offset at which the value of each member begins, if that is known.

    Without a constructor of its own, since each text makes many: whoever makes one sets the `offsets`.
    """

    __slots__ = ("offsets",)
    offsets: dict[str, int]


class SpannedArray(list[object]):
    """A JSON array, with the offset at which each element begins, or of none."""

    __slots__ = ("offsets",)
    offsets: list[int]


def offset_of(container: object, member: str | int) -> int | None:
    """Return the offset at which a member of a container begins, or None if it is unknown."""
    match container, member:
        case SpannedObject(), str():
            return container.offsets.get(member)
        case SpannedArray(), int() if member < len(container.offsets):
            return container.offsets[member]
        case _:
            return None
