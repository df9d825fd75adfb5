"""Protection of the embedded Ray: its own token, and ports on the loopback interface only.

Anyone who can reach Ray can run code as the service's user, so the environment cannot turn this off.
"""

import ipaddress
import logging
import os
import secrets
from pathlib import Path
from typing import Any, Final

import ray
from ray import _raylet
from ray._private import ray_constants

_core: Final[Any] = _raylet
"""Ray's compiled module, which is mostly untyped."""

_TOKEN_BYTES: Final = 32
_TOKEN_FILE_MODE: Final = 0o600

_WARNS_OF_TOKENS: Final = "ray._private.authentication.authentication_token_setup"
"""The logger that warns at each start that a token is required."""


def require_token(path: Path) -> None:
    """Make Ray require a new token, and write it to `path`, which must not exist yet.

    Ray's processes inherit the path in their environment, not the token. Must be called before Ray starts.
    """
    path.touch(_TOKEN_FILE_MODE, exist_ok=False)
    path.write_text(secrets.token_hex(_TOKEN_BYTES), "ascii")
    os.environ.pop("RAY_AUTH_TOKEN", None)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)}
    # Importing ray has read the environment already; read it again.
    _core.Config.initialize("")
    _core.AuthenticationTokenLoader.instance().reset_cache()
    logging.getLogger(_WARNS_OF_TOKENS).setLevel(logging.ERROR)


def listen_on_loopback() -> None:
    """Make Ray bind every port to the loopback interface, as it does by default on Windows and macOS.

    Must be called before Ray starts.
    """
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"
    ray_constants.ENABLE_RAY_CLUSTER = False


def check_guarded() -> None:
    """Raise RuntimeError unless the running Ray requires the token and has a loopback address."""
    if _core.get_authentication_mode() != _core.AuthenticationMode.TOKEN:
        raise RuntimeError("it does not require a token")
    address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    if not ipaddress.ip_address(address).is_loopback:
        raise RuntimeError(f"it listens at {address} and not on the loopback interface alone")
