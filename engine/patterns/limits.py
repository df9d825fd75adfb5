"""The limits on regular expressions. Units are in the names."""

from dataclasses import dataclass


# Without slots, because it is pickled by field names, to which later releases may add.
@dataclass(frozen=True, kw_only=True)
class PatternLimits:
    """The limits on the cost of one pattern, and of all patterns of a condition, an event and a detector."""

    pattern_program_max: int = 5_000
    """Instructions of a compiled pattern, as counted by RE2. A larger one is refused with 1302."""
    pattern_text_chars_max: int = 32 * 1024
    """A longer text matches no pattern, which message 2004 reports."""
    pattern_work_max: int = 1_000_000
    """Work of a pattern for each byte, times the bytes of a text. Beyond this limit, the text is too long for
    the pattern. The work is 1, except for exploding patterns, which can make RE2 build ever more states:
    theirs is about the number of their characters with repetitions written out. Within the limit, a search
    takes at most about 10 ms, and nearly always microseconds."""
    pattern_event_work_max: int = 2_000_000
    """The same for all exploding patterns together that may match in the texts of one event."""
    pattern_event_bytes_max: int = 10_000_000
    """The bytes of the texts of one event, times the patterns that are tried on each. Beyond this limit, no
    pattern is tried on the texts with the most. A byte takes 0.5 to 2.5 ns."""
    condition_preparation_max: int = 600_000
    """Work of checking and compiling the patterns of one condition, in units of at most about 0.5 µs. A
    pattern takes some hundreds; one whose states must be counted takes thousands or tens of thousands. Beyond
    this limit, the condition is refused with 1302."""
    detector_preparation_max: int = 12_000_000
    """The same for all patterns of a detector's rules, each once. Each activation compiles them. Beyond
    this limit, a rule is refused with 1400. A detector that was stored under a higher limit is still
    activated, which takes about 1 ms for each exploding pattern. The limit also bounds the memory of RE2's
    states: hostile texts can make it keep 125 bytes for each unit."""
