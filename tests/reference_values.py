"""The executable specification of names and values: look-up, and equality that distinguishes types.

It shares no code with the engine. None is the value of a missing fact, like JSON's null.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any


def look_up(name: str, fields: Mapping[str, Any], variables: Mapping[str, Any]) -> Any:
    """Return the value of a name: in each object, follow the longest run of parts that is one of its keys."""
    found: Any = variables if name.startswith("$") else fields
    parts = name.removeprefix("$").split(".")
    while parts:
        for end in range(len(parts), 0, -1) if kind(found) == "object" else ():
            key = ".".join(parts[:end])
            if key in found:
                found, parts = found[key], parts[end:]
                break
        else:
            return None
    return found


KINDS = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}


def kind(value: Any) -> str:
    """Return the JSON type of a value. Python's True is an int, JSON's is not a number."""
    return KINDS.get(type(value)) or ("object" if isinstance(value, dict) else "array")


def scalar(value: Any) -> bool:
    """Return whether a value is a string, a number or a boolean."""
    return kind(value) in ("string", "number", "boolean")


def equal(one: Any, other: Any) -> bool:
    """Typed equality: `1` equals `1.0`, but neither `true` nor `"1"`."""
    both = kind(one)
    if both != kind(other):
        return False
    if both == "array":
        return len(one) == len(other) and all(map(equal, one, other))
    if both == "object":
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return bool(one == other)


def among(value: Any, values: Iterable[Any]) -> bool:
    """Return whether some element equals the value."""
    return any(equal(value, element) for element in values)


def address(text: Any) -> IPv4Address | IPv6Address | None:
    """Return the IP address of a text. IPv4-mapped ones count as IPv4; one with a zone is not an address."""
    try:
        found = ip_address(text) if kind(text) == "string" and "%" not in text else None
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def network(text: Any) -> tuple[int, int, int] | None:
    """Return the version, the prefix and its length of an address or a network in CIDR form."""
    base, slash, length = text.partition("/") if kind(text) == "string" else ("", "", "")
    found, is_six = address(base), ":" in base
    bits = 128 if is_six else 32
    if found is None or (slash and not (length.isascii() and length.isdigit() and int(length) <= bits)):
        return None
    prefix = int(length) if slash else bits
    whole = int(ip_address(base)) >> (bits - prefix)
    if is_six and found.version == 4 and prefix >= 96:
        return 4, int(found) >> (128 - prefix), prefix - 96
    return (6 if is_six else 4), whole, prefix


def lies_in(found: IPv4Address | IPv6Address, networks: Iterable[Any]) -> bool:
    """Return whether an address is in one of the networks. Invalid networks have no addresses."""
    for version, prefix, length in filter(None, map(network, networks)):
        if version == found.version and int(found) >> (found.max_prefixlen - length) == prefix:
            return True
    return False
