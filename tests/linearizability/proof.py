"""Plays scenarios on a cluster under load, and judges what every detector answered."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.linearizability.clients import Load, Subject
from tests.linearizability.cluster import cluster
from tests.linearizability.minimal import minimized, told
from tests.linearizability.model import DetectorModel
from tests.linearizability.scenarios import Scenario
from tests.linearizability.search import Explained, explain
from tests.linearizability.trial import QUIET_S, Trial


@dataclass(frozen=True)
class Judged:
    """How the histories of one cluster were judged."""

    away_s: dict[str, float]
    """For each scenario, how long a detector was away at most."""
    outcomes: Counter[str]
    requests: int
    unanswered: int
    steps: int
    violations: list[str]

    def lines(self) -> list[str]:
        """Return a fact a line."""
        return [
            *(f"{away_s:7.2f}  s away at most: {name}" for name, away_s in self.away_s.items()),
            f"{self.requests:7d}  requests in the histories",
            f"{self.unanswered:7d}  of them without an answer",
            *(f"{count:7d}  {outcome}" for outcome, count in sorted(self.outcomes.items())),
            f"{self.steps:7d}  steps of the model",
            f"{len(self.violations):7d}  histories that no order explains",
        ]


def prove(
    folder: Path,
    scenarios: Sequence[Scenario],
    *,
    nodes: int,
    partitions: bool,
    redis: bool = False,
    detectors: int,
    clients: int,
    pause_s: float,
    seed: object,
) -> Judged:
    """Play the scenarios one after another on one cluster, and judge."""
    away_s = dict[str, float]()
    with cluster(folder, nodes, partitions=partitions, redis=redis) as running:
        load = Load(running.token, running.fronts, seed)
        load.begin(detectors, clients, pause_s)
        trial = Trial(running, load, random.Random(f"{seed} scenarios"))
        try:
            time.sleep(QUIET_S)
            for scenario in scenarios:
                away_s[scenario.__name__] = scenario(trial)
                print(f"{scenario.__name__}: {away_s[scenario.__name__]:.2f} s", flush=True)
        finally:
            load.end()
    return judged(load, away_s)


def judged(load: Load, away_s: dict[str, float]) -> Judged:
    """Judge the history of each detector."""
    calls = [call for subject in load.subjects for call in subject.calls]
    steps, violations = 0, list[str]()
    for subject in load.subjects:
        found = explain(subject.calls, DetectorModel(subject.calls))
        steps += found.steps
        if not isinstance(found, Explained):
            violations.append(_violation(subject, decided=found.decided))
    unanswered = sum(not call.answered for call in calls)
    return Judged(away_s, load.outcomes, len(calls), unanswered, steps, violations)


def _violation(subject: Subject, *, decided: bool) -> str:
    shorter = minimized(subject.calls, DetectorModel)
    what = "no order explains" if decided else "no order was found that explains"
    return f"{what} the history of {subject.id}, of which this is left:\n{told(shorter)}"
