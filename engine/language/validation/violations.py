"""Violations: what makes a document invalid, each with its place in the document and in the text."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from engine.language.diagnostics import INVALID, Entry, Source, enumerated, quoted
from engine.language.json.spans import offset_of


class Invalid(Enum):
    """The result of validating a part that has violations. They have been reported."""

    REPORTED = "reported"


class Location(NamedTuple):
    """A place in a document: its path, and its offset in the source text if that is known."""

    path: str = ""
    offset: int | None = None

    def member(self, container: object, name: str) -> "Location":
        """Return the location of a member of the object at this location."""
        is_plain = name.isascii() and name.isidentifier()
        step = (f".{name}" if self.path else name) if is_plain else f"[{quoted(name)}]"
        return Location(self.path + step, offset_of(container, name))

    def element(self, container: object, index: int) -> "Location":
        """Return the location of an element of the array at this location."""
        return Location(f"{self.path}[{index}]", offset_of(container, index))


class Violations:
    """The violations found so far. `source` is the text of the document if it was read from one."""

    def __init__(self, source: Source | None) -> None:
        self.entries: list[Entry] = []
        self._source = source

    def root(self) -> Location:
        """Return the location of the whole document."""
        text = self._source.text if self._source else ""
        return Location(offset=len(text) - len(text.lstrip(" \t\r\n")))

    def report(self, location: Location, sentence: str, code: int = INVALID) -> Invalid:
        """Add a violation. The result stands for the invalid part."""
        said = f"{location.path or 'condition'}: {sentence}"
        if self._source and location.offset is not None:
            said = self._source.located(location.offset, said)
        self.entries.append(Entry(code, said))
        return Invalid.REPORTED


def names_listed(names: Iterable[str], conjunction: str = "and") -> str:
    """Quote and join names of JSON members or operators."""
    return enumerated([f"`{name}`" for name in names], conjunction)
