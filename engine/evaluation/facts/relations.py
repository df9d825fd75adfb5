"""Relations, and networks of IP addresses: those that rules name, and those in relations."""

from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, Final, Protocol

from engine.evaluation.facts.values import key_of, part_of_key
from engine.language.validation.networks import ADDRESS_CHARS_MAX, address_number, network_of

ADDRESSES_KEPT: Final = 16_384
"""More than an array may have elements. Otherwise each rule that walks through a long one parses all anew."""
NETWORKS_KEPT: Final = 256
_NOTHING: Final[Mapping[str, Any]] = {}
_PLAIN_MAX: Final = 1 << 60
"""Larger numbers are not used as keys, because a caller could compute many with the same hash."""

_parsed = lru_cache(ADDRESSES_KEPT)(address_number)


def address(value: Any) -> int | None:
    """Return an IP address as a number, or None for any other value."""
    return _parsed(value) if type(value) is str and len(value) <= ADDRESS_CHARS_MAX else None


def network_key(number: int) -> Any:
    """Return the hashable form of a network's number."""
    return number if number < _PLAIN_MAX else key_of(number)


class _HasAddresses(Protocol):
    def have(self, address: int) -> bool:
        """Return whether an address is in one of these networks."""


class Networks:
    """A set of networks. An address costs one look-up for each length of their prefixes."""

    __slots__ = ("_keys", "_shifts")

    def __init__(self, texts: Iterable[str]) -> None:
        """Take networks as texts. Other texts are ignored."""
        networks = [found for text in texts if (found := network_of(text)) is not None]
        self._shifts = sorted({network.shift for network in networks})
        self._keys = {network_key(network.key) for network in networks}

    def have(self, address: int) -> bool:
        """Return whether an address is in one of them."""
        keys = self._keys
        for shift in self._shifts:
            number = address >> shift
            if (number if number < _PLAIN_MAX else key_of(number)) in keys:
                return True
        return False


@lru_cache(NETWORKS_KEPT)
def networks_of(texts: tuple[str, ...]) -> Networks:
    """Return the networks of a condition."""
    return Networks(texts)


class _Stored(Protocol):
    """A relation stored by a detector."""

    @property
    def rows(self) -> Container[Any]:
        """Its tuples."""

    @property
    def networks(self) -> _HasAddresses:
        """Its tuples that are networks."""


class Relations:
    """The relations that an event sees: those in its context, and stored ones with other names.

    Each is read at most once.
    """

    __slots__ = ("_networks", "_read", "_stored", "sent")

    def __init__(self, sent: Mapping[str, Any], stored: Mapping[str, _Stored] = _NOTHING) -> None:
        self.sent, self._stored = sent, stored
        self._read: dict[str, Container[Any]] = {}
        self._networks: dict[str, _HasAddresses] = {}

    def lies_in(self, relation: str, address: int) -> bool:
        """Return whether an address is in a network of the relation, given as a tuple of one text."""
        if relation not in self._networks:
            self._networks[relation] = self._networks_of(relation)
        return self._networks[relation].have(address)

    def _networks_of(self, relation: str) -> _HasAddresses:
        if relation not in self.sent and relation in self._stored:
            return self._stored[relation].networks
        rows = _tuples(self.sent.get(relation))
        return Networks([row[0] for row in rows if len(row) == 1 and type(row[0]) is str])

    def _tuples(self, relation: str) -> Container[Any]:
        if relation not in self._read:
            if relation not in self.sent and relation in self._stored:
                self._read[relation] = self._stored[relation].rows
            else:
                self._read[relation] = _tuples(self.sent.get(relation))
        return self._read[relation]

    def holds(self, relation: str, *values: Any) -> bool:
        """Return whether the relation contains the tuple of `values`; False if one of them is missing."""
        row = tuple([value if type(value) is str else part_of_key(key_of(value)) for value in values])
        return None not in row and row in self._tuples(relation)


def _tuples(sent: Any) -> frozenset[Any]:
    """Return the tuples of a relation in a context; none if it is malformed."""
    if type(sent) is not list:
        return frozenset()
    rows = [element if type(element) is list else [element] for element in sent]
    kinds = set(map(type, chain.from_iterable(rows)))
    if kinds <= {str}:
        return frozenset(map(tuple, rows))
    if not kinds <= _SCALARS:
        return frozenset()
    return frozenset(
        [tuple([one if type(one) is str else part_of_key(key_of(one)) for one in row]) for row in rows]
    )


_SCALARS: Final = frozenset({str, int, float, bool})
