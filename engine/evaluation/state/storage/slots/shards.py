"""Shards: very many keys in dicts of moderate size."""

import sys
from typing import Any, Final

SHARDS: Final = 251
"""The number of dicts for the slots of keys. A single dict pauses 21 ms when it grows at a million keys.

Python's hash of an integer is nearly the integer itself. So a shard is chosen by the hash of a tuple that
holds the key, modulo a prime: keys that are all multiples of one number are spread over all shards.
"""

_SHARD_BYTES_MIN: Final = 4096
_ENTRY_BYTES_MAX: Final = 150


def shrink(shard: dict[Any, int]) -> None:
    """Rebuild a dict that takes much more memory than its entries: deleting from it does not free any."""
    if sys.getsizeof(shard) > _SHARD_BYTES_MIN + _ENTRY_BYTES_MAX * len(shard):
        # The dict object is kept: a new one would take memory that is about to be freed.
        entries = list(shard.items())
        shard.clear()
        shard.update(entries)
