"""How many files this process may have open, and how many connections that leaves room for."""

import logging
import resource
from typing import Final

from api.settings import Settings

_log = logging.getLogger(__name__)

_LIMIT_MAX: Final = 65_536
"""More is not asked for: some programs that are started close every number up to their limit."""
_OWN: Final = 128
"""What the process itself has open, Ray's connections among it; half of that is usual."""
_OF_DETECTOR: Final = 4
"""What an awake detector takes; two are usual."""


def raise_limit() -> None:
    """Raise the limit that is in force to the one that may be had, for this process and those it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, _LIMIT_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_max(settings: Settings) -> int:
    """Give the number of connections that there may be: as set, or fewer, and then the log says so.

    Without descriptors for itself the service could wake no detector, and would close whatever connects.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return settings.max_connections
    own = _OWN + _OF_DETECTOR * settings.max_resident
    room = max(soft - own, soft // 2, 1)
    if room < settings.max_connections:
        _log.warning(
            "at most %d connections are served at once, not %d: this process may have %d files open, %d of "
            "them for itself; see `ulimit -n`",
            room,
            settings.max_connections,
            soft,
            soft - room,
        )
    return min(room, settings.max_connections)
