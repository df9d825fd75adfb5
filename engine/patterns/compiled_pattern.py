"""Regular expressions from strangers: RE2 within bounds, so that no single search takes long.

RE2 searches with an automaton whose states it builds as a text demands them. Where few states exist, each is
built once and a byte of text costs a nanosecond or two. Expressions such as `[ab].{30}c` have billions: they
*explode*. A text made for one demands another state with each byte, at some 10 ns for each place of the
expression.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

from engine.patterns.automaton import Counted, counted
from engine.patterns.cost import is_brief, is_plain, longest, places
from engine.patterns.limits import PatternLimits
from engine.patterns.literals import beginnings, guard_of, leading
from engine.patterns.syntax import read

MEMORY_BYTES_MAX: Final = 1024 * 1024
INSTRUCTION_MEMORY_BYTES: Final = 1024
"""What RE2 may use for a harmless expression, and for each of its instructions besides. Its states fit."""

EXPLODING_MEMORY_BYTES_MAX: Final = 256 * 1024
EXPLODING_INSTRUCTION_MEMORY_BYTES: Final = 64
"""The same for exploding ones. RE2 should run out of states soon, and fall back to simulation."""

UNICODE_CLASSES_MAX: Final = 1_000
"""How many classes such as `\\pL` the patterns of one condition may have: a tenth of a second's work."""

COMPILED_PATTERNS_MAX: Final = 4096
"""How many expressions are kept for those who ask again: more than a condition can have."""

_PLAIN_PREPARATION, _PLAIN_LETTER_PREPARATION = 100, 4
"""What preparing an expression takes that is one literal, and for each of its characters."""
_PREPARATION, _LETTER_PREPARATION, _INSTRUCTION_PREPARATION = 300, 20, 4
"""The same for any other one, and for each instruction that it has when compiled."""
REFUSED_PREPARATION: Final = 20_000
"""What a refused expression takes: RE2 may have compiled much of it before."""

_PLACE_INSTRUCTIONS: Final = 10
"""About how many instructions a place has. With more, as in `\\pL`, it counts as several places."""

_ALWAYS: Final = r"\z"
"""Found in every text. A set that does not find it ran out of memory, and has found nothing at all."""


class PatternError(Exception):
    """RE2 refuses the expression, or it is larger than the limits allow. The text is the reason."""


class CompiledPattern:
    """A regular expression and what it costs, which follows from the expression alone.

    A harmless one costs a nanosecond or two for each byte of a text. An exploding one costs at most some
    10 ns for each unit of its `work_per_byte`, and the larger that is, the shorter are the texts it takes.
    """

    __slots__ = (
        "_find",
        "_leading",
        "_longest",
        "_pattern",
        "asked_for",
        "explodes",
        "is_whole",
        "preparation",
        "text_bytes_max",
        "text_chars_max",
        "work_per_byte",
    )

    def __init__(self, pattern: str, limits: PatternLimits) -> None:
        """Compile it, unless it is one literal: that is compiled when it is first tried."""
        tree = read(pattern)
        self._pattern = pattern
        self._find: Callable[[bytes], bool] | None = None
        guard = guard_of(tree)
        work_per_byte = 1
        if tree is not None and is_plain(tree):
            self.explodes, self.is_whole = False, True
            self.preparation = _PLAIN_PREPARATION + _PLAIN_LETTER_PREPARATION * len(pattern)
        else:
            size = program_size(pattern)
            self.explodes, steps = Counted(True, 0) if tree is None else counted(tree)
            self.is_whole = (
                tree is not None
                and not self.explodes
                and is_brief(tree)
                and guard is not None
                and any(map(str.isalpha, guard))
            )
            self.preparation = (
                _PREPARATION + _LETTER_PREPARATION * len(pattern) + _INSTRUCTION_PREPARATION * size + steps
            )
            if self.explodes:
                work_per_byte = max(1, size // _PLACE_INSTRUCTIONS, places(tree) if tree else 0)
            self._find = self._compiled(size)
        self.asked_for = pattern if self.is_whole else guard
        """An expression that is found wherever this one is, and has few states together with many others."""
        self._leading = leading(tree) if self.explodes else None
        self._longest = longest(tree) if tree is not None and self.explodes else None
        self.work_per_byte = work_per_byte
        self.text_chars_max = limits.pattern_text_chars_max
        self.text_bytes_max: int = limits.pattern_work_max // work_per_byte

    def found_in(self, text: str) -> bool:
        """Tell whether the expression is found anywhere in the text.

        Never raises: a text that is too long, or that is not Unicode, does not match.
        """
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            return False
        if len(text) > self.text_chars_max or len(encoded) > self.text_bytes_max:
            return False
        if self._find is None:
            self._find = self._compiled(len(self._pattern))
        return self._find(encoded)

    def too_long(self, text: str) -> bool:
        """Tell whether the text is longer than the texts on which this expression is tried."""
        if len(text) > self.text_chars_max:
            return True
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        return size > self.text_bytes_max

    def work(self, text: str, size: int) -> int:
        """Give the work that the exploding expression can be in a text of `size` bytes with its literals."""
        if self.too_long(text):
            return 0
        # States are built only while a match is under way: behind the literals with which each one begins.
        if self._leading is not None and self._longest is not None and size == len(text):
            size = min(size, self._longest * sum(beginnings(literal, text) for literal in self._leading))
        return size * self.work_per_byte

    def _compiled(self, size: int) -> Callable[[bytes], bool]:
        """Give what searches a text, compiled within the memory for so many instructions."""
        if self.explodes:
            # In place of ever more states this one simulates the automaton.
            memory_bytes = EXPLODING_MEMORY_BYTES_MAX + EXPLODING_INSTRUCTION_MEMORY_BYTES * size
            search = re2.compile(self._pattern, _options(memory_bytes)).search
            return lambda text: search(text) is not None
        # A set goes through the text forwards only, without regard to the order of preference.
        match = compiled_set([self._pattern], MEMORY_BYTES_MAX + INSTRUCTION_MEMORY_BYTES * size)
        assert match is not None, "a harmless expression fits into its memory"

        def find(text: bytes) -> bool:
            found = match(text)
            assert found is not None, "a harmless expression never runs out of memory"
            return bool(found)

        return find


def judged_pattern(pattern: str, limits: PatternLimits) -> CompiledPattern:
    """Give the expression of a new condition, or raise PatternError.

    What RE2 refuses, and what is too large, is told before anything else is asked about it.
    """
    size = program_size(pattern)
    if size > limits.pattern_program_max:
        raise PatternError(
            f"it is too large: {size} steps when compiled, at most {limits.pattern_program_max} are allowed"
        )
    return compile_pattern(pattern, limits)


@lru_cache(maxsize=COMPILED_PATTERNS_MAX)
def compile_pattern(pattern: str, limits: PatternLimits) -> CompiledPattern:
    """Give an expression that was judged before. `pattern` holds whole characters only.

    It may be of any size: a bound that was lowered is no reason to refuse what was stored before.
    """
    return CompiledPattern(pattern, limits)


def program_size(pattern: str) -> int:
    """Give how many instructions the expression has when compiled, or raise PatternError."""
    try:
        size: int = re2.compile(pattern, _options(MEMORY_BYTES_MAX)).programsize
    except re2.error as error:
        raise PatternError(_reason(error)) from None
    return size


def unicode_classes(pattern: str) -> int:
    r"""Give how many classes such as `\pL` a pattern has, or more: each takes RE2 some 100 µs to read."""
    return pattern.count(r"\p") + pattern.count(r"\P")


def compiled_set(patterns: list[str], memory_bytes_max: int) -> Callable[[bytes], list[int] | None] | None:
    """Give what finds the numbers of the expressions in a text, or None where it runs out of memory.

    None if they cannot be compiled within the memory.
    """
    made = re2.Set.SearchSet(_options(memory_bytes_max))
    try:
        for pattern in (_ALWAYS, *patterns):
            made.Add(pattern)
        made.Compile()
    except re2.error:
        return None

    def match(text: bytes) -> list[int] | None:
        found = made.Match(text)
        return found and [number - 1 for number in sorted(found) if number]

    return match


def _options(memory_bytes_max: int) -> "re2.Options":
    """Give how every expression is read. Memory changes what a search costs, never what it finds."""
    chosen = re2.Options()
    chosen.log_errors = False
    # A search that need not say where its groups lie is the faster.
    chosen.never_capture = True
    chosen.max_mem = memory_bytes_max
    return chosen


def _reason(error: Exception) -> str:
    """Give RE2's own words, which it leaves as bytes."""
    reason = error.args[0] if error.args else "no reason given"
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
