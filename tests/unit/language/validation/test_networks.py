"""Addresses and networks as numbers mean what Python's `ipaddress` says."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import example, given, strategies

from engine.language.validation.networks import (
    ADDRESS_CHARS_MAX,
    address_number,
    network_of,
    shift_of,
    why_no_network,
)

# Close together, so that prefixes of every length tell some of them apart.
NUMBERS = strategies.sampled_from(range(0, 256, 17)).map((0x80_01_02_03).__xor__)
PREFIXES = strategies.sampled_from([0, 0xFFFF << 32, 0xFFFE << 32, 0x2001_0DB8 << 96, 1 << 127, 3 << 126])
FOUR = strategies.one_of(NUMBERS, strategies.integers(0, (1 << 32) - 1)).map(IPv4Address)
SIX = strategies.builds(int.__or__, PREFIXES, NUMBERS).map(IPv6Address)


def as_four(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def lies_in(address: IPv4Address | IPv6Address, network: IPv4Network | IPv6Network) -> bool:
    mapped = as_four(network.network_address)
    if network.prefixlen >= 96 and isinstance(mapped, IPv4Address):
        network = IPv4Network((mapped, network.prefixlen - 96))
    return as_four(address) in network


@given(FOUR | SIX, FOUR | SIX, strategies.integers(0, 128))
@example(IPv4Address("128.1.2.3"), IPv6Address("::ffff:128.1.2.3"), 100)
@example(IPv6Address("::1"), IPv6Address("::"), 95)
@example(IPv6Address("::ffff:128.1.2.3"), IPv6Address("::ffff:128.1.2.3"), 96)
@example(IPv6Address("::ffff:128.1.2.3"), IPv6Address("::ffff:128.1.2.3"), 95)
@example(IPv6Address("::fffe:128.1.2.3"), IPv6Address("::ffff:128.1.2.3"), 95)
@example(IPv6Address("::fffe:128.1.2.3"), IPv6Address("::ffff:128.1.2.3"), 97)
def test_an_address_lies_in_a_network(
    address: IPv4Address | IPv6Address, base: IPv4Address | IPv6Address, length: int
) -> None:
    text = f"{base}/{min(length, base.max_prefixlen)}"
    network, number = network_of(text), address_number(str(address))
    assert network is not None
    assert number is not None
    assert (number >> network.shift == network.key) == lies_in(address, ip_network(text, strict=False))
    assert shift_of(network.key) == network.shift


@pytest.mark.parametrize("text", ["10.0.0.1", "::1", "0000:0000:0000:0000:0000:ffff:255.255.255.255"])
def test_an_address_is_the_network_of_it_alone(text: str) -> None:
    network = network_of(text)
    assert network is not None
    assert network == (0, address_number(text)) == network_of(f"{text}/{ip_address(text).max_prefixlen:09}")
    assert len(text) <= ADDRESS_CHARS_MAX


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.0.0/33", "; the number of bits behind the slash is from 0 to 32"),
        ("10.0.0.0/1000", "; the number of bits behind the slash is from 0 to 32"),
        ("10.0.0.0/-1", "; the number of bits behind the slash is from 0 to 32"),
        ("10.0.0.0/²", "; the number of bits behind the slash is from 0 to 32"),
        ("::1/129", "; the number of bits behind the slash is from 0 to 128"),
        ("fe80::1%eth0/64", "; an address with a zone is in no network"),
        ("office/24", ""),
        ("10.0.0", ""),
    ],
)
def test_what_is_no_network_says_why(text: str, why: str) -> None:
    assert network_of(text) is None
    assert why_no_network(text) == why
