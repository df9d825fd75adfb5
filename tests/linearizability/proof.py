"""Plays scenarios on a cluster under load, and checks every detector's answers."""

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.linearizability.clients import Load
from tests.linearizability.cluster import cluster
from tests.linearizability.journal import done
from tests.linearizability.replay import Replay, problems
from tests.linearizability.scenarios import Scenario
from tests.linearizability.trial import QUIET_S, Trial


@dataclass(frozen=True)
class Judged:
    """How the histories of one cluster were judged."""

    away_s: dict[str, float]
    """For each scenario, the longest time that a detector was unavailable."""
    outcomes: Counter[str]
    requests: int
    unanswered: int
    violations: list[str]

    def lines(self) -> list[str]:
        """Return one fact per line."""
        return [
            *(f"{away_s:7.2f}  s away at most: {name}" for name, away_s in self.away_s.items()),
            f"{self.requests:7d}  requests in the histories",
            f"{self.unanswered:7d}  of them without an answer",
            *(f"{count:7d}  {outcome}" for outcome, count in sorted(self.outcomes.items())),
            f"{len(self.violations):7d}  violations",
        ]


def prove(
    folder: Path,
    scenarios: Sequence[Scenario],
    *,
    nodes: int,
    partitions: bool,
    redis: bool = False,
    patient: bool = False,
    detectors: int,
    clients: int,
    pause_s: float,
    seed: object,
) -> Judged:
    """Play the scenarios one after another on one cluster, and judge."""
    away_s = dict[str, float]()
    with cluster(folder, nodes, partitions=partitions, redis=redis, patient=patient) as running:
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
    folders = {subject.id: running.detector(subject.id) for subject in load.subjects}
    return judged(load, folders, away_s)


def judged(load: Load, folders: Mapping[str, Path], away_s: dict[str, float]) -> Judged:
    """Check the answers of each detector against its journal."""
    calls = [call for subject in load.subjects for call in subject.calls]
    violations = [
        f"{subject.id}: {problem}"
        for subject in load.subjects
        for problem in problems(subject.calls, Replay(done(folders[subject.id])))
    ]
    unanswered = sum(not call.answered for call in calls)
    return Judged(away_s, load.outcomes, len(calls), unanswered, violations)
