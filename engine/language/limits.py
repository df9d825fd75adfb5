"""Every bound that the engine holds its input to. Units stand in the names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one detector: on conditions, on event bodies, and on what it remembers.

    A condition past `text_bytes_max`, `nodes_max` or `depth_max` is refused with 1303, a pattern past
    `pattern_program_max` with 1302. A leaf has depth 1.
    """

    text_bytes_max: int = 64 * 1024
    nodes_max: int = 2_000
    depth_max: int = 64
    pattern_program_max: int = 5_000
    """Instructions of a compiled regular expression, as RE2 counts them."""
    pattern_text_chars_max: int = 32 * 1024
    """A longer text matches no pattern, and the reply says so (message 2004)."""
    pattern_work_max: int = 1_000_000
    """Work of a pattern for each byte times bytes of a text: past it the text is too long for that pattern.
    The work is 1, except for patterns that can make RE2 build ever more states: for those it is about as many
    as they have characters when their repetitions are written out. Within it a search takes at most some
    10 ms, and nearly always microseconds."""
    pattern_event_work_max: int = 2_000_000
    """The same for all patterns of that kind together that may be in the texts of one event."""

    condition_preparation_max: int = 600_000
    """Work of judging and compiling the patterns of one condition, in units of at most some 0.5 µs: some
    hundreds for a pattern, thousands or tens of thousands for one whose states must be counted. Past it the
    condition is refused with 1302."""
    detector_preparation_max: int = 12_000_000
    """The same for all different patterns of a detector's rules, which are prepared each time that it wakes.
    Past it a rule is refused with 1400."""
    pattern_event_bytes_max: int = 10_000_000
    """Bytes of the texts of one event, times the patterns that are tried on each: past it, none is tried on
    the texts with the most. A byte takes 0.5 to 2.5 ns."""

    body_depth_max: int = 64
    body_values_max: int = 1_000_000
    """Values in a body: each takes up to some 100 bytes when decoded, be it an empty object of one byte."""
    digits_max: int = 4_000
    batch_events_max: int = 10_000
    answer_bytes_max: int = 64 * 1024 * 1024
    """Of the answer to a batch. Events that it has no room for are not evaluated."""

    rules_max: int = 100_000
    keys_max: int = 1_000_000
    state_bytes_max: int = 1 << 30
    """What the live keys and all that is remembered for them may take in memory, as it is estimated."""
    late_ms_max: int = 300_000
    ahead_ms_max: int = 60_000


DEFAULT_LIMITS = Limits()
