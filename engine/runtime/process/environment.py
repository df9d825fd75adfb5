"""What the processes of the service inherit of the environment in which it was started."""

import os
from collections.abc import Mapping, MutableMapping
from typing import Final

_NAMES: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONPYCACHEPREFIX"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONWARNINGS"),
        *("PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONFAULTHANDLER", "PYTHONTRACEMALLOC"),
        # How the main process writes to a terminal.
        *("TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
    }
)
_PREFIXES: Final = ("LC_", "MALLOC_", "RAY_")
_SECRET_PREFIXES: Final = ("RAY_REDIS_",)
"""The address and the password of a cluster's Redis, which only the cluster's head needs."""


_OF_TRACING: Final = "OTEL_"
"""The prefix of OpenTelemetry's own variables."""


def of_tracing(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of OpenTelemetry: only front ends need them, and some are secret."""
    return {name: value for name, value in environment.items() if name.startswith(_OF_TRACING)}


def keep_needed(environment: MutableMapping[str, str] = os.environ) -> None:
    """Remove every variable that neither the service nor Ray needs: any of them may be a secret.

    Workers and front ends serve strangers, and whoever reads a process's environment gets what is in it. The
    settings of the service go as well, since they have been read.
    """
    for name in list(environment):
        known = name in _NAMES or name.startswith(_PREFIXES)
        if not known or name.startswith(_SECRET_PREFIXES):
            del environment[name]
