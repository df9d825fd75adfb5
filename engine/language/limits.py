"""The bounds on everything that callers send. Units are in the names."""

from dataclasses import dataclass
from functools import cached_property

from engine.patterns.limits import PatternLimits


# Without slots: pickled by the names of the fields, which later releases may add to.
@dataclass(frozen=True, kw_only=True)
class Limits(PatternLimits):
    """The bounds of one detector: on conditions, on event bodies, and on what it remembers.

    A condition past `text_bytes_max`, `nodes_max` or `depth_max` is refused with 1303. A leaf has depth 1.
    """

    text_bytes_max: int = 64 * 1024
    nodes_max: int = 2_000
    depth_max: int = 64
    body_depth_max: int = 64
    body_values_max: int = 1_000_000
    """Values in a body. Each takes up to about 100 bytes when decoded, even an empty object."""
    event_values_max: int = 250_000
    """Values in an event of a batch, in its context, and in any other body. A member of an object counts as
    five, because its name takes longest. One call of the decoder takes all, for up to 50 ms."""
    digits_max: int = 4_000
    batch_events_max: int = 10_000
    answer_bytes_max: int = 64 * 1024 * 1024
    """The size of the answer to a batch. Events for which it has no room are not evaluated."""

    relation_body_bytes_max: int = 256 * 1024 * 1024
    """The size of a body that replaces a relation. What is being uploaded to a detector may be twice that."""
    rules_max: int = 100_000
    rules_bytes_max: int = 256 * 1024 * 1024
    """The size of all rules of a detector as JSON: conditions, sources and names."""
    keys_max: int = 1_000_000
    state_bytes_max: int = 1 << 30
    """The estimated memory of the live keys and of everything remembered for them."""
    relation_tuples_max: int = 1_000_000
    """Tuples in one stored relation."""
    relations_bytes_max: int = 1 << 30
    """The estimated memory of all stored relations."""
    firings_max: int = 10_000
    """The most firings that the feed of a detector keeps."""
    late_ms_max: int = 300_000
    ahead_ms_max: int = 60_000

    @cached_property
    def small_bytes(self) -> int:
        """The size up to which a body has no room for too many values or digits, or for what takes long."""
        return min(4_095, self.digits_max, self.event_values_max, self.body_values_max)


DEFAULT_LIMITS = Limits()
