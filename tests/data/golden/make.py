"""Makes a golden data folder: what the service of an earlier commit left when it was killed under load.

python -m tests.data.golden.make COMMIT [--stop]

Runs that commit's `serve` in a worktree of this repository, with this Python and its packages. Eight clients
create a detector each, add rules to it and send it events, until each has sent all or, in the midst of that,
every process of the service gets SIGKILL. (`--stop`: SIGTERM, for versions before the journal, which promised
no more.) Then packs the data folder, and what was sent and answered, as COMMIT.tar.xz beside this file.
tests/integration/service/test_golden_folders.py opens them. Versions that refuse some of these rules need the
script as it was in their time.
"""

import argparse
import contextlib
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import httpx

HERE: Final = Path(__file__).parent
CLIENTS: Final = 8
EVENTS: Final = 200
KILL_AT: Final = 80
"""The number of requests that every client has sent when the service is killed."""

RULES: Final = (
    'kind == "a" and per user once within 5s kind == "b"',
    'per user (kind == "a" since kind == "b")',
    'per host ((n > 3) since within 8s kind == "c")',
    "per user (historically for 4s n < 9)",
    "n >= 5 and not once within 2s n == 0",
    'per user per host (once (kind == "b" and n > 6))',
    'historically (n < 10) or host matches "^h[01]$"',
    'per user once within 2s (n > 7 and not once within 1s kind == "c")',
    'per host (kind == "a" and previous kind == "b")',
    'per user (count(kind == "a") within 6s >= 3)',
    "per host (distinct(user where n > 2) within 5s > 2)",
    'per user (sum(n) within 8s > 3 * n) or avg(n where kind == "b") < 4',
    'per user once within 2s (n > 7 and not once within 1s kind == "c")',
    "per host (count(n > 1) > 4 and not earlier within 3s n == 4)",
    'per user (kind == "a" since n > 8)',
)
"""Rules 7 and 12 are equal. The second shares the history of the first, which is deleted later."""

WIDE: Final = "".join(f" or n == {number}" for number in range(100, 1100))
"""Added to rule 0 at every fourth client, whose rules are therefore indexed."""

SHADOW: Final = 13
DRAFT: Final = 14
DRAFT_OF: Final = 1
DELETED: Final = 7
RUN: Final = """
import sys
try:
    from api.cli import main
except ImportError:
    from api.commands import main
main()
"""


class Client(threading.Thread):
    """Creates one detector, adds rules and sends events, and stores every answer."""

    def __init__(self, url: str, token: str, number: int) -> None:
        super().__init__()
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False
        )
        self._chance = random.Random(number)
        self._is_wide = number % 4 == 0
        self.detector = self._send("POST", "/api/detectors", {"name": f"golden {number}"})["id"]
        self.asked: list[dict[str, Any]] = []
        """The requests in order, with their answers; only the last one may have none."""
        self._at_ms = 1_700_000_000_000

    def run(self) -> None:
        with contextlib.suppress(httpx.TransportError):
            for number in range(EVENTS):
                if number % 3 == 0 and number // 3 < len(RULES):
                    self._add_rule(number // 3)
                if number == 50:
                    self._ask("PATCH", self._rule(0), {"enabled": False})
                    self._ask("PATCH", self._rule(0), {"enabled": True})
                if number == 60:
                    self._ask("DELETE", self._rule(DELETED))
                if number % 4 == 0 and number // 3 > SHADOW:
                    # Records with a shadow rule have a version of their own.
                    self._ask("PATCH", self._rule(SHADOW), {"notify": number % 8 == 0})
                self._evaluate()

    def _add_rule(self, number: int) -> None:
        condition = f"({RULES[0]}){WIDE}" if self._is_wide and not number else RULES[number]
        document = {"name": f"rule {number}", "condition": condition, "notify": number % 2 == 0}
        if number in {SHADOW, DRAFT}:
            document["shadow"] = True
        if number == DRAFT:
            document["draftOf"] = self._rule(DRAFT_OF).rpartition("/")[2]
        self._ask("POST", f"/api/detectors/{self.detector}/rules", document)

    def _rule(self, number: int) -> str:
        added = [one["answer"]["id"] for one in self.asked if one["path"].endswith("/rules")]
        return f"/api/detectors/{self.detector}/rules/{added[number]}"

    def _evaluate(self) -> None:
        document = {"event": {"fields": fields(self._chance), "timestamp_ms": self._at_ms}}
        self._at_ms += self._chance.choice((0, 1, 300, 1000, 2500))
        self._ask("POST", f"/api/detectors/{self.detector}/evaluate", document)

    def _ask(self, method: str, path: str, document: object = None) -> None:
        asked = {"method": method, "path": path, "document": document, "answer": None}
        self.asked.append(asked)
        asked["answer"] = self._send(method, path, document)

    def _send(self, method: str, path: str, document: object) -> Any:
        envelope = self._http.request(method, path, json=document).json()
        if {entry["code"] for entry in envelope["errors"]} & {1501, 1502, 1503}:
            raise httpx.TransportError("the service is being killed")
        assert envelope["success"], envelope
        return envelope["result"]


def fields(chance: random.Random) -> dict[str, Any]:
    """Return the fields of an event."""
    return {
        "kind": chance.choice("abc"),
        "user": f"u{chance.randrange(4)}",
        "host": f"h{chance.randrange(3)}",
        "n": chance.randrange(11),
    }


def make(commit: str, *, stop: bool) -> None:
    """Make the folder of a commit."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        work = Path(folder)
        subprocess.run(["git", "worktree", "add", "--detach", str(work / "tree"), commit], check=True)
        try:
            clients = _load(work, stop=stop)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(work / "tree")], check=True)
        sent = {client.detector: client.asked for client in clients}
        (work / "sent.json").write_text(json.dumps(sent, separators=(",", ":")))
        with tarfile.open(HERE / f"{commit}.tar.xz", "w:xz", preset=9) as packed:
            for name in ("data", "sent.json"):
                packed.add(work / name, name, filter=_anonymous)


def _load(work: Path, *, stop: bool) -> list[Client]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token = "rd_" + secrets.token_urlsafe(32)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "serve", "--port", str(port), "--data", str(work / "data")],
        cwd=work,
        env={
            **os.environ,
            "PYTHONPATH": f"{work / 'tree'}:{work / 'tree' / 'api' / 'client'}",
            "RULE_DETECTOR_BOOTSTRAP_TOKEN": token,
            "RULE_DETECTOR_SNAPSHOT_INTERVAL_S": "0.4",
        },
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(url, process)
        clients = [Client(url, token, number) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        while not stop and min(len(client.asked) for client in clients) < KILL_AT:
            time.sleep(0.001)
        for client in clients if stop else []:
            client.join()
    finally:
        everyone = [process.pid, *_descendants(process.pid)]
        for pid in [process.pid] if stop else everyone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if stop else signal.SIGKILL)
        process.wait()
    for client in clients:
        client.join()
    return clients


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    while True:
        assert process.poll() is None, "the service has ended"
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url + "/readyz", trust_env=False).status_code == 200:
                return
        time.sleep(0.1)


def _descendants(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *_descendants(child)]
    return found


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit")
    parser.add_argument("--stop", action="store_true")
    given = parser.parse_args()
    make(given.commit, stop=given.stop)
