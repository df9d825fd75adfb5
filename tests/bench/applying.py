"""How long `rule-detector apply` takes that changes one rule of 10 000, while events go on beside it.

    python -m tests.bench.applying            seconds, and the CPU of each process
    python -m tests.bench.applying --rules N  of N rules

The command runs as its users run it, with byte code, beside a service that evaluates one event after another.
It first creates all rules, then changes one of them a few times, without and with `--prune`.
"""

import argparse
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import yaml

from tests.bench.measuring.processes import cpu_by_kind_s
from tests.service_process import Served, program, served

TIMES: Final = 5
CONDITION: Final = 'amount > {0} and per user (once within 1h action == "login-{0}")'


def rules_file(path: Path, rules: int, changed: int | None = None) -> None:
    """Write a rules file, in which one rule may be changed."""
    written = {
        f"rule {number}": {
            "description": f"What rule {number} is for.",
            "labels": {"severity": "high", "ticket": f"T-{number}"},
            "condition": CONDITION.format(number if number != 17 or changed is None else rules + changed),
        }
        for number in range(rules)
    }
    path.write_text(yaml.safe_dump({"detector": "shop", "rules": written}, sort_keys=False, width=1000))


class Events(threading.Thread):
    """One caller that evaluates one event after another."""

    def __init__(self, service: Served, detector: str) -> None:
        super().__init__(daemon=True)
        self.service = service
        self.path = f"/api/detectors/{detector}/evaluate"
        self.longest_s = 0.0
        self.count = 0
        self.ended = threading.Event()

    def run(self) -> None:
        """Evaluate until told to end."""
        while not self.ended.is_set():
            fields = {"user": f"u{self.count % 1000}", "code": self.count % 10_000, "action": "login-4"}
            started_s = time.perf_counter()
            self.service.call("POST", self.path, {"event": {"fields": fields, "timestamp_ms": self.count}})
            self.longest_s = max(self.longest_s, time.perf_counter() - started_s)
            self.count += 1


def applied(service: Served, path: Path, *options: str) -> tuple[float, dict[str, float]]:
    """Apply a file; return the seconds, and the CPU seconds of the command and the service's processes."""
    before, own = cpu_by_kind_s(service.process.pid), os.times()
    started_s = time.perf_counter()
    run = program(
        "apply", str(path), "--yes", *options,
        RULE_DETECTOR_URL=service.url, RULE_DETECTOR_TOKEN=service.token, PYTHONDONTWRITEBYTECODE="",
    )  # fmt: skip
    took_s = time.perf_counter() - started_s
    assert run.returncode == 0, run.stderr[:2000]
    used = {"the command": os.times().children_user + os.times().children_system}
    used["the command"] -= own.children_user + own.children_system
    used |= cpu_by_kind_s(service.process.pid) - before
    return took_s, {name: each for name, each in used.items() if each >= 0.02}


def main() -> None:
    """Apply, and print the time of each."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.applying", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--rules", type=int, default=10_000)
    rules = parser.parse_args().rules
    with tempfile.TemporaryDirectory() as name, served(Path(name) / "data") as service:
        path = Path(name) / "rules.yaml"
        rules_file(path, rules)
        _print(f"create {rules} rules", [applied(service, path)])
        [detector] = service.call("GET", "/api/detectors")
        events = Events(service, detector["id"])
        events.start()
        for options in ((), ("--prune",), ("--dry-run",)):
            found = []
            events.longest_s, count, started_s = 0.0, events.count, time.perf_counter()
            for number in range(TIMES):
                rules_file(path, rules, number)
                found.append(applied(service, path, *options))
            _print(f"change one of them {' '.join(options)}", found)
            rate = (events.count - count) / (time.perf_counter() - started_s)
            print(f"    {rate:.0f} events/s beside it, the slowest took {events.longest_s * 1e3:.0f} ms")
        events.ended.set()
        events.join()


def _print(what: str, found: list[tuple[float, dict[str, float]]]) -> None:
    seconds = [took_s for took_s, _ in found]
    print(f"{what}: {statistics.median(seconds):.2f} s, longest {max(seconds):.2f}", flush=True)
    for name in found[0][1]:
        cpu = statistics.median([used.get(name, 0.0) for _, used in found])
        print(f"    {cpu:.2f} s of CPU: {name}", flush=True)


if __name__ == "__main__":
    main()
