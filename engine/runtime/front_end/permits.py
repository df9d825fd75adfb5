"""Permits: what tokens may do, as a front end decides it locally; and the rates of tokens."""

import time
from typing import Final

from engine.runtime.contract.errors import TOO_MANY_WAIT, DetectorUnavailable
from engine.runtime.contract.tokens import FULL, TOKEN_DETECTORS_MAX, Grant, KnownToken

_ROUNDING: Final = 0.001
"""A fraction of an event, for which no caller has to wait."""


class Rate:
    """The token bucket of a token with a rate; it holds the events of one second.

    A batch larger than the bucket is admitted when the bucket is full, and makes the next ones wait longer.
    Events spent at other front ends are taken out as soon as they are known.
    """

    def __init__(self, per_s: float, now_s: float) -> None:
        self.per_s = per_s
        self._most = max(1.0, per_s)
        self._left = self._most
        self._at_s = now_s
        self.spent = 0
        """The events since the last call of `others`."""
        self._seen_s: float | None = None
        """What all front ends have spent, according to the last call of `others`."""

    def take(self, events: int, now_s: float) -> float:
        """Take events and return 0 if they may be evaluated now; else return the seconds until then."""
        self._left = min(self._most, self._left + (now_s - self._at_s) * self.per_s)
        self._at_s = now_s
        missing = min(events, self._most) - self._left
        if missing > _ROUNDING:
            return missing / self.per_s
        self._left -= events
        self.spent += events
        return 0.0

    def others(self, reported: int, spent_s: float, owed_s: float) -> None:
        """Take out the events that were spent elsewhere.

        All front ends have spent `spent_s` seconds of the rate and owe `owed_s`, `reported` of it here.
        """
        self.spent -= reported
        reported_s = reported / self.per_s
        if self._seen_s is None:
            self._left -= (owed_s - reported_s) * self.per_s
        elif spent_s >= self._seen_s:
            self._left -= (spent_s - self._seen_s - reported_s) * self.per_s
        self._seen_s = spent_s


class Permit:
    """What a token may do at this front end."""

    def __init__(self, token: KnownToken, now_s: float = 0.0) -> None:
        self.token = token
        self.known_as = token.id or "bootstrap"
        """Its name in the log."""
        grant = token.grant
        self.is_full = grant == FULL
        """Whether it has no bounds."""
        self._scopes = grant.scopes
        self._detectors = None if grant.detectors is None else set(grant.detectors)
        self.expires_at_ms = grant.expires_at_ms
        self.rate = None if grant.events_per_s is None else Rate(grant.events_per_s, now_s)

    def renew(self, token: KnownToken) -> None:
        """Update the token, which can only have gained detectors."""
        self.token = token
        if self._detectors is not None:
            self._detectors |= token.grant.detectors or frozenset()

    def may(self, scope: str) -> bool:
        """Whether the token has a scope."""
        return self._scopes is None or scope in self._scopes

    @property
    def detectors(self) -> frozenset[str] | None:
        """The ids of the detectors that it may use; None for all."""
        return None if self._detectors is None else frozenset(self._detectors)

    def sees(self, detector_id: str) -> bool:
        return self._detectors is None or detector_id in self._detectors

    @property
    def grant(self) -> Grant:
        """The token's grant, including the detectors that it has just created here."""
        given = self.token.grant
        return Grant(given.scopes, self.detectors, given.expires_at_ms, given.events_per_s)

    @property
    def is_expired(self) -> bool:
        return self.expires_at_ms is not None and time.time() * 1000 >= self.expires_at_ms

    @property
    def owner(self) -> str:
        """The id of the token if it is limited to some detectors: it is granted those that it creates."""
        return "" if self._detectors is None else self.token.id

    @property
    def has_room(self) -> bool:
        """Whether the token can be granted another detector."""
        return self._detectors is None or len(self._detectors) < TOKEN_DETECTORS_MAX

    def made(self, detector_id: str) -> None:
        """Note a detector that the token has created."""
        if self._detectors is not None:
            self._detectors.add(detector_id)

    def spend(self, events: int) -> None:
        """Count events to be evaluated now. Raises DetectorUnavailable 1401 beyond the token's rate."""
        if self.rate is not None and (wait_s := self.rate.take(events, time.monotonic())):
            message = f"the token may send {self.rate.per_s:g} events a second; nothing was evaluated"
            raise DetectorUnavailable(TOO_MANY_WAIT, message, retry_after_s=wait_s)


UNBOUNDED: Final = Permit(KnownToken(""))
"""The permit of a caller that may do everything and has no stored token."""


class Debts:
    """What each token has spent, and what it still owes for that, in seconds of its rate."""

    def __init__(self) -> None:
        self._spent_s: Final = dict[str, float]()
        self._owed_s: dict[str, float] = {}
        self._at_s = 0.0

    def add(self, spent_s: dict[str, float], now_s: float) -> dict[str, tuple[float, float]]:
        """Add what tokens have spent at a front end; return the totals that each has spent and owes."""
        paid_s, self._at_s = now_s - self._at_s, now_s
        self._owed_s = {one: owed_s - paid_s for one, owed_s in self._owed_s.items() if owed_s > paid_s}
        for token_id, more_s in spent_s.items():
            self._spent_s[token_id] = self._spent_s.get(token_id, 0.0) + more_s
            self._owed_s[token_id] = self._owed_s.get(token_id, 0.0) + more_s
        return {token_id: (self._spent_s[token_id], self._owed_s[token_id]) for token_id in spent_s}
