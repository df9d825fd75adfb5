"""The batches that wait for a detector, and how their answers are shared out."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.runtime.contract.requests.calls import Reply, Took
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.transport.server_connection import Outcome


@dataclass(eq=False, slots=True)
class Submission:
    """A front end's batch, and the callback that is given its outcome once."""

    operations: list[Operation]
    settled: Callable[[Outcome], None]
    since_s: float
    """When it arrived, in the loop's time."""
    done: bool = False
    """Whether it is answered, or its front end is gone."""

    def settle(self, outcome: Outcome) -> None:
        """Answer the batch, unless that has been done."""
        if not self.done:
            self.done = True
            self.settled(outcome)

    def release(self) -> None:
        """Drop the batch: its front end is gone."""
        self.done = True

    def took(self, together: Took | None, now_s: float) -> Took | None:
        """Return where its time went, given what was measured of the batches executed with it."""
        if together is None:
            return None
        busy_s = together.evaluated_s + together.synced_s
        return together._replace(waited_s=max(0.0, now_s - self.since_s - busy_s))


class WaitingBatches:
    """Batches in the order of their arrival; those that wait are executed together, within bounds."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = settings
        self.submissions: deque[Submission] = deque()

    def __len__(self) -> int:
        return len(self.submissions)

    def add(self, submission: Submission) -> Submission:
        """Queue a batch behind all earlier ones, and return it."""
        self.submissions.append(submission)
        return submission

    def take(self) -> list[Submission]:
        """Return the batches to execute together, within the bounds: at least one if any waits."""
        taken: list[Submission] = []
        operations_left = self._settings.batch_operations_max
        bytes_left = self._settings.batch_bytes_max
        waiting = self.submissions
        while waiting:
            submission = waiting[0]
            if not submission.done:
                operations_left -= len(submission.operations)
                bytes_left -= sum([len(operation.payload) for operation in submission.operations])
                if taken and (operations_left < 0 or bytes_left < 0):
                    break
                taken.append(submission)
            waiting.popleft()
        return taken

    def put_back(self, taken: list[Submission]) -> None:
        """Put batches that were taken but not begun back at the front."""
        self.submissions.extendleft(reversed(taken))

    def answer(self, taken: list[Submission], reply: Reply, now_s: float) -> None:
        """Give each batch its answers. A batch without any was not begun, and is the first one next time."""
        answers, crash = reply.answers, reply.crash
        assert answers or crash is not None, "a reply has at least one answer"
        begin = 0
        for number, submission in enumerate(taken):
            end = begin + len(submission.operations)
            own = answers[begin:end]
            crashed = crash if len(own) < len(submission.operations) else None
            if not own and crashed is None:
                self.put_back(taken[number:])
                return
            submission.settle(Reply(own, crashed, took=submission.took(reply.took, now_s)))
            if crashed is not None:
                self.put_back(taken[number + 1 :])
                return
            begin = end

    def refuse(self, outcome: Outcome) -> None:
        """Answer all of them with this."""
        while self.submissions:
            self.submissions.popleft().settle(outcome)


def operations_of(taken: Iterable[Submission]) -> list[Operation]:
    """Return the operations of batches, in order."""
    return [operation for submission in taken for operation in submission.operations]


def settle(taken: Iterable[Submission], outcome: Outcome) -> None:
    """Answer batches with the same outcome."""
    for submission in taken:
        submission.settle(outcome)
