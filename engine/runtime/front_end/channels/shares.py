"""What of a queue is each token's, so that a full one can be shared."""


class Share:
    """What waits for a token."""

    __slots__ = ("bytes", "requests")

    def __init__(self) -> None:
        self.requests = self.bytes = 0


class Shares:
    """The shares of all tokens of which anything waits."""

    def __init__(self) -> None:
        self._of: dict[str, Share] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, token_id: str, bytes_: int) -> None:
        share = self._of.get(token_id)
        if share is None:
            share = self._of[token_id] = Share()
        share.requests += 1
        share.bytes += bytes_

    def take(self, token_id: str, bytes_: int) -> None:
        share = self._of[token_id]
        share.requests -= 1
        share.bytes -= bytes_
        if not share.requests:
            del self._of[token_id]

    def holding_more(self, token_id: str, bytes_: int, *, in_bytes: bool) -> str | None:
        """Return the token that holds most, if that is more than this one would with another request."""
        most_id, most = max(
            self._of.items(), key=lambda entry: entry[1].bytes if in_bytes else entry[1].requests
        )
        own = self._of.get(token_id, Share())
        is_more = most.bytes > own.bytes + bytes_ if in_bytes else most.requests > own.requests + 1
        return most_id if is_more and most_id != token_id else None
