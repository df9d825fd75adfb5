"""The bounds on the messages about an event."""

from typing import Final

RELATIONS_NAMED_MAX: Final = 16
"""The most missing relations that the messages about an event name."""

NAME_CHARS_SHOWN: Final = 255
"""Messages shorten longer names of facts and relations."""

WARNING_BYTES_MAX: Final = 256 + 6 * NAME_CHARS_SHOWN
"""The most bytes of a warning about a relation or a text, as JSON."""
