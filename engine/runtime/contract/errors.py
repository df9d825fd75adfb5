"""The world's errors, as callers of the runtime and its own parts meet them."""

from engine.language.diagnostics import Entry, Refusal

STARTING = 1501
OUTCOME_UNKNOWN = 1502
SHUTTING_DOWN = 1503
TOO_MANY_WAIT = 1401
INTERNAL = 1500
TOO_MANY = 1400
NO_SUCH_DETECTOR = 1200
NO_SUCH_TOKEN = 1202


class DetectorUnavailable(Exception):
    """No answer can be had now: 1401, 1501, 1502 or 1503, with when to try again where that is known."""

    def __init__(self, code: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type["DetectorUnavailable"], tuple[int, str, float | None]]:
        """Travel between processes by what it was made of."""
        return type(self), (self.code, self.message, self.retry_after_s)


class ActorDied(Exception):
    """An actor is gone or out of reach. Whether what it was asked was carried out is not known."""


def no_such_detector(detector_id: str) -> Refusal:
    """Give the refusal for a detector that is not there."""
    return Refusal(Entry(NO_SUCH_DETECTOR, f"there is no detector `{detector_id}`"))


def too_many_detectors(detectors_max: int) -> Refusal:
    """Give the refusal for a detector for which there is no place."""
    return Refusal(Entry(TOO_MANY, f"the service has {detectors_max} detectors, which is the limit"))


def no_such_token(token_id: str) -> Refusal:
    """Give the refusal for a token that is not there."""
    return Refusal(Entry(NO_SUCH_TOKEN, f"there is no token `{token_id}`"))


def shutting_down() -> DetectorUnavailable:
    """Give the refusal of what comes, or would go on, while the service ends."""
    return DetectorUnavailable(SHUTTING_DOWN, "the server is shutting down")


def outcome_unknown(why: str) -> DetectorUnavailable:
    """Give the refusal of what may have been carried out."""
    return DetectorUnavailable(OUTCOME_UNKNOWN, f"{why}; whether the event was evaluated is not known")
