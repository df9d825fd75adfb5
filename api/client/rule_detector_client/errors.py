"""The error that a call raises."""

from .results import Entry


class ServiceError(Exception):
    """The service refused, or did not answer.

    `status` is the HTTP status and `code` the code of the first of `entries`; both are None without an answer
    of the service. `in_doubt` means that the request may have been carried out.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        entries: tuple[Entry, ...] = (),
        in_doubt: bool = False,
        sent: bool = True,
        retry_after_s: float = 1.0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.entries = entries
        self.in_doubt = in_doubt
        self.sent = sent
        """False if no connection was made."""
        self.retry_after_s = retry_after_s

    @property
    def code(self) -> int | None:
        """The code of the first error, None without an answer of the service."""
        return self.entries[0].code if self.entries else None
