"""The limits on everything that callers send. Units are in the names."""

from dataclasses import dataclass
from functools import cached_property

from engine.patterns.limits import PatternLimits


# Without slots, because it is pickled by field names, to which later releases may add.
@dataclass(frozen=True, kw_only=True)
class Limits(PatternLimits):
    """The limits of one detector: on conditions, on event bodies, and on its state.

    A condition beyond `text_bytes_max`, `nodes_max` or `depth_max` is refused with 1303. A leaf has depth 1.
    """

    text_bytes_max: int = 64 * 1024
    nodes_max: int = 2_000
    depth_max: int = 64
    body_depth_max: int = 64
    body_values_max: int = 1_000_000
    """Values in a body. Each takes up to about 100 bytes when decoded, even an empty object."""
    event_values_max: int = 250_000
    """Values in an event of a batch, in its context, and in any other body. A member of an object counts as
    five, because its name takes longest. One call of the decoder takes them all, for up to 50 ms."""
    digits_max: int = 4_000
    batch_events_max: int = 10_000
    answer_bytes_max: int = 64 * 1024 * 1024
    """The size of the answer to a batch. Events without room in it are not evaluated."""

    relation_body_bytes_max: int = 256 * 1024 * 1024
    """The size of a body that replaces a relation. All uploads in progress to a detector may take twice
    that."""
    rules_max: int = 100_000
    rules_bytes_max: int = 256 * 1024 * 1024
    """The size of all rules of a detector as JSON: conditions, sources and names."""
    keys_max: int = 1_000_000
    state_bytes_max: int = 1 << 30
    """The estimated size of the live keys and their state."""
    relation_tuples_max: int = 1_000_000
    """Tuples in one stored relation."""
    relations_bytes_max: int = 1 << 30
    """The estimated size of all stored relations."""
    firings_max: int = 10_000
    """The maximum number of firings in the feed of a detector."""
    late_ms_max: int = 300_000
    ahead_ms_max: int = 60_000

    @cached_property
    def small_bytes(self) -> int:
        """Up to this size, a body has no room for too many values or digits, or for values that take long."""
        return min(4_095, self.digits_max, self.event_values_max, self.body_values_max)


DEFAULT_LIMITS = Limits()
