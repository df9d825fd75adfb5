"""TLS between machines, with the certificates that Ray itself uses there."""

import os
import ssl
from collections.abc import Mapping
from typing import Final

_NO: Final = ("", "0", "false")
_CERTIFICATE: Final = "RAY_TLS_SERVER_CERT"
_KEY: Final = "RAY_TLS_SERVER_KEY"
_AUTHORITY: Final = "RAY_TLS_CA_CERT"

VARIABLES: Final = frozenset({"RAY_USE_TLS", _CERTIFICATE, _KEY, _AUTHORITY})


def required(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether Ray encrypts its traffic, so that ours between machines must be encrypted too."""
    return environment.get("RAY_USE_TLS", "").lower() not in _NO


def server_context(environment: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """Return the context of a process that listens; it asks for a certificate too. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return _with_certificates(context, environment)


def client_context(environment: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """Return the context of a process that connects. Raises OSError.

    Nodes come and go by address, so their names are not checked, only that the cluster's authority knows
    them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return _with_certificates(context, environment)


def _with_certificates(context: ssl.SSLContext, environment: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context.load_cert_chain(environment[_CERTIFICATE], environment[_KEY])
        context.load_verify_locations(environment[_AUTHORITY])
    except KeyError as error:
        raise OSError(f"RAY_USE_TLS is set, and {error.args[0]} is not") from None
    return context
