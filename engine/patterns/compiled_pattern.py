"""Compiles regular expressions of untrusted callers with RE2, within limits, so that no search takes long.

RE2 searches with an automaton, whose states it builds when a text needs them. With few states, each is built
once, and a byte of text takes a nanosecond or two. Expressions such as `[ab].{30}c` have billions of states:
they *explode*. A hostile text needs a new state for each byte, which takes about 10 ns for each place of the
expression.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Final

import re2

from engine.patterns.automaton import Counted, counted
from engine.patterns.limits import PatternLimits
from engine.patterns.lines import line_of, line_of_literals
from engine.patterns.syntax.cost import is_brief, is_plain, longest, places
from engine.patterns.syntax.reader import read
from engine.patterns.syntax.tree import Assertion, Choice, Repeat, Sequence, Text, Tree
from engine.patterns.text_tests import folded_literal_of

CHARACTERS_MIN: Final = 3
"""Shorter literals occur in nearly every text, so they are not selective."""

CHARACTERS_MAX: Final = 32
"""Longer literals are truncated, because the rest hardly makes them more selective."""

ALTERNATIVES_MAX: Final = 16

REQUIRED_MAX: Final = 4
"""Searching for more literals one by one takes as long as one search with RE2."""

_HALF: Final = re.compile("[\ud800-\udfff]")

MEMORY_BYTES_MAX: Final = 1024 * 1024

INSTRUCTION_MEMORY_BYTES: Final = 1024
"""RE2's memory for a harmless expression, and for each of its instructions. All its states fit."""

JUDGED_MEMORY_BYTES: Final = 64 * 1024

JUDGED_INSTRUCTION_MEMORY_BYTES: Final = 16
"""The same for a new expression, and for each instruction that it may have. With so little memory, RE2 soon
gives up on one that is too large: a sequence of 32 000 `a?` would take it seconds."""

EXPLODING_MEMORY_BYTES_MAX: Final = 256 * 1024

EXPLODING_INSTRUCTION_MEMORY_BYTES: Final = 64
"""The same for exploding expressions. RE2 should run out of memory soon, and fall back to simulation."""

UNICODE_CLASSES_MAX: Final = 1_000
"""The maximum number of classes such as `\\pL` in a condition's patterns. They take a tenth of a second."""

COMPILED_PATTERNS_MAX: Final = 4096
"""The size of the cache of compiled expressions, more than a condition can have."""

_PLAIN_PREPARATION, _PLAIN_LETTER_PREPARATION = 100, 4
"""The work of preparing a single literal, and for each of its characters."""

_PREPARATION, _LETTER_PREPARATION, _INSTRUCTION_PREPARATION = 300, 20, 4
"""The same for any other expression, and for each of its compiled instructions."""

REFUSED_PREPARATION: Final = 20_000
"""The work for a refused expression, of which RE2 may have compiled a large part."""

_PLACE_INSTRUCTIONS: Final = 10
"""The typical number of instructions of a place. With more, as for `\\pL`, it counts as several places."""

_RE2_GAVE_UP: Final = "pattern too large"
"""The beginning of RE2's message if compiling takes too much memory."""

_ALWAYS: Final = r"\z"
"""Matches every text. If a set does not find it, the set ran out of memory, and its result is invalid."""


def guard_of(tree: Tree | None) -> str | None:
    """Return an expression of few literals that matches whenever this one does; None if there is none."""
    guards = contained(tree)
    return None if guards is None else "|".join(map(_written, guards))


def leading(tree: Tree | None) -> tuple[Text, ...] | None:
    """Return literals such that each match begins with one of them; None if unknown."""
    match tree:
        case Text():
            return _cut(tree)
        case Sequence():
            return leading(next((part for part in tree.parts if not isinstance(part, Assertion)), None))
        case Choice():
            return _any_of([leading(part) for part in tree.parts])
        case Repeat() if tree.least > 0:
            return leading(tree.part)
        case _:
            return None


def beginnings(literal: Text, text: str) -> int:
    """Return an upper bound of the number of places where a literal begins in an ASCII text."""
    # RE2 folds U+017F to "s", `lower` does not. Other changes by `casefold` cannot occur in ASCII texts.
    wanted = literal.text.casefold()
    # `count` skips overlapping occurrences.
    times = len(wanted) if any(wanted.startswith(wanted[at:]) for at in range(1, len(wanted))) else 1
    return times * (text.lower().count(wanted) if literal.fold else text.count(literal.text))


def contained(tree: Tree | None) -> tuple[Text, ...] | None:
    """Return literals such that each match contains one of them: preferably few, then long ones."""
    match tree:
        case Text():
            return _cut(tree)
        case Sequence():
            found = (guards for part in tree.parts if (guards := contained(part)) is not None)
            return max(
                found, key=lambda texts: (-len(texts), min(len(one.text) for one in texts)), default=None
            )
        case Choice():
            return _any_of([contained(part) for part in tree.parts])
        case Repeat() if tree.least > 0:
            return contained(tree.part)
        case _:
            return None


def _cut(tree: Text) -> tuple[Text, ...] | None:
    """Truncate the literal. None if it is too short, or if no text can contain it."""
    if len(tree.text) < CHARACTERS_MIN or _HALF.search(tree.text):
        return None
    return (Text(tree.text[:CHARACTERS_MAX], tree.fold),)


def _any_of(each: list[tuple[Text, ...] | None]) -> tuple[Text, ...] | None:
    found = tuple(dict.fromkeys(chain.from_iterable(texts for texts in each if texts)))
    return None if None in each or len(found) > ALTERNATIVES_MAX else found


def _written(literal: Text) -> str:
    quoted: str = re2.escape(literal.text)
    return f"(?i:{quoted})" if literal.fold else quoted


class PatternError(Exception):
    """RE2 refuses the expression, or it is larger than the limits allow. The message is the reason."""


class CompiledPattern:
    """A regular expression and its cost, which depends only on the expression.

    A harmless one takes a nanosecond or two for each byte of a text. An exploding one takes at most about 10
    ns for each byte and unit of its `work_per_byte`. The larger this is, the shorter the texts that it
    accepts.
    """

    def __init__(self, pattern: str, limits: PatternLimits) -> None:
        """Compile the expression. A single literal is compiled when it is first searched for."""
        tree = read(pattern)
        self._pattern = pattern
        folded = folded_literal_of(pattern, tree)
        self._in_lower = folded and folded.test(lambda _: True)
        """Decides an ASCII text in lower case, if the expression is a case-insensitive literal."""
        self._find: Callable[[bytes], bool] | None = None
        guard = guard_of(tree)
        required = contained(tree) or ()
        self._required: tuple[str, ...] = ()
        """Literals of which each matching text contains one; empty if unknown."""
        if len(required) <= REQUIRED_MAX and not any(literal.fold for literal in required):
            self._required = tuple([literal.text for literal in required])
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
        """An expression that matches whenever this one does, and has few states together with many others."""
        self.line = line_of(pattern, tree) if self.is_whole else line_of_literals(guard)
        """The lines in which `asked_for` can be searched for separately."""
        self._leading = leading(tree) if self.explodes else None
        self._longest = longest(tree) if tree is not None and self.explodes else None
        self.work_per_byte = work_per_byte
        self.text_chars_max = limits.pattern_text_chars_max
        self.text_bytes_max: int = limits.pattern_work_max // work_per_byte

    def found_in(self, text: str) -> bool:
        """Return whether the expression matches anywhere in the text.

        Never raises: a text that is too long or not Unicode does not match.
        """
        if self._in_lower is not None and text.isascii():
            bound = min(self.text_chars_max, self.text_bytes_max)
            return len(text) <= bound and self._in_lower(text.lower())
        if self._required:
            # This mostly decides, in a tenth of the time of a search.
            for literal in self._required:
                if literal in text:
                    break
            else:
                return False
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
        """Return whether the text is too long for this expression to be tried."""
        if len(text) > self.text_chars_max:
            return True
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        return size > self.text_bytes_max

    def work(self, text: str, size: int) -> int:
        """Return the maximum work of the exploding expression for a text of `size` bytes."""
        if self.too_long(text):
            return 0
        # States are built only during a possible match, so only after a literal that begins a match.
        if self._leading is not None and self._longest is not None and size == len(text):
            size = min(size, self._longest * sum(beginnings(literal, text) for literal in self._leading))
        return size * self.work_per_byte

    def _compiled(self, size: int) -> Callable[[bytes], bool]:
        """Return the search function, compiled with the memory for `size` instructions."""
        if self.explodes:
            # This search simulates the automaton instead of building more and more states.
            memory_bytes = EXPLODING_MEMORY_BYTES_MAX + EXPLODING_INSTRUCTION_MEMORY_BYTES * size
            search = re2.compile(self._pattern, _options(memory_bytes)).search
            return lambda text: search(text) is not None
        # A set scans the text only forwards, and disregards the order of preference.
        made = _made_set([self._pattern], MEMORY_BYTES_MAX + INSTRUCTION_MEMORY_BYTES * size)
        assert made is not None, "a harmless expression fits into its memory"
        match = made.Match

        def find(text: bytes) -> bool:
            found = match(text)
            assert found, "a harmless expression never runs out of memory"
            return len(found) > 1

        return find


def judged_pattern(pattern: str, limits: PatternLimits) -> CompiledPattern:
    """Compile the expression of a new condition. Raises PatternError.

    It first checks that RE2 accepts the expression, and that it is not too large.
    """
    enough_bytes = JUDGED_MEMORY_BYTES + JUDGED_INSTRUCTION_MEMORY_BYTES * limits.pattern_program_max
    try:
        size = program_size(pattern, min(enough_bytes, MEMORY_BYTES_MAX))
    except PatternError as error:
        if not str(error).startswith(_RE2_GAVE_UP):
            raise
        size = None
    if size is None or size > limits.pattern_program_max:
        raise PatternError(
            f"it is too large: when compiled, at most {limits.pattern_program_max} steps are allowed"
        )
    return compile_pattern(pattern, limits)


@lru_cache(maxsize=COMPILED_PATTERNS_MAX)
def compile_pattern(pattern: str, limits: PatternLimits) -> CompiledPattern:
    """Compile an expression that was validated before. `pattern` has no unpaired surrogates.

    Its size is not checked, so lowering a limit does not invalidate stored expressions.
    """
    return CompiledPattern(pattern, limits)


def program_size(pattern: str, memory_bytes_max: int = MEMORY_BYTES_MAX) -> int:
    """Return the number of compiled instructions of an expression. Raises PatternError."""
    try:
        size: int = re2.compile(pattern, _options(memory_bytes_max)).programsize
    except re2.error as error:
        # RE2's message is in bytes.
        raise PatternError(error.args[0].decode("utf-8", "replace")) from None
    return size


def unicode_classes(pattern: str) -> int:
    r"""Return an upper bound of the number of classes such as `\pL`. RE2 parses each in about 100 µs."""
    return pattern.count(r"\p") + pattern.count(r"\P")


def compiled_set(patterns: list[str], memory_bytes_max: int) -> Callable[[bytes], list[int] | None] | None:
    """Return a function that finds the numbers of the expressions that match a text.

    The function returns None if it runs out of memory. The result is None if the memory is too small to
    compile.
    """
    made = _made_set(patterns, memory_bytes_max)
    if made is None:
        return None

    def match(text: bytes) -> list[int] | None:
        found: list[int] | None = made.Match(text)
        if found is not None:
            found.sort()
            # Remove the number of _ALWAYS.
            found.pop()
        return found

    return match


def _made_set(patterns: list[str], memory_bytes_max: int) -> "re2.Set | None":
    """Return the set of some expressions and _ALWAYS; None if the memory is too small to compile."""
    made = re2.Set.SearchSet(_options(memory_bytes_max))
    try:
        for pattern in (*patterns, _ALWAYS):
            made.Add(pattern)
        made.Compile()
    except re2.error:
        return None
    return made


def _options(memory_bytes_max: int) -> "re2.Options":
    """Return RE2's options. The memory affects the time of a search, never its result."""
    chosen = re2.Options()
    chosen.log_errors = False
    # A search without capturing groups is faster.
    chosen.never_capture = True
    chosen.max_mem = memory_bytes_max
    return chosen
