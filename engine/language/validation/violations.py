"""The places of violations, in the document and in the text."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from engine.language.diagnostics import Source, enumerated, quoted
from engine.language.json.spans import offset_of


class Invalid(Enum):
    """The result of validating a part that has violations, which are already reported."""

    REPORTED = "reported"


class Location(NamedTuple):
    """A place in a document, as a path. Most are never shown, so paths and offsets are computed on demand."""

    around: "Location | None" = None
    """The location of the object or array that contains it; None for the whole document."""
    container: object = None
    """That object or array."""
    step: str | int = ""
    """The name of the member, or the index of the element."""

    def path(self) -> str:
        """Return the path in the document, such as `all[1].leaf.op`."""
        text = ""
        for each in reversed([*self._way()]):
            if isinstance(each.step, int):
                text += f"[{each.step}]"
            elif each.step.isascii() and each.step.isidentifier():
                text += f".{each.step}" if text else each.step
            else:
                text += f"[{quoted(each.step)}]"
        return text

    def offset(self, text: str) -> int | None:
        """Return the offset in the text from which the document was read; None if unknown."""
        if self.around is None:
            return len(text) - len(text.lstrip(" \t\r\n"))
        return offset_of(self.container, self.step)

    def _way(self) -> "Iterable[Location]":
        each = self
        while each.around is not None:
            yield each
            each = each.around


def said_at(location: Location, sentence: str, source: Source | None) -> str:
    """Return a sentence about a place. `source` is the text from which the document was read, if any."""
    said = f"{location.path() or 'condition'}: {sentence}"
    offset = None if source is None else location.offset(source.text)
    return said if source is None or offset is None else source.located(offset, said)


def names_listed(names: Iterable[str], conjunction: str = "and") -> str:
    """Quote and join names of JSON members or operators."""
    return enumerated([f"`{name}`" for name in names], conjunction)
