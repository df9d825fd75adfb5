"""The limit on file descriptors, and the number of connections that it allows."""

import logging
import resource
from typing import Final

from api.settings import Settings

_log = logging.getLogger(__name__)

_LIMIT_MAX: Final = 65_536
"""The highest limit that is set: some child programs close every descriptor up to their limit."""
_OWN: Final = 160
"""The descriptors of the process itself: those of its listening socket and Ray's connections included; two
thirds as many are usual."""
_OF_WORKER: Final = 4
"""The file descriptors for a detector worker; usually two."""


def raise_limit() -> None:
    """Raise the soft limit to the hard limit, for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, _LIMIT_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_max(settings: Settings) -> int:
    """Return the maximum number of connections: the setting, or what the descriptors allow, with a warning.

    Some descriptors are kept for the process itself, which could not activate detectors without them.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return settings.max_connections
    own = _OWN + _OF_WORKER * -(-settings.max_resident // settings.detectors_per_worker)
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
