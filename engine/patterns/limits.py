"""The bounds on regular expressions. Units stand in the names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternLimits:
    """What patterns may cost: each by itself, those of a condition, of an event, and of a detector."""

    pattern_program_max: int = 5_000
    """Instructions of a compiled pattern, as RE2 counts them. A larger one is refused with 1302."""
    pattern_text_chars_max: int = 32 * 1024
    """A longer text matches no pattern, and the reply says so (message 2004)."""
    pattern_work_max: int = 1_000_000
    """Work of a pattern for each byte times bytes of a text: past it the text is too long for that pattern.
    The work is 1, except for patterns that can make RE2 build ever more states: for those it is about as many
    as they have characters when their repetitions are written out. Within it a search takes at most some
    10 ms, and nearly always microseconds."""
    pattern_event_work_max: int = 2_000_000
    """The same for all patterns of that kind together that may be in the texts of one event."""
    pattern_event_bytes_max: int = 10_000_000
    """Bytes of the texts of one event, times the patterns that are tried on each: past it, none is tried on
    the texts with the most. A byte takes 0.5 to 2.5 ns."""
    condition_preparation_max: int = 600_000
    """Work of checking and compiling the patterns of one condition, in units of at most some 0.5 µs: some
    hundreds for a pattern, thousands or tens of thousands for one whose states must be counted. Past it the
    condition is refused with 1302."""
    detector_preparation_max: int = 12_000_000
    """The same for all distinct patterns of a detector's rules, which are compiled at each activation. Past it
    a rule is refused with 1400. A detector that was stored under a higher bound is still activated, which
    takes about 1 ms for each exploding pattern."""
