"""JSON objects and arrays with the spans of their members: where each value begins in the source text."""


class SpannedObject(dict[str, object]):
    """A JSON object, with the offset at which the value of each member begins."""

    __slots__ = ("offsets",)

    def __init__(
        self, members: dict[str, object] | None = None, offsets: dict[str, int] | None = None
    ) -> None:
        super().__init__(members or {})
        self.offsets: dict[str, int] = offsets or {}


class SpannedArray(list[object]):
    """A JSON array, with the offset at which each element begins."""

    __slots__ = ("offsets",)

    def __init__(self, elements: list[object] | None = None, offsets: list[int] | None = None) -> None:
        super().__init__(elements or [])
        self.offsets: list[int] = offsets or []


def offset_of(container: object, member: str | int) -> int | None:
    """Return the offset at which a member of a container begins, or None if it is unknown."""
    match container, member:
        case SpannedObject(), str():
            return container.offsets.get(member)
        case SpannedArray(), int() if member < len(container.offsets):
            return container.offsets[member]
        case _:
            return None
