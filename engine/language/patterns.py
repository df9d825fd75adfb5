"""Regular expressions from strangers: RE2 within bounds, so that no single search takes long."""

from functools import lru_cache

import re2

from engine.language.limits import Limits
from engine.language.pattern_cost import explodes, is_vague, places
from engine.language.pattern_syntax import read

MEMORY_BYTES_MAX = 1024 * 1024
"""What RE2 may use for one expression. Past it RE2 searches by its slower method; the answer is the same."""

LARGE_STEPS_MIN = 500
STEP_MEMORY_BYTES = 1024
"""What a large but harmless expression may use beyond that for each step: its states are few, but large."""

EXPLODING_MEMORY_BYTES_MAX = 256 * 1024
"""The same for expressions that could use any amount. The sooner RE2 gives up, the less it takes in all."""

UNICODE_CLASSES_MAX = 1_000
"""How many classes such as `\\pL` the patterns of one condition may have: a tenth of a second's work."""

COMPILED_PATTERNS_MAX = 1024
"""How many compiled expressions are kept for those who ask again."""


class PatternError(Exception):
    """RE2 refuses the expression, or it is larger than the limits allow. The text says why, in words."""


class CompiledPattern:
    """A regular expression that is ready to be tried on texts.

    A harmless one costs a nanosecond or two for each byte of a text. One that explodes costs at most some
    10 ns for each unit of its `work_per_byte`, whatever the text, and the larger that is, the shorter are the
    texts that it takes. All of it follows from the expression alone.
    """

    __slots__ = ("_search", "explodes", "program_size", "text_bytes_max", "text_chars_max", "work_per_byte")

    def __init__(self, expression: "re2._Regexp", explodes: bool, work_per_byte: int, limits: Limits) -> None:
        self._search = expression.search
        self.program_size: int = expression.programsize
        self.explodes = explodes
        self.work_per_byte = work_per_byte
        self.text_chars_max = limits.pattern_text_chars_max
        self.text_bytes_max: int = limits.pattern_work_max // work_per_byte

    def found_in(self, text: str) -> bool:
        """Tell whether the expression is found anywhere in the text.

        Never raises: a text that is too long, or that is not Unicode, holds no expression.
        """
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            return False
        if len(text) > self.text_chars_max or len(encoded) > self.text_bytes_max:
            return False
        found: object = self._search(encoded)
        return found is not None

    def too_long(self, text: str) -> bool:
        """Tell whether the text is longer than the texts on which this expression is tried."""
        if len(text) > self.text_chars_max:
            return True
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        return size > self.text_bytes_max


def judged_pattern(pattern: str, limits: Limits) -> CompiledPattern:
    """Give the compiled expression of a new condition, or raise PatternError."""
    compiled = compile_pattern(pattern, limits)
    size = compiled.program_size
    if size > limits.pattern_program_max:
        raise PatternError(
            f"it is too large: {size} steps when compiled, at most {limits.pattern_program_max} are allowed"
        )
    return compiled


@lru_cache(maxsize=COMPILED_PATTERNS_MAX)
def compile_pattern(pattern: str, limits: Limits) -> CompiledPattern:
    """Give the compiled expression, or raise PatternError. `pattern` holds whole characters only.

    However large it is: a bound that was lowered is no reason to refuse what was stored before.
    """
    try:
        expression = re2.compile(pattern, options())
    except re2.error as error:
        raise PatternError(_reason(error)) from None
    size = expression.programsize
    tree = read(pattern)
    if tree is not None and not explodes(tree):
        if size > LARGE_STEPS_MIN:
            expression = _again(pattern, expression, MEMORY_BYTES_MAX + size * STEP_MEMORY_BYTES)
        return CompiledPattern(expression, explodes=False, work_per_byte=1, limits=limits)
    work = max(1, size if tree is None or is_vague(tree) else places(tree))
    frugal = _again(pattern, expression, EXPLODING_MEMORY_BYTES_MAX)
    return CompiledPattern(frugal, explodes=True, work_per_byte=work, limits=limits)


def unicode_classes(pattern: str) -> int:
    r"""Give how many classes such as `\pL` a pattern has, or more: each takes RE2 some 100 µs to read."""
    return pattern.count(r"\p") + pattern.count(r"\P")


def options(memory_bytes_max: int = MEMORY_BYTES_MAX) -> "re2.Options":
    """Give how every expression is read. Memory changes what a search costs, never what it finds."""
    chosen = re2.Options()
    chosen.log_errors = False
    # A search that need not say where its groups lie is the faster.
    chosen.never_capture = True
    chosen.max_mem = memory_bytes_max
    return chosen


def _again(pattern: str, expression: "re2._Regexp", memory_bytes_max: int) -> "re2._Regexp":
    """Give the same expression with other memory to search in, if it can be compiled within that."""
    try:
        return re2.compile(pattern, options(memory_bytes_max))
    except re2.error:
        return expression


def _reason(error: Exception) -> str:
    """Give RE2's own words, which it leaves as bytes."""
    reason = error.args[0] if error.args else "no reason given"
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
