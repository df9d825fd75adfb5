"""Values of facts as explanations and examples show them: long ones are truncated."""

from typing import Any, Final, NamedTuple

VALUE_CHARS_MAX: Final = 1_000
"""The approximate maximum length of a shown value. An integer is never cut."""

_BETWEEN_CHARS: Final = 2
"""The characters between two members."""


class Shown(NamedTuple):
    """A value as shown, and whether it was cut."""

    value: Any
    is_cut: bool


def shown(value: Any) -> Shown:
    """Return a JSON value, cut to about VALUE_CHARS_MAX characters."""
    cutting = _Cutting()
    part = cutting.part(value)
    return Shown(part, cutting.is_cut)


class _Cutting:
    def __init__(self) -> None:
        self._room = VALUE_CHARS_MAX
        self.is_cut = False

    def part(self, value: Any) -> Any:
        """Return as much of a value as fits into the room that is left."""
        match value:
            case str():
                return self._text(value)
            case list():
                members: list[Any] = []
                for member in value:
                    if not self._start_member():
                        break
                    members.append(self.part(member))
                return members
            case dict():
                found: dict[str, Any] = {}
                for name, member in value.items():
                    if not self._start_member():
                        break
                    # The name comes first, because a long member leaves no room.
                    shown_name = self._text(name)
                    found[shown_name] = self.part(member)
                return found
            case _:
                # Python refuses to write integers of more than some thousands of digits.
                self._room -= value.bit_length() // 3 if type(value) is int else len(repr(value))
                return value

    def _text(self, text: str) -> str:
        fits = len(text) <= self._room
        part = text if fits else text[: max(0, self._room)] + "…"
        self._room -= len(text)
        self.is_cut |= not fits
        return part

    def _start_member(self) -> bool:
        """Subtract the separator of two members. Return whether room is left for the next one."""
        self._room -= _BETWEEN_CHARS
        has_room = self._room > 0
        self.is_cut |= not has_room
        return has_room
