"""The commands as users run them: processes, signals, exit statuses."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from api.cli import main
from api.cli.sample import RECORDING, RULES
from tests import process_table
from tests.integration.service.test_readme import block
from tests.service_process import END_WITHIN_S, PROGRAM, Served, program, served, started, until

FAILURE_TWICE = "ok == false and per user (once within 1m (ok == false and first == true))"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("commands") / "data"
    with served(folder, "--detectors-per-worker", "20") as running:
        yield running


def with_rule(service: Served, condition: str = "a == 1", name: str = "r") -> str:
    """Return a new detector with one rule."""
    detector: str = service.call("POST", "/api/detectors", {"name": name})["id"]
    rule = {"name": "the rule", "condition": condition}
    service.call("POST", f"/api/detectors/{detector}/rules", rule)
    return detector


def evaluate(service: Served, detector: str, timestamp_ms: float, **fields: Any) -> list[str]:
    body = {"event": {"fields": fields, "timestamp_ms": timestamp_ms}}
    actions = service.call("POST", f"/api/detectors/{detector}/evaluate", body)["actions"]
    return [action["name"] for action in actions]


def replay(service: Served, recording: Path, *arguments: str) -> Result:
    """Replay in this process."""
    options = ("--url", service.url, "--token", service.token, "--old-times")
    return CliRunner().invoke(main, ["replay", str(recording), *options, *arguments])


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of one event."""
    path = tmp_path / "events.ndjson"
    path.write_text('{"a": 1, "ts": 5}\n')
    return path


# serve


@pytest.mark.ray
def test_a_service_that_is_ended_in_each_way_is_found_again_as_it_was(tmp_path: Path) -> None:
    data, token_file = tmp_path / "data", tmp_path / "token"
    fixed = "fixed-secret-of-thirty-two-chars"
    token_file.write_text(fixed + "\n")
    token_file.chmod(0o600)
    options = ("--bootstrap-token-file", str(token_file))
    with served(data, *options) as first:
        assert "rd_" not in first.said(), "a bootstrap token is used, and none is minted"
        assert fixed not in first.said()
        described, listening = first.said().splitlines()
        pages = f"Console at {first.url}/console, API documentation at {first.url}/docs"
        assert described == pages, "and nothing of Ray's"
        assert listening.startswith(f"Listening on {first.url};")
        page = httpx.get(first.url, follow_redirects=True, trust_env=False)
        assert (str(page.url), page.status_code) == (f"{first.url}/docs", 200)
        assert first.request("GET", "/api/detectors", token="other").status_code == 401
        first.token = fixed
        detector = with_rule(first, FAILURE_TWICE)
        assert evaluate(first, detector, 1000, user="u", ok=False, first=True) == ["the rule"]
        rules = first.call("GET", f"/api/detectors/{detector}/rules")
        end_all(first, signal.SIGTERM, status=0)

    offline = program("token", "new", "--data", str(data))
    assert offline.returncode == 0
    with served(data, "--existing-data", "--shutdown-wait-s", "8") as second:
        assert second.token == "", "only where there is none is a token minted"
        assert second.request("GET", "/api/detectors", token=fixed).status_code == 401
        second.token = offline.stdout.strip()
        minted = second.call("POST", "/api/token")["token"]
        refused = program("token", "new", "--data", str(data))
        assert refused.returncode == 1
        assert "in use" in refused.stderr
        assert second.call("GET", "/api/detectors") == [{"id": detector, "name": "r"}]
        assert second.call("GET", f"/api/detectors/{detector}/rules") == rules
        assert evaluate(second, detector, 61_000, user="u", ok=False) == ["the rule"]
        assert evaluate(second, detector, 61_001, user="u", ok=False) == []
        end_while_requests_are_served(second)

    with served(data, "--journal-sync", "off", start_new_session=True) as third:
        third.token = minted
        assert evaluate(third, detector, 61_002, user="u", ok=False) == []
        evaluate(third, detector, 62_000, user="u", ok=False, first=True)
        unsaved = with_rule(third)
        evaluate(third, unsaved, 1000, a=1)
        folder = data / "detectors" / unsaved
        (claim,) = folder.glob("journal-*-000001.rdj")
        # The rule is record 1, and the event a snapshot of record 2.
        in_the_way = f"snapshot-{2:020d}.rds.{int(claim.name.split('-')[1])}.unfinished"
        (folder / in_the_way).mkdir()
        # As terminals do.
        os.killpg(third.process.pid, signal.SIGINT)
        assert third.process.wait(END_WITHIN_S) == 1
        assert "Traceback" not in third.said()
        assert f"{unsaved} was not saved" in third.said()
        assert f"{detector} was not saved" not in third.said()


def end_all(service: Served, number: signal.Signals, status: int) -> None:
    """Send a signal to all processes of a service, as service managers do; check that all end."""
    below = process_table.family(service.process.pid) - {service.process.pid}
    assert len(below) >= 5, "the processes of Ray, the directory, actors"
    for pid in {service.process.pid, *below}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    assert service.process.wait(END_WITHIN_S) == status
    assert "Traceback" not in service.said()
    until(lambda: not any(map(process_table.command, below)), "processes are left")


def end_while_requests_are_served(running: Served) -> None:
    """End a service, which announces this for seconds and finishes the requests under way."""
    detector = with_rule(running)
    events = [{"fields": {"a": 1, "text": "x" * 500}, "timestamp_ms": n} for n in range(10_000)]
    answers: list[httpx.Response] = []

    def send() -> None:
        path = f"/api/detectors/{detector}/evaluate/batch"
        answers.extend(running.request("POST", path, {"events": events}) for _ in range(3))

    sending = threading.Thread(target=send)
    sending.start()
    running.send(signal.SIGTERM)
    ready = [running.request("GET", "/readyz") for _ in range(20)]
    assert ready[-1].status_code == 503
    assert ready[-1].json()["errors"][0]["code"] == 1503
    assert evaluate(running, detector, 20_000, a=1) == ["the rule"]
    sending.join()
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert running.process.wait(END_WITHIN_S) == 0


@contextlib.contextmanager
def sigint(handler: Any) -> Iterator[None]:
    """Let processes that are started here inherit this handling of SIGINT."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.ray
@pytest.mark.parametrize(
    ("inherited", "number", "after_s"),
    [
        # As in the background of a shell.
        (signal.SIG_IGN, signal.SIGINT, 1.5),
        (signal.SIG_DFL, signal.SIGTERM, 0),
        pytest.param(signal.SIG_DFL, signal.SIGTERM, 2, marks=pytest.mark.long),
    ],
)
def test_a_signal_during_start_up_ends_it_without_a_fuss(
    tmp_path: Path, inherited: Any, number: signal.Signals, after_s: float
) -> None:
    with contextlib.ExitStack() as until_its_end:
        with sigint(inherited):
            service = started(tmp_path / "log", "serve", "--port", "0", "--data", str(tmp_path / "data"))
            running = until_its_end.enter_context(service)
        wait_until_listening(running.process.pid)
        time.sleep(after_s)
        assert running.end(number) == 0
        assert "Traceback" not in running.said()
        assert "SIGTERM received" not in running.said()


def wait_until_listening(pid: int) -> None:
    """Wait until the process listens, which is just before Ray starts.

    Other sockets do not count: an import may open one before the process handles signals.
    """
    until(lambda: any(one.protocol == "tcp" for one in process_table.listeners({pid})), "it never listened")


@pytest.mark.ray
def test_a_second_service_on_the_same_folder_says_so_and_ends(service: Served) -> None:
    run = program("serve", "--port", "0", "--data", str(service.output.parent / "data"))
    assert run.returncode == 1
    assert f"the data folder {service.output.parent / 'data'} is in use" in run.stderr
    assert f"pid {service.process.pid}" in run.stderr
    assert service.request("GET", "/readyz").status_code == 200


@pytest.mark.ray
def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = program("serve", "--port", str(port), "--data", str(tmp_path / "data"))
    assert run.returncode == 1
    assert (
        f"cannot listen on 127.0.0.1, port {port}: address already in use; name another port with --port"
        in run.stderr
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.ray
def test_a_service_with_existing_data_begins_no_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    run = program("serve", "--port", "0", "--data", str(data), "--existing-data")
    assert run.returncode == 1
    assert f"{data} on {socket.gethostname()} is no data folder yet: it has no id" in run.stderr
    assert not data.exists()


@pytest.mark.ray
def test_an_address_that_is_none_is_said(tmp_path: Path) -> None:
    run = program("serve", "--host", "203.0.113.1", "--port", "0", "--data", str(tmp_path / "data"))
    assert run.returncode == 1
    assert "cannot listen on 203.0.113.1, port 0: cannot assign requested address" in run.stderr


# demo


@pytest.mark.ray
def test_the_demo_serves_on_and_its_curl_lines_work_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    with started(tmp_path / "log", "demo", TMPDIR=str(tmp_path / "t")) as running:
        running.wait_for(r"(?s)evaluate\n")
        rules, event = [line for line in running.said().splitlines() if line.startswith("curl ")]
        assert [rule["priority"] for rule in curl(rules)["rules"]] == list(range(1, 10))
        printed = iter(running.said().splitlines())
        for line in block("the demo's output").splitlines():
            assert line in printed, "each line of README is there, in this order"
        assert re.search(r"^To try +http://\S+/console, http://\S+/docs$", running.said(), re.MULTILINE)
        assert not re.search(r"^\d{4}-|^\[|raylet|ray\.|Warning", running.said(), re.MULTILINE)
        names = [action["name"] for action in curl(event)["actions"]]
        assert "payment over 1000 from an account that a Python script has logged in to" in names
        assert running.end(signal.SIGINT) == 0
        assert list((tmp_path / "t").iterdir()) == []
        assert "Traceback" not in running.said()


def curl(line: str) -> Any:
    """Do what a curl line of the demo does, without curl."""
    found = re.fullmatch(r"curl -s((?: -H '[^']*')+)(?: -d '([^']*)')? (\S+)", line)
    assert found, line
    headers = dict(header.split(": ", 1) for header in re.findall(r"-H '([^']*)'", found[1]))
    method = "POST" if found[2] else "GET"
    response = httpx.request(method, found[3], headers=headers, content=found[2], trust_env=False)
    return response.json()["result"]


# replay


@pytest.mark.ray
def test_replay_by_id_and_from_standard_input_gives_what_the_demo_gives(service: Served) -> None:
    detector = service.call("POST", "/api/detectors", {"name": "shop"})["id"]
    options = ("--url", service.url, "--token", service.token, "--old-times", "--time-field", "time")
    arguments = ("-", "--detector", detector, "--rules", str(RULES))
    run = program("replay", *arguments, *options, given=RECORDING.read_bytes())
    assert run.returncode == 0
    named = set(
        re.findall(r"^`(.+)` fires first at \S+Z, standard input, line \d+$", run.stderr, re.MULTILINE)
    )
    assert len(named) == 8, "the ninth never fires"
    assert re.search(
        r"^payment of 2000 to 10000 +3 +\S+Z +standard input, line 1781$", run.stdout, re.MULTILINE
    )


@pytest.mark.ray
@pytest.mark.parametrize(
    ("lines", "options", "status", "fired", "said"),
    [
        pytest.param(
            ['{"a":1,"ts":1000000000000}', '{"a":1,"ts":1}', '{"a":1,"ts":1000000000002}'],
            *([], 1, 2, "1 of 3 events refused with 1402; first {path}, line 2: "),
            id="one is refused",
        ),
        pytest.param(
            ['{"a":1,"ts":1}', '{"a":1,"ts":2,"b":' + "1" * 4_100 + "}", '{"a":1,"ts":3}'],
            *([], 1, 2, "1 of 3 events refused with 1000"),
            id="one is no event for the service",
        ),
        pytest.param(
            ['{"a":1,"ts":1000}', '{"a":1,"ts":999}'],
            *([], 0, 2, "message 2001, 1 time; first {path}, line 2: "),
            id="one is late",
        ),
        pytest.param(
            ['{"a":1,"ts":1}', '{"a":1,"ts":', '{"a":1,"ts":4}'],
            *([], 0, 2, "{path}, line 2: not JSON"),
            id="a bad line is skipped",
        ),
        pytest.param(
            ['{"a":1,"ts":1}', '{"a":1,"ts":', '{"a":1,"ts":4}'],
            *(["--strict"], 1, 1, "{path}, line 2: not JSON"),
            id="a bad line stops a strict replay after what came before",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_told_and_the_others_go_on(
    service: Served,
    recording: Path,
    lines: list[str],
    options: list[str],
    *,
    status: int,
    fired: int,
    said: str,
) -> None:
    recording.write_text("".join(f"{line}\n" for line in lines))
    run = replay(service, recording, "--detector", with_rule(service), *options)
    assert run.exit_code == status
    assert re.search(rf"^the rule +{fired} ", run.stdout, re.MULTILINE)
    assert said.format(path=recording) in run.stdout + run.stderr


@pytest.mark.ray
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--token", "rd_wrong", "--detector", "x"], "1101 "),
        (["--detector", "nowhere"], "no detector has the id or name `nowhere`"),
        (["--url", "http://127.0.0.1:9", "--detector", "x"], "no service answers at http://127.0.0.1:9"),
        (["--detector", "twice"], " detectors are named `twice`; give the id of one: "),
        (["--detector", "no rules"], "the detector `no rules` has no rules, so nothing can fire; add some"),
    ],
)
def test_what_keeps_a_replay_from_starting_is_said(
    service: Served, recording: Path, arguments: list[str], said: str
) -> None:
    if arguments[-1] in ("twice", "no rules"):
        for _ in range(2 if arguments[-1] == "twice" else 1):
            service.call("POST", "/api/detectors", {"name": arguments[-1]})
    run = replay(service, recording, *arguments)
    assert run.exit_code == 1
    assert said in run.stderr


@pytest.mark.ray
def test_a_live_pipe_is_evaluated_as_it_comes(service: Served) -> None:
    detector = with_rule(service)
    options = ["--url", service.url, "--token", service.token, "--detector", detector, "--old-times"]
    with subprocess.Popen(
        [PROGRAM, "replay", "-", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b'{"a": 1, "ts": 5}\n')
        process.stdin.flush()
        assert b"`the rule` fires first at" in process.stderr.readline()
        output, errors = process.communicate(b'{"a": 1, "ts": 6}\n', timeout=120)
        assert (process.returncode, errors) == (0, b"")
        assert re.search(rb"^the rule +2 ", output, re.MULTILINE)


@pytest.mark.ray
def test_rules_of_several_files_are_added_once_and_none_if_one_is_refused(
    service: Served, recording: Path, tmp_path: Path
) -> None:
    detector = service.call("POST", "/api/detectors", {"name": "several"})["id"]
    first, second, bad = [tmp_path / f"{name}.yaml" for name in ("one", "two", "bad")]
    first.write_text("one: a == 1\n")
    second.write_text("two: a == 2\n")
    bad.write_text("good: a == 1\nbad: a ==\n")
    run = replay(service, recording, "--detector", detector, "--rules", str(bad))
    assert run.exit_code == 1
    assert f"{bad}: `bad`: 1300 line 2, column 10" in run.stderr
    for _ in range(2):
        rules = ("--rules", str(first), "--rules", str(second))
        assert replay(service, recording, "--detector", detector, *rules).exit_code == 0
    added = service.call("GET", f"/api/detectors/{detector}/rules")["rules"]
    assert [rule["name"] for rule in added] == ["one", "two"]
