"""Errors of the runtime that callers and its own parts handle."""

from engine.language.diagnostics import Entry, Refusal, quoted

STARTING = 1501
OUTCOME_UNKNOWN = 1502
SHUTTING_DOWN = 1503
TOO_MANY_WAIT = 1401
INTERNAL = 1500
TOO_MANY = 1400
NO_SUCH_DETECTOR = 1200
NO_SUCH_TOKEN = 1202
NO_SUCH_NODE = 1204

_NAME_CHARS_SHOWN = 80


class DetectorUnavailable(Exception):
    """No answer is available now: 1401, 1501, 1502 or 1503, with the time to retry after if it is known."""

    def __init__(self, code: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type["DetectorUnavailable"], tuple[int, str, float | None]]:
        """Pickle by the arguments of the constructor."""
        return type(self), (self.code, self.message, self.retry_after_s)


class ActorDied(Exception):
    """A worker is dead or unreachable. Whether it executed the last call is unknown."""


class Superseded(ActorDied):
    """A worker has refused a command, because a later scheduler commands it.

    For the one that is refused, the worker is lost; when it ends the worker, it learns that it was replaced.
    """


class MessageLost(ActorDied):
    """A call or its answer was lost, and the connection goes on. Whether the call was executed is unknown."""


def no_such_detector(detector_id: str) -> Refusal:
    """Return the refusal for a detector that does not exist."""
    return Refusal(Entry(NO_SUCH_DETECTOR, f"there is no detector `{detector_id}`"))


def no_such_name(name: str, count: int) -> Refusal:
    """Return the refusal for a name that `count` detectors have, which is not one."""
    shown = quoted(name[:_NAME_CHARS_SHOWN])
    said = f"{count} detectors are named {shown}; give the id of one"
    return Refusal(Entry(NO_SUCH_DETECTOR, said if count else f"no detector is named {shown}"))


def too_many_detectors(detectors_max: int) -> Refusal:
    """Return the refusal for a detector past the limit."""
    return Refusal(Entry(TOO_MANY, f"the service has {detectors_max} detectors, which is the limit"))


def too_many_tokens(tokens_max: int) -> Refusal:
    """Return the refusal for a token past the limit."""
    return Refusal(Entry(TOO_MANY, f"the service has {tokens_max} tokens, which is the limit"))


def no_such_token(token_id: str) -> Refusal:
    """Return the refusal for a token that does not exist."""
    return Refusal(Entry(NO_SUCH_TOKEN, f"there is no token `{token_id}`"))


def no_such_node(node_id: str) -> Refusal:
    """Return the refusal for a node that the cluster does not have, or that takes no detectors."""
    return Refusal(Entry(NO_SUCH_NODE, f"there is no living node `{node_id[:80]}` that takes detectors"))


def no_other_node() -> Refusal:
    """Return the refusal to move a detector where only its own node takes detectors."""
    return Refusal(Entry(NO_SUCH_NODE, "there is no other living node that takes detectors"))


def shutting_down() -> DetectorUnavailable:
    """Return the error for requests that cannot be served because the service is stopping."""
    return DetectorUnavailable(SHUTTING_DOWN, "the server is shutting down")


def outcome_unknown(why: str) -> DetectorUnavailable:
    """Return the error for an operation that may or may not have been executed."""
    return DetectorUnavailable(OUTCOME_UNKNOWN, f"{why}; whether the event was evaluated is not known")
