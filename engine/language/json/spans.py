"""JSON objects and arrays that know where their members stand in the text that they were read from."""


class LocatedObject(dict[str, object]):
    """A JSON object and the offset in its text at which each member's value begins."""

    __slots__ = ("offsets",)

    def __init__(
        self, members: dict[str, object] | None = None, offsets: dict[str, int] | None = None
    ) -> None:
        super().__init__(members or {})
        self.offsets: dict[str, int] = offsets or {}


class LocatedArray(list[object]):
    """A JSON array and the offset in its text at which each element begins."""

    __slots__ = ("offsets",)

    def __init__(self, elements: list[object] | None = None, offsets: list[int] | None = None) -> None:
        super().__init__(elements or [])
        self.offsets: list[int] = offsets or []


def offset_of(container: object, member: str | int) -> int | None:
    """Give where the member of a container begins in its text, where that is known."""
    match container, member:
        case LocatedObject(), str():
            return container.offsets.get(member)
        case LocatedArray(), int() if member < len(container.offsets):
            return container.offsets[member]
        case _:
            return None
