"""Reads JSON text as values with spans. Text that is not JSON is refused at an offset, with the reason."""

import re
from typing import NoReturn

from engine.language.diagnostics import quoted
from engine.language.json.spans import SpannedArray, SpannedObject
from engine.language.limits import Limits
from engine.language.literals import NUMBER, STRING, explain_string, number_value, string_value

_BLANKS = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(
    rf"(?P<mark>[\[\]{{}},:])|(?P<string>{STRING})|(?P<number>{NUMBER})(?![\w.])|(?P<word>[A-Za-z_]\w*)"
)
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None}
_RUN = re.compile(r"[-+.\w$]+|.", re.DOTALL)


class NotJson(Exception):
    """The text is not JSON from `offset` on. `partial` is the value of the text before it."""

    def __init__(self, offset: int, sentence: str) -> None:
        self.offset = offset
        self.sentence = sentence
        self.partial: object = None


class JsonReader:
    """Reads one JSON text without recursion, so any depth of nesting is safe.

    Of duplicate members, the last one counts. `depth` is the deepest nesting so far.
    """

    def __init__(self, text: str, limits: Limits) -> None:
        self.depth = 0
        self._text = text
        self._limits = limits
        self._at = 0
        self._root: object = None
        self._open: list[SpannedObject | SpannedArray] = []
        self._just_opened = False
        self._member = ""

    def read(self) -> object:
        """Return the value of the whole text. Raises NotJson."""
        try:
            self._value(*self._token(), "a value")
            while self._open:
                match self._open[-1]:
                    case SpannedObject():
                        self._next_member()
                    case SpannedArray():
                        self._next_element()
            if self._skip_blanks() < len(self._text):
                self._unexpected(self._at, "the end of the text")
        except NotJson as error:
            error.partial = self._root
            raise
        return self._root

    def _next_member(self) -> None:
        kind, literal, offset = self._token()
        if literal == "}":
            self._close()
            return
        if not self._just_opened:
            if literal != ",":
                self._unexpected(offset, '"," or "}"')
            kind, literal, offset = self._token()
        if kind != "string":
            self._unexpected(offset, "the name of a member, in double quotes")
        self._member = string_value(literal, offset, self._fail)
        _, literal, offset = self._token()
        if literal != ":":
            self._unexpected(offset, '":"')
        # A placeholder: a value that cannot be read still counts in the size of `partial`.
        self._put(None, offset)
        self._value(*self._token(), "a value")

    def _next_element(self) -> None:
        kind, literal, offset = self._token()
        if literal == "]":
            self._close()
        elif self._just_opened:
            self._value(kind, literal, offset, 'a value or "]"')
        elif literal == ",":
            self._value(*self._token(), "a value")
        else:
            self._unexpected(offset, '"," or "]"')

    def _value(self, kind: str, literal: str, offset: int, expected: str) -> None:
        match kind, literal:
            case "string", _:
                self._put(string_value(literal, offset, self._fail), offset)
            case "number", _:
                self._put(number_value(literal, offset, self._limits, self._fail), offset)
            case "word", ("true" | "false" | "null"):
                self._put(_WORDS[literal], offset)
            case "mark", "{":
                opened = SpannedObject()
                opened.offsets = {}
                self._put_open(opened, offset)
            case "mark", "[":
                listed = SpannedArray()
                listed.offsets = []
                self._put_open(listed, offset)
            case _:
                self._unexpected(offset, expected)

    def _put(self, value: object, offset: int) -> None:
        self._just_opened = False
        match self._open:
            case [*_, SpannedObject() as parent]:
                parent[self._member] = value
                parent.offsets[self._member] = offset
            case [*_, SpannedArray() as parent]:
                parent.append(value)
                parent.offsets.append(offset)
            case _:
                self._root = value

    def _put_open(self, container: SpannedObject | SpannedArray, offset: int) -> None:
        self._put(container, offset)
        self._open.append(container)
        self._just_opened = True
        self.depth = max(self.depth, len(self._open))

    def _close(self) -> None:
        self._open.pop()
        self._just_opened = False

    def _skip_blanks(self) -> int:
        blanks = _BLANKS.match(self._text, self._at)
        assert blanks
        self._at = blanks.end()
        return self._at

    def _token(self) -> tuple[str, str, int]:
        """Return the next token: its kind, which is empty if there is none, its text, and its offset."""
        offset = self._skip_blanks()
        token = _TOKEN.match(self._text, offset)
        if token is None or token.lastgroup is None:
            if self._text[offset : offset + 1] == '"':
                explain_string(self._text, offset, self._fail)
            return "", "", offset
        self._at = token.end()
        return token.lastgroup, token[0], offset

    def _unexpected(self, offset: int, expected: str) -> NoReturn:
        run = _RUN.match(self._text, offset)
        if run is None:
            self._fail(len(self._text.rstrip(" \t\r\n")), f"expected {expected}, got the end of the text")
        self._fail(offset, f"expected {expected}, got {quoted(run[0])}")

    def _fail(self, offset: int, sentence: str) -> NoReturn:
        raise NotJson(offset, sentence)
