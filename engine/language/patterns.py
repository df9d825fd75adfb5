"""Regular expressions from strangers: RE2 within bounds, so that no single search takes long."""

from functools import lru_cache

import re2

from engine.language.limits import Limits

MEMORY_BYTES_MAX = 1024 * 1024
"""What RE2 may use for one expression. Past it RE2 searches by its slower method; the answer is the same."""

UNICODE_CLASSES_MAX = 1_000
"""How many classes such as `\\pL` the patterns of one condition may have: a tenth of a second's work."""

COMPILED_PATTERNS_MAX = 1024
"""How many compiled expressions are kept for those who ask again."""


class PatternError(Exception):
    """RE2 refuses the expression, or it is larger than the limits allow. The text says why, in words."""


class CompiledPattern:
    """A regular expression that is ready to be tried on texts.

    A search costs at most some 10 ns for each instruction of the program and byte of the text, whatever the
    expression (measured over expressions made to be slow). So a large expression takes only short texts.
    """

    __slots__ = ("_search", "program_size", "text_bytes_max", "text_chars_max")

    def __init__(self, expression: "re2._Regexp", limits: Limits) -> None:
        self._search = expression.search
        self.program_size: int = expression.programsize
        self.text_chars_max = limits.pattern_text_chars_max
        self.text_bytes_max: int = limits.pattern_work_max // max(1, self.program_size)

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


@lru_cache(maxsize=COMPILED_PATTERNS_MAX)
def compile_pattern(pattern: str, limits: Limits) -> CompiledPattern:
    """Give the compiled expression, or raise PatternError. `pattern` holds whole characters only."""
    try:
        expression = re2.compile(pattern, _options())
    except re2.error as error:
        raise PatternError(_reason(error)) from None
    size = expression.programsize
    if size > limits.pattern_program_max:
        raise PatternError(
            f"it is too large: {size} steps when compiled, at most {limits.pattern_program_max} are allowed"
        )
    return CompiledPattern(expression, limits)


def unicode_classes(pattern: str) -> int:
    r"""Give how many classes such as `\pL` a pattern has, or more: each takes RE2 some 100 µs to read."""
    return pattern.count(r"\p") + pattern.count(r"\P")


def _options() -> "re2.Options":
    options = re2.Options()
    options.log_errors = False
    # A search that need not say where its groups lie is the faster.
    options.never_capture = True
    options.max_mem = MEMORY_BYTES_MAX
    return options


def _reason(error: Exception) -> str:
    """Give RE2's own words, which it leaves as bytes."""
    reason = error.args[0] if error.args else "no reason given"
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
