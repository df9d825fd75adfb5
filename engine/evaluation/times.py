"""Times that no event has, in microseconds since 1970: events are within 8.64e18 of it."""

from typing import Final

NEVER: Final = -(1 << 63)
"""Before any event."""

FOREVER: Final = (1 << 63) - 1
"""After any event."""
