"""Networks of IP addresses, which the language matches as text."""

from ipaddress import ip_network
from typing import Final

_IPV4: Final = 4
_OCTET_BITS: Final = 8


def is_network(text: str) -> bool:
    """Return whether a text is a network with its prefix, as in `10.0.0.0/8`."""
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def pattern_of_network(text: str) -> str | None:
    """Return the regular expression for an IPv4 network of whole octets, None for any other text."""
    if not is_network(text):
        return None
    found = ip_network(text, strict=False)
    if found.version != _IPV4 or found.prefixlen % _OCTET_BITS or not found.prefixlen:
        return None
    octets = str(found.network_address).split(".")[: found.prefixlen // _OCTET_BITS]
    return "^" + r"\.".join(octets) + ("$" if len(octets) == _IPV4 else r"\.")
