"""Settles the requests for one detector, in particular those without an answer."""

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.evaluation.wire.events import Refused
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import INTERNAL, STARTING, DetectorUnavailable, outcome_unknown
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.channels.mailbox import Mailbox, Request, give_answers
from engine.runtime.front_end.memory_budget import BUSY, SLOTS, STARTING_UP
from engine.runtime.transport.link import Answered, Moved, Response, Unknown
from engine.runtime.transport.link_client import error_in
from snapshots.errors import StorageError, WriteFailed

_log = logging.getLogger(__name__)

_SENT_MAX: Final = 2
"""How often an evaluation with an idempotency key is sent if worker processes die."""

_IDS_LOGGED: Final = 10
"""How many ids of requests in flight a log line shows."""

_DIED: Final = "the detector's process died"

_LOST: Final = "a message to the detector's process or from it was lost"


@dataclass(eq=False)
class Outcomes:
    """Settles requests. Unexecuted requests of a batch go back to the mailbox."""

    _detector_id: str
    _settings: RuntimeSettings
    _mailbox: Mailbox

    def settle(self, batch: list[Request], response: Response | None) -> bool:
        """Settle or requeue each request of a batch. A response of None means that the worker was lost.

        Returns whether the worker still has the detector.
        """
        stays, unknown = True, _DIED
        match response:
            case Answered():
                give_answers(batch, response)
                if len(response.answers) < len(batch):
                    self._settle_rest(batch, response)
                return True
            case None | Unknown():
                stays = response is not None
                unknown = _LOST if stays else _DIED
                message = (
                    f"detector %s: {'a message was lost' if stays else 'its process died'} during requests"
                )
                _log.warning(message, self._detector_id, extra={"fields": self._fields(batch)})
                # A request with a key can be sent again safely: if it was executed, its first answer is
                # returned.
                self._mailbox.put_back([one for one in batch if one.operation.key and one.sent < _SENT_MAX])
            case Moved():
                stays = False
                for request in batch:
                    request.sent -= 1
                self._mailbox.put_back(batch)
            case failed:
                error = error_in(failed)
                if isinstance(error, Refusal | DetectorUnavailable):
                    for request in batch:
                        request.fail(error_in(failed))
                unknown = self._fail(batch, error)
        for request in batch:
            if not request.waits:
                request.fail(outcome_unknown(unknown))
        return stays

    def _settle_rest(self, batch: list[Request], answered: Answered) -> None:
        """Settle or requeue the requests for which a reply has no answer."""
        crash = answered.crash
        done = len(answered.answers)
        if crash is None:
            assert done, "there is at least one answer"
            # The reply was full; the remaining operations were not started.
            for request in batch[done:]:
                request.sent -= 1
            self._mailbox.put_back(batch[done:])
            return
        message = f"an internal error; its reference in the log is {crash.reference}"
        failed = batch[done]
        operation = failed.operation.kind
        fields = {**failed.caller.fields, "detector": self._detector_id, "operation": operation}
        extra = {"fields": fields, "detail": crash.detail}
        _log.error("detector %s: %s", self._detector_id, message, extra=extra)
        failed.settle(Refused((Entry(INTERNAL, message),)))
        self._mailbox.put_back(batch[done + 1 :])

    def _fail(self, batch: list[Request], error: Exception) -> str:
        """Settle a batch whose execution failed; return why the outcomes of other requests are unknown."""
        if isinstance(error, WriteFailed):
            message = f"nothing was evaluated: {error}"
            for request in batch:
                request.fail(DetectorUnavailable(STARTING, message, self._settings.retry_s))
        elif not isinstance(error, StorageError | Refusal | DetectorUnavailable):
            refused = Refused((Entry(INTERNAL, self.log("the worker failed", error, batch)),))
            for request in batch:
                request.settle(refused)
        return str(error)

    def refuse_waiting(self, make: Callable[[], Exception]) -> None:
        """Refuse the waiting requests, each with a new error."""
        for request in self._mailbox.take_waiting():
            error = make()
            # An earlier attempt may have succeeded, which does not matter if the detector is gone.
            is_unknown = request.sent and not isinstance(error, Refusal)
            request.fail(outcome_unknown(_DIED) if is_unknown else error)

    def expire_waiting(self, now_s: float, waiting_for_slots: int | None) -> None:
        """Refuse the requests that were not sent by their deadline.

        `waiting_for_slots` is the number of detectors that wait for an activation slot; None if this detector
        is active.
        """
        cause, state = STARTING_UP, "was starting"
        if waiting_for_slots is None:
            cause, state = BUSY, "was busy with earlier requests"
        elif waiting_for_slots:
            cause = SLOTS
            state += f": all slots for active detectors are taken, and {waiting_for_slots} wait for one"
        message = f"the deadline passed while the detector {state}; nothing was evaluated"
        for request in self._mailbox.expire(now_s, cause):
            refusal = DetectorUnavailable(STARTING, message, self._settings.retry_s)
            request.fail(outcome_unknown(_DIED) if request.sent else refusal)

    def log(self, what: str, error: Exception, batch: Sequence[Request] = ()) -> str:
        """Log an exception, and return the message for callers, which refers to the log record."""
        message = f"an internal error; its reference in the log is {secrets.token_hex(6)}"
        extra = {"fields": self._fields(batch)}
        _log.error("detector %s, %s: %s", self._detector_id, what, message, exc_info=error, extra=extra)
        return message

    def _fields(self, batch: Sequence[Request]) -> dict[str, str]:
        """Return the log fields: the detector, and the kinds and a few ids of the requests in flight.

        Includes the ids of their traces, if they have any.
        """
        kinds = " ".join(sorted({request.operation.kind for request in batch}))
        fields = {"detector": self._detector_id, "operation": kinds}
        fields["requests"] = _shown([request.caller.id for request in batch])
        if traces := _shown(list(dict.fromkeys(request.caller.trace_id for request in batch))):
            fields["traces"] = traces
        return fields


def _shown(ids: Sequence[str]) -> str:
    """Return the first non-empty ids, and the number of further ones."""
    ids = [one for one in ids if one]
    more = f" and {len(ids) - _IDS_LOGGED} more" if len(ids) > _IDS_LOGGED else ""
    return " ".join(ids[:_IDS_LOGGED]) + more
