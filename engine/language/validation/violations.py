"""The defects of one document, gathered in its order, each with its place."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from engine.language.diagnostics import INVALID, Entry, Source, listed, nearest, quoted
from engine.language.json.spans import offset_of


class Defect(Enum):
    """Stands in place of a part of a condition that was found defective; what is wrong with it is told."""

    TOLD = "told"


class Spot(NamedTuple):
    """A place in a document, and its offset in the text that the document was read from, where known."""

    path: str = ""
    offset: int | None = None

    def member(self, container: object, name: str) -> "Spot":
        """Give the place of a member of the object that stands here."""
        plain = name.isascii() and name.isidentifier()
        step = (f".{name}" if self.path else name) if plain else f"[{quoted(name)}]"
        return Spot(self.path + step, offset_of(container, name))

    def element(self, container: object, index: int) -> "Spot":
        """Give the place of an element of the array that stands here."""
        return Spot(f"{self.path}[{index}]", offset_of(container, index))


class Defects:
    """What was found wrong so far. `source` is the text of the document, where it was read from one."""

    def __init__(self, source: Source | None) -> None:
        self.entries: list[Entry] = []
        self._source = source

    def root(self) -> Spot:
        """Give the place of the whole document."""
        text = self._source.text if self._source else ""
        return Spot(offset=len(text) - len(text.lstrip(" \t\r\n")))

    def tell(self, spot: Spot, sentence: str, code: int = INVALID) -> Defect:
        """Add a defect to what is reported; gives what stands for the part that has it."""
        place = spot.path or "condition"
        where = f" ({self._source.place(spot.offset)})" if self._source and spot.offset is not None else ""
        self.entries.append(Entry(code, f"{place}: {sentence}{where}"))
        return Defect.TOLD


def named(names: Iterable[str], joint: str = "and") -> str:
    """Give wire names as they stand in a sentence."""
    return listed([f"`{name}`" for name in names], joint)


def meant(word: str, known: Iterable[str]) -> str:
    """Give the end of a sentence that suggests the known word that is nearest, if one is near."""
    near = nearest(word, known)
    return f"; did you mean `{near}`?" if near else ""


def kind(value: object) -> str:
    """Give the JSON type of a value, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case Mapping():
            return "an object"
        case _:
            return "what is no JSON"
