"""Regular expressions from strangers: RE2 within bounds, so that no single search takes long."""

from functools import lru_cache

import re2

from engine.language.limits import Limits
from engine.patterns.cost import Judged, is_plain, is_vague, judged, places
from engine.patterns.syntax import Tree, read

MEMORY_BYTES_MAX = 1024 * 1024
"""What RE2 may use for one expression. Past it RE2 searches by its slower method; the answer is the same."""

LARGE_STEPS_MIN = 500
STEP_MEMORY_BYTES = 1024
"""What a large but harmless expression may use beyond that for each step: its states are few, but large."""

EXPLODING_MEMORY_BYTES_MAX = 256 * 1024
"""The same for expressions that could use any amount. The sooner RE2 gives up, the less it takes in all."""

UNICODE_CLASSES_MAX = 1_000
"""How many classes such as `\\pL` the patterns of one condition may have: a tenth of a second's work."""

COMPILED_PATTERNS_MAX = 4096
"""How many expressions are kept for those who ask again: more than a condition can have."""

_PLAIN_PREPARATION, _PLAIN_LETTER_PREPARATION = 100, 4
"""What the preparation of an expression that is one text takes, and for each of its characters."""
_PREPARATION, _LETTER_PREPARATION, _STEP_PREPARATION = 300, 20, 4
"""The same for any other one, and for each instruction that it has when compiled."""
_PLACE_STEPS = 4
"""About how many instructions a place of an expression has."""
REFUSED_PREPARATION = 20_000
"""What an expression took that was refused: RE2 may have written out much of it before."""


class PatternError(Exception):
    """RE2 refuses the expression, or it is larger than the limits allow. The text says why, in words."""


class CompiledPattern:
    """A regular expression that is ready to be tried on texts.

    A harmless one costs a nanosecond or two for each byte of a text. One that explodes costs at most some
    10 ns for each unit of its `work_per_byte`, whatever the text, and the larger that is, the shorter are the
    texts that it takes. All of it follows from the expression alone.
    """

    __slots__ = (
        "_expression",
        "_pattern",
        "explodes",
        "preparation",
        "text_bytes_max",
        "text_chars_max",
        "work_per_byte",
    )

    def __init__(self, pattern: str, limits: Limits) -> None:
        """RE2 compiles it when it is first tried or its size is asked for; that may raise PatternError."""
        self._pattern = pattern
        self._expression: re2._Regexp | None = None
        tree = read(pattern)
        found = Judged(explodes=True, steps=0) if tree is None else judged(tree)
        self.explodes = found.explodes
        self.work_per_byte = 1
        if found.explodes:
            vague = tree is None or is_vague(tree)
            self.work_per_byte = max(1, self.program_size if tree is None or vague else places(tree))
        self.text_chars_max = limits.pattern_text_chars_max
        self.text_bytes_max: int = limits.pattern_work_max // self.work_per_byte
        self.preparation = self._prepared(tree, found)
        """What it takes to judge and to compile the expression, in units of at most some 0.5 µs."""

    def _prepared(self, tree: Tree | None, found: Judged) -> int:
        length = len(self._pattern)
        if tree is not None and is_plain(tree):
            return _PLAIN_PREPARATION + _PLAIN_LETTER_PREPARATION * length
        size = self.program_size if tree is None or is_vague(tree) else _PLACE_STEPS * places(tree)
        return _PREPARATION + _LETTER_PREPARATION * length + _STEP_PREPARATION * size + found.steps

    @property
    def program_size(self) -> int:
        """How many instructions the expression has when compiled."""
        size: int = self._compiled().programsize
        return size

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
        found: object = self._compiled().search(encoded)
        return found is not None

    def too_long(self, text: str) -> bool:
        """Tell whether the text is longer than the texts on which this expression is tried."""
        if len(text) > self.text_chars_max:
            return True
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        return size > self.text_bytes_max

    def take(self, expression: "re2._Regexp") -> None:
        """Take the expression as RE2 has compiled it for somebody else."""
        if self._expression is None:
            if self.explodes:
                expression = _again(self._pattern, expression, EXPLODING_MEMORY_BYTES_MAX)
            elif expression.programsize > LARGE_STEPS_MIN:
                memory_bytes = MEMORY_BYTES_MAX + expression.programsize * STEP_MEMORY_BYTES
                expression = _again(self._pattern, expression, memory_bytes)
            self._expression = expression

    def _compiled(self) -> "re2._Regexp":
        """Give the expression as RE2 has it, compiled when it is first needed."""
        if self._expression is None:
            self.take(_compiled(self._pattern))
        return self._expression


def judged_pattern(pattern: str, limits: Limits) -> CompiledPattern:
    """Give the expression of a new condition, or raise PatternError.

    What RE2 refuses, and what is too large, is told before anything else is asked about it.
    """
    expression = _compiled(pattern)
    size = expression.programsize
    if size > limits.pattern_program_max:
        raise PatternError(
            f"it is too large: {size} steps when compiled, at most {limits.pattern_program_max} are allowed"
        )
    compiled = compile_pattern(pattern, limits)
    compiled.take(expression)
    return compiled


@lru_cache(maxsize=COMPILED_PATTERNS_MAX)
def compile_pattern(pattern: str, limits: Limits) -> CompiledPattern:
    """Give an expression that was judged before. `pattern` holds whole characters only.

    However large it is: a bound that was lowered is no reason to refuse what was stored before.
    """
    return CompiledPattern(pattern, limits)


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


def _compiled(pattern: str) -> "re2._Regexp":
    try:
        return re2.compile(pattern, options())
    except re2.error as error:
        raise PatternError(_reason(error)) from None


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
