"""Finds the named groups of a regular expression in a line of text, with RE2, in linear time."""

import re
from collections import Counter
from typing import Final

import re2

from engine.patterns.compiled_pattern import PatternError

_NAMES: Final = re.compile(r"\(\?P?<(\w+)>")
_WITHOUT: Final = (
    " (the syntax is RE2's, which has neither look-around nor references back, so that no line takes long)"
)


class NamedGroups:
    """A regular expression that finds its named groups in a text."""

    def __init__(self, pattern: str) -> None:
        """Compile the expression. Raises PatternError, with RE2's reason."""
        options = re2.Options()
        options.log_errors = False
        try:
            compiled = re2.compile(pattern.encode(), options)
        except UnicodeEncodeError:
            raise PatternError("it is no Unicode text") from None
        except re2.error as error:
            # RE2's message is in bytes.
            raise PatternError(error.args[0].decode("utf-8", "replace") + _WITHOUT) from None
        twice = [name for name, times in Counter(_NAMES.findall(pattern)).items() if times > 1]
        if twice:
            # RE2 would return only the first of them.
            raise PatternError(f"two groups are named {twice[0]}")
        numbers: dict[bytes, int] = compiled.groupindex
        self._search = compiled.search
        self._numbers = sorted(numbers.values())
        self.names: Final = [name.decode() for name, _ in sorted(numbers.items(), key=lambda one: one[1])]
        """The names of the groups in order."""

    def found_in(self, text: str) -> list[str] | None:
        """Return the match of each group, empty if it matched nothing; None if there is no match."""
        found = self._search(text.encode("utf-8", "replace"))
        if found is None:
            return None
        return [(found[number] or b"").decode("utf-8", "replace") for number in self._numbers]
