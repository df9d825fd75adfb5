"""IP addresses and networks as texts, and as numbers that show whether an address is in a network.

The number of an address begins with a mark of its version. The number of a network is the common prefix of
the numbers of all its addresses, so an address is in it if and only if `address >> shift == key`, whatever
the versions. An IPv4-mapped IPv6 address or network has the number of the IPv4 one.
"""

from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NamedTuple

ADDRESS_CHARS_MAX: Final = 45
"""Longer texts are not addresses. `0000:0000:0000:0000:0000:ffff:255.255.255.255` has this length."""

_FOUR_BITS: Final = 32
_SIX_BITS: Final = 128
_FOUR: Final = 2 << _FOUR_BITS
_SIX: Final = 3 << _SIX_BITS
_MAPPED: Final = 0xFFFF
"""The first 96 bits of an IPv4-mapped IPv6 address."""


class Network(NamedTuple):
    """The addresses with a common prefix."""

    shift: int
    """The number of bits that may differ."""
    key: int


def address_number(text: str) -> int | None:
    """Return the number of an address; None for any other text, including an address with a zone."""
    if ":" not in text:
        try:
            return _FOUR | int(IPv4Address(text))
        except AddressValueError:
            return None
    try:
        number = int(IPv6Address(text))
    except AddressValueError:
        return None
    if "%" in text:
        return None
    is_mapped = number >> _FOUR_BITS == _MAPPED
    return _FOUR | number & (1 << _FOUR_BITS) - 1 if is_mapped else _SIX | number


def network_of(text: str) -> Network | None:
    """Return the network of a text such as `10.0.0.0/8`, or of one address; None for any other text.

    Bits after the prefix are ignored.
    """
    base, slash, digits = text.partition("/")
    number = address_number(base)
    if number is None:
        return None
    bits = _SIX_BITS if ":" in base else _FOUR_BITS
    if slash and not (digits.isascii() and digits.isdigit()):
        return None
    length = digits.lstrip("0") or "0"
    shift = bits - int(length) if slash and len(length) <= len("128") else 0
    if shift < 0 or len(length) > len("128"):
        return None
    if bits == _SIX_BITS and number < _SIX and shift > _FOUR_BITS:
        # Not all of its addresses are IPv4-mapped.
        number = _SIX | _MAPPED << _FOUR_BITS
    return Network(shift, number >> shift)


def shift_of(key: int) -> int:
    """Return the number of bits that may differ, given the number of a network."""
    is_six = key >> (key.bit_length() - len("11")) == _SIX >> _SIX_BITS
    return (_SIX if is_six else _FOUR).bit_length() - key.bit_length()


def why_no_network(text: str) -> str:
    """Return what is wrong with a text that is not a network, as the end of a message."""
    base, slash, _ = text.partition("/")
    if "%" in base:
        return "; an address with a zone is in no network"
    if slash and address_number(base) is not None:
        bits = _SIX_BITS if ":" in base else _FOUR_BITS
        return f"; the number of bits behind the slash is from 0 to {bits}"
    return ""


def is_network(text: str) -> bool:
    """Return whether a text is a network with its prefix, as in `10.0.0.0/8`."""
    return "/" in text and network_of(text) is not None
