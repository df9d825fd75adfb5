"""What tokens that are bounded to some events a second have spent at all front ends together."""

from typing import Final


class Debts:
    """For each token what it has spent, and what it still owes for that, in seconds of its rate."""

    def __init__(self) -> None:
        self._spent_s: Final = dict[str, float]()
        self._owed_s: dict[str, float] = {}
        self._at_s = 0.0

    def add(self, spent_s: dict[str, float], now_s: float) -> dict[str, tuple[float, float]]:
        """Add what tokens have spent at a front end; return what each has spent and owes in all."""
        paid_s, self._at_s = now_s - self._at_s, now_s
        self._owed_s = {one: owed_s - paid_s for one, owed_s in self._owed_s.items() if owed_s > paid_s}
        for token_id, more_s in spent_s.items():
            self._spent_s[token_id] = self._spent_s.get(token_id, 0.0) + more_s
            self._owed_s[token_id] = self._owed_s.get(token_id, 0.0) + more_s
        return {token_id: (self._spent_s[token_id], self._owed_s[token_id]) for token_id in spent_s}
