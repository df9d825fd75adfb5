"""Definitions shared by the conditions of a file: a text includes one with `use "NAME"`.

They are inserted in parentheses when the file is read. The service does not know them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from api.cli.rule_files.documents import Document, Path, offsets_of
from engine.language.diagnostics import (
    TOO_LARGE,
    UNREADABLE,
    ConditionError,
    Entry,
    Position,
    Refusal,
    Source,
    did_you_mean,
    quoted,
)
from engine.language.limits import DEFAULT_LIMITS
from engine.language.text.parser import parse
from engine.language.text.printer import format as canonical

NESTING_MAX: Final = 64
"""The maximum nesting of definitions."""

CHARS_MAX: Final = 64 * 1024 * 1024
"""The maximum number of characters of all texts of a file, with definitions inserted."""

_TOKEN: Final = re.compile(
    r"""(?P<use>use\s*(?P<name>"(?:[^"\\\n]|\\.)*"|'[^'\n]*'))"""
    r"""|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|`(?:[^`]|``)*`|\#[^\n]*|[\w@$.-]+"""
)

_MAY_USE: Final = re.compile(r"""\buse\s*["']""")


class _Use(NamedTuple):
    name: str
    start: int
    end: int


class _Piece(NamedTuple):
    """A run of characters of an expanded text, and its origin."""

    start: int
    path: Path
    """The string in the document that it comes from."""
    offset: int
    """The offset of the run in that string."""
    uses: tuple[tuple[Path, int], ...]
    """The uses that inserted it, innermost first."""


class Definitions:
    """The definitions of a document, and their `defects`."""

    def __init__(self, document: Document, given: Mapping[str, Any]) -> None:
        """Read the definitions: each is a condition as text or as an object."""
        self.document = document
        self.defects: list[str] = []
        self._given = given
        self._texts: dict[str, str] = {}
        self._expanded: dict[str, str | None] = {}
        """The definitions as inserted; None for a refused one."""
        self._depths: dict[str, int] = {}
        self._chars = 0
        self._first_uses: dict[str, tuple[Path, int]] = {}
        self._refusals: dict[str, list[str]] = {}

    def check(self) -> None:
        """Read unused definitions, too, and collect the defects of all, with their first uses."""
        for name in self._given:
            self._read(name, ())
        for name, refusals in self._refusals.items():
            use = self._first_uses.get(name)
            told = f"\n{self._used(use)}" if use else ""
            self.defects += [f"definition {quoted(name)}: {refusal}{told}" for refusal in refusals]

    def expanded(self, path: Path, text: str, around: tuple[str, ...] = ()) -> str | None:
        """Return a text with its definitions inserted; None if one of them is refused.

        Raises ConditionError, before building the text, if it would be too large or include itself.
        """
        uses = list(_uses(text)) if "use" in text and _MAY_USE.search(text) else []
        if not uses:
            return text
        texts: dict[str, str | None] = {}
        chars = len(text)
        for use in uses:
            if path != ("define", use.name):
                self._first_uses.setdefault(use.name, (path, use.start))
            if use.name not in self._given:
                near = did_you_mean(use.name, self._given)
                self._refuse(path, text, use, f"no definition is named {quoted(use.name)}{near}")
            if use.name in around:
                names = [*around[around.index(use.name) :], use.name]
                said = f"a definition uses itself: {' → '.join(map(quoted, names))}"
                self._refuse(path, text, use, said)
            if len(around) + self._depths.get(use.name, 1) > NESTING_MAX:
                said = f"definitions stand in one another more than {NESTING_MAX} deep"
                self._refuse(path, text, use, said, TOO_LARGE)
            found = texts[use.name] = self._read(use.name, around)
            chars += len(found or "")
            if chars > DEFAULT_LIMITS.text_bytes_max:
                said = (
                    f"with its definitions the text has more than {DEFAULT_LIMITS.text_bytes_max} characters"
                )
                self._refuse(path, text, use, said, TOO_LARGE)
        self._chars += chars
        if self._chars > CHARS_MAX:
            said = f"with their definitions the texts of the file have more than {CHARS_MAX >> 20} MiB"
            self._refuse(path, text, uses[0], said, TOO_LARGE)
        if None in texts.values():
            return None
        parts, at = [], 0
        for use in uses:
            parts += [text[at : use.start], texts[use.name] or ""]
            at = use.end
        return "".join([*parts, text[at:]])

    def pieces(
        self, path: Path, text: str, start: int = 0, uses: tuple[tuple[Path, int], ...] = ()
    ) -> Iterator[_Piece]:
        """Yield the parts of an expanded text with their origins."""
        at = 0
        for use in _uses(text):
            yield _Piece(start, path, at, uses)
            start += use.start - at
            inner = self._texts[use.name]
            yield from self.pieces(("define", use.name), inner, start + 1, ((path, use.start), *uses))
            start, at = start + len(self._expanded[use.name] or ""), use.end
        yield _Piece(start, path, at, uses)

    def offset(self, path: Path, offset: int) -> int:
        """Return the offset in the document of a character of a string."""
        place = self.document.place(path)
        value = self.document.value
        for step in path:
            value = value[step]
        if not isinstance(value, str) or not place.value_end:
            return place.start
        return offsets_of(self.document.text, place, value)[min(offset, len(value))]

    def _read(self, name: str, around: tuple[str, ...]) -> str | None:
        """Return a definition as inserted; None if refused. Raises ConditionError if it includes itself."""
        if name in self._expanded:
            return self._expanded[name]
        path: Path = ("define", name)
        try:
            given = self._given[name]
            if not isinstance(given, str) or given.lstrip().startswith("{"):
                given = canonical(parse(given, DEFAULT_LIMITS))
            self._texts[name] = given
            inside = self.expanded(path, given, (*around, name))
            self._depths[name] = 1 + max((self._depths.get(use.name, 0) for use in _uses(given)), default=0)
            found = None
            if inside is not None:
                # The definition by itself must be a condition, unlike `a) or (b`.
                parse(PlacedText(self, path, given, inside), DEFAULT_LIMITS)
                found = f"({inside}\n)" if "#" in inside else f"({inside})"
        except Refusal as refusal:
            found = None
            said = [f"{entry.code} {entry.message}" for entry in refusal.entries]
            is_text = isinstance(self._given[name], str)
            self._refusals[name] = said if is_text else [self.document.said(path, each) for each in said]
        self._expanded[name] = found
        return found

    def _refuse(self, path: Path, text: str, use: _Use, said: str, code: int = UNREADABLE) -> None:
        source = PlacedText(self, path, text, text, is_expanded=False)
        raise ConditionError(Entry(code, source.annotated(use.start, said)))

    def _used(self, use: tuple[Path, int]) -> str:
        at = self.offset(*use)
        source = self.document.source
        return f"used in {source.position(at)}:\n{source.excerpt(at)}"


class PlacedText(Source):
    """A text of a file with its definitions inserted, whose messages name places in the file."""

    def __init__(
        self, definitions: Definitions, path: Path, text: str, expanded: str, *, is_expanded: bool = True
    ) -> None:
        """`path` leads to the original text in the document."""
        super().__init__(expanded)
        self._definitions = definitions
        self._path = path
        self._given = text
        self._is_expanded = is_expanded

    def position(self, offset: int) -> Position:
        """Return the position in the file; for inserted text, that in the definition."""
        return self._definitions.document.source.position(self._offsets(offset)[0])

    def annotated(self, offset: int, sentence: str) -> str:
        """Return position, sentence, line and caret, and those of each enclosing use."""
        return f"{self.position(offset)}: {sentence}\n{self._excerpts(offset)}"

    def located(self, offset: int, sentence: str) -> str:
        """Return the sentence and the position; inside a definition with lines and carets of both places."""
        said = super().located(offset, sentence)
        return f"{said}\n{self._excerpts(offset)}" if len(self._offsets(offset)) > 1 else said

    def _excerpts(self, offset: int) -> str:
        source = self._definitions.document.source
        place, *uses = self._offsets(offset)
        used = [f"used in {source.position(at)}:\n{source.excerpt(at)}" for at in uses]
        return "\n".join([source.excerpt(place), *used])

    def _offsets(self, offset: int) -> list[int]:
        """Return the offsets in the file of a character, and of the uses around it."""
        definitions = self._definitions
        piece = _Piece(0, self._path, 0, ())
        if self._is_expanded:
            # The last piece that begins at or before the offset.
            for each in definitions.pieces(self._path, self._given):
                if each.start <= offset:
                    piece = each
        places = [(piece.path, piece.offset + offset - piece.start), *piece.uses]
        return [definitions.offset(path, at) for path, at in places]


def _uses(text: str) -> Iterator[_Use]:
    for token in _TOKEN.finditer(text):
        if token["use"] is not None:
            quoted_name = token["name"]
            try:
                name = json.loads(quoted_name) if quoted_name[0] == '"' else quoted_name[1:-1]
            except ValueError:
                continue
            yield _Use(name, token.start(), token.end())
