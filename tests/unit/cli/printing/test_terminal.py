"""What a server or a file says reaches no terminal raw, whichever command prints it."""

import asyncio
import errno
import io
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click
import httpx
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from api.cli import COMMANDS, main
from api.cli.printing.output import print_table
from api.cli.printing.terminal import EscapingStream, escaped, on_one_line
from api.cli.replaying.feeding import BarGauge
from api.schema.examples import CLUSTER
from rule_detector_client import AsyncClient, Client
from tests.local_runtime.service import local_service
from tests.service_process import PROGRAM, environment
from tests.unit.cli.fake_service import FakeService

HOSTILE = "\x1b]52;c;aGk=\x07\x1b[2J\x08\r\x1b]8;;http://x\x1b\\\x7f\x85\x9b31m\u202e\u2066[red]b[/red][link=x]:bell:"
"""Writes to the clipboard, clears the screen, goes back, links, colours and turns text around."""
MARK = "EVIL"
"""Stands for HOSTILE in what is sent to the service, which refuses control characters."""

TURNED = "\u202e[red]b[/red]:bell:\nx"
"""A name that the service accepts."""
_FILE = f"{HOSTILE.replace('/', '')}.ndjson"
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_EVENT = '{"time": "2024-03-04T09:00:00Z", "user": "EVIL", "ok": false, "EVIL": 1}'
_CONDITION = "per user once within 10m ok == false  # EVIL"

_SIGMA_RULE = {
    "title": HOSTILE,
    "description": HOSTILE,
    "logsource": {"product": HOSTILE},
    "detection": {"selection": {HOSTILE: HOSTILE}, "condition": "selection"},
}


def test_every_character_that_could_control_a_terminal_is_escaped() -> None:
    every = "".join(map(chr, [*range(0x300), *range(0x2000, 0x2100), 0xD800]))
    assert not _RAW.search(escaped(every))
    assert escaped("a\tb\nc\r\nd") == "a\tb\nc\r\nd"
    assert escaped("a\rb\x1b") == r"a\x0db\x1b"
    assert on_one_line("a\tb\nc\r\nd") == r"a\x09b\x0ac\x0d\x0ad"
    assert not _RAW.search(on_one_line(every))
    assert escaped("é€😀\u00a0") == "é€😀\u00a0"


def test_json_stays_json_of_the_same_value() -> None:
    for text in (HOSTILE, "\ud800", "\u2028"):
        document = json.dumps({text: [text]}, ensure_ascii=False)
        assert json.loads(escaped(document)) == {text: [text]}
        assert not _RAW.search(escaped(document))


def test_a_stream_escapes_texts_and_bytes_whoever_writes_to_it() -> None:
    raw = io.BytesIO()
    stream: Any = EscapingStream(io.TextIOWrapper(raw, "utf-8", write_through=True))
    assert stream.write("\x1b") == 1
    stream.writelines(["\x9b", "\n"])
    stream.buffer.write("\x7f\u202e".encode())
    stream.buffer.write(b"\xff")
    click.echo(b"\x1b", stream)
    print("\x1b", file=stream)
    assert raw.getvalue().decode() == "\\x1b\\u009b\n\\u007f\\u202e\\udcff\\x1b\n\\x1b\n"


class HostileService(FakeService):
    """Answers with HOSTILE wherever it was sent MARK."""

    def client(self) -> Client:
        return Client("http://s", "t", transport=httpx.MockTransport(self.answer))

    def async_client(self) -> AsyncClient:
        return AsyncClient("http://s", "t", transport=httpx.MockTransport(self.answer))

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/api/cluster":
            text = json.dumps(_told(CLUSTER)).replace('"a"', f'"{MARK}"').replace('"logins"', f'"{MARK}"')
        elif path.endswith("/evaluate/batch"):
            [one] = self.detectors
            [rule, *_] = self.detectors[one].rules()
            action = {"type": "match", "ruleId": rule.id, "name": MARK, "priority": 1, "notify": False}
            entry = {"code": 2001, "message": MARK}
            text = json.dumps(_told({"results": [{"actions": [action], "messages": [entry]}]}))
        elif path.endswith(("/move", "/drain")):
            node = CLUSTER["nodes"][0]
            text = json.dumps(_told({"node": node["id"], **node, "host": MARK}))
        elif path.endswith("/firings") and request.headers.get("Last-Event-ID") != "2":
            # After one firing, the token is revoked.
            firing = {
                "seq": 2,
                "time_ms": 1,
                "ruleId": "r",
                "name": MARK,
                "priority": 1,
                "keys": {MARK: MARK},
            }
            began = "Last-Event-ID" in request.headers
            text = f"id: 2\ndata: {json.dumps(firing)}\n\n" if began else "id: 1\n\n"
            text, headers = (
                text.replace(MARK, json.dumps(HOSTILE)[1:-1]),
                {"Content-Type": "text/event-stream"},
            )
            return httpx.Response(200, text=text, headers=headers)
        elif path.endswith(("/refused", "/firings")):
            errors = [{"code": 1001, "message": MARK}]
            text = json.dumps({"success": False, "errors": errors, "messages": [], "result": {}})
            return httpx.Response(401, text=text.replace(MARK, json.dumps(HOSTILE)[1:-1]))
        else:
            text = self(request).text
        return httpx.Response(200, text=text.replace(MARK, json.dumps(HOSTILE)[1:-1]))


def _told(result: Any) -> dict[str, Any]:
    return {"success": True, "errors": [], "messages": [], "result": result}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HostileService:
    """One detector with a rule and a draft of it, all named HOSTILE, that has seen an event."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RULE_DETECTOR_TOKEN", "t")
    service = HostileService()
    service.put_in_place(monkeypatch)
    detector = service.detectors[service.create(MARK)]
    rule_id = detector.add_rule(MARK, _CONDITION)
    detector.add_rule(f"{MARK}, draft", "ok == false", shadow=True, draft_of=rule_id)
    detector.submit_clean_one({"user": MARK, "ok": False, MARK: MARK}, 1_709_542_800_000, None)
    service.tokens.append({"id": "7" * 32, "hint": MARK, "name": MARK, "created_ms": 1, "used_ms": None})
    Path("rules.yaml").write_text(json.dumps({TURNED: _CONDITION, "n": f"{MARK} == 1"}), "utf-8")
    Path("refused.yaml").write_text(json.dumps({HOSTILE: _CONDITION, "n": HOSTILE}), "utf-8")
    Path("events.ndjson").write_text(_EVENT.replace(MARK, json.dumps(HOSTILE)[1:-1]) + "\n", "utf-8")
    Path(_FILE).write_text("no json", "utf-8")
    Path("sigma.yml").write_text(json.dumps(_SIGMA_RULE), "utf-8")
    Path("cells.csv").write_text(f'time,"{HOSTILE}"\n1709542800,"{HOSTILE}"\n', "utf-8")
    return service


def _detector(service: FakeService) -> str:
    return next(iter(service.detectors))


def _rule(service: FakeService) -> str:
    return service.detectors[_detector(service)].rules()[0].id


def _given(words: Iterable[str], service: FakeService) -> list[str]:
    """Return the arguments of a command, with what the words in capital letters stand for."""
    ids = {"DETECTOR": _detector(service), "RULE": _rule(service)}
    stands_for = {**ids, "HOSTILE": HOSTILE, "TURNED": TURNED, "FILE": _FILE}
    return [stands_for.get(word, word) for word in words]


_COMMANDS: Final = [
    ("detectors", "list"),
    ("detectors", "create", MARK),
    ("detectors", "fork", "DETECTOR", "--name", MARK),
    ("detectors", "delete", "DETECTOR", "--yes"),
    ("detectors", "delete", "DETECTOR"),
    ("detectors", "delete", "HOSTILE"),
    ("detectors", "HOSTILE"),
    ("rules", "list", "--detector", "DETECTOR"),
    ("rules", "show", "RULE", "--detector", "DETECTOR"),
    ("rules", "show", "HOSTILE", "--detector", "nobody"),
    ("rules", "add", "EVIL2", "a == 1", "--detector", "DETECTOR"),
    ("rules", "add", "rules.yaml", "--detector", "DETECTOR"),
    ("rules", "change", "RULE", "--notify", "--detector", "DETECTOR"),
    ("rules", "disable", "RULE", "--detector", "DETECTOR"),
    ("rules", "enable", "RULE", "--detector", "DETECTOR"),
    ("rules", "remove", "RULE", "--detector", "DETECTOR"),
    ("rules", "remove", "RULE", "--detector", "DETECTOR", "--yes"),
    ("shadow", "RULE", "--detector", "DETECTOR", "--explain"),
    ("shadow", "RULE", "--detector", "DETECTOR", "--draft", "ok == true"),
    ("shadow", "RULE", "--detector", "DETECTOR", "--promote"),
    ("tokens", "list"),
    ("tokens", "create", MARK),
    ("tokens", "revoke", "7" * 32, "--yes"),
    ("changes",),
    ("state", "--detector", "DETECTOR"),
    ("state", "--detector", "DETECTOR", "--list", "keys"),
    ("state", "--detector", "DETECTOR", "--list", "nodes"),
    ("state", "--detector", "DETECTOR", "--list", "rules"),
    ("state", "--detector", "DETECTOR", "--rule", "RULE", "--key", "user=x"),
    ("explain", "events.ndjson", "--detector", "DETECTOR"),
    ("replay", "events.ndjson", "--detector", "DETECTOR"),
    ("cluster",),
    ("move", "DETECTOR"),
    ("drain", "10.0.0.7", "--no-wait"),
    ("undrain", "10.0.0.7"),
    ("check", "rules.yaml", "--events", "events.ndjson"),
    ("check", "refused.yaml"),
    ("try", "refused.yaml", "events.ndjson"),
    ("try", "rules.yaml", "events.ndjson"),
    ("try", "rules.yaml", "events.ndjson", "-o", "csv"),
    ("try", "rules.yaml", "events.ndjson", "--against", "rules.yaml"),
    ("try", "rules.yaml", "events.ndjson", "--explain", "TURNED", "--line", "1"),
    ("try", "rules.yaml", "events.ndjson", "--explain", "HOSTILE", "--line", "7"),
    ("try", "rules.yaml", "cells.csv"),
    ("try", "rules.yaml", "FILE"),
    ("sigma", "sigma.yml"),
    ("test", "rules.yaml"),
    ("test", "refused.yaml"),
    ("apply", "rules.yaml", "--detector", "DETECTOR", "--yes", "--prune"),
    ("apply", "refused.yaml", "--detector", "DETECTOR", "--yes"),
    ("export", "DETECTOR"),
    ("relations", "list", "--detector", "DETECTOR"),
    ("deliver", "--detector", "DETECTOR", "--to", "-"),
    ("deliver", "--detector", "HOSTILE", "--to", "-"),
]

_WITHOUT_A_SERVICE = {"inspect", "backup", "repair", "restore", "retry", "token"}
"""These commands are tried on a data folder below."""
_NO_JSON = {"deliver", "check", "sigma", "export", "replay", "move", "drain", "undrain", "--explain"}
_OWN_WORDS = {"demo", "serve"}
"""These commands print nothing but words of the program, and the log, which is tested by itself."""


def test_every_command_is_tried() -> None:
    tried = {command for command, *_ in _COMMANDS}
    assert {name for names in COMMANDS.values() for name in names} == (
        tried | _WITHOUT_A_SERVICE | _OWN_WORDS
    )


def printed(*arguments: str) -> Result:
    run = CliRunner().invoke(main, list(arguments))
    assert run.exit_code in {0, 1, 2}
    assert run.exception is None or isinstance(run.exception, SystemExit), run.exception
    # As bytes, since the runner's text has other line ends.
    assert not _RAW.search(run.stdout_bytes.decode())
    assert not _RAW.search(run.stderr_bytes.decode())
    return run


@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_no_control_character_is_printed(service: HostileService, words: tuple[str, ...]) -> None:
    printed(*_given(words, service))


@pytest.mark.parametrize("words", [words for words in _COMMANDS if _NO_JSON.isdisjoint(words)], ids=" ".join)
def test_json_has_no_control_character_either(service: HostileService, words: tuple[str, ...]) -> None:
    for line in printed(*_given(words, service), "-o", "json").stdout.splitlines():
        json.loads(line)


def test_firings_are_delivered_escaped_as_json(
    service: HostileService, capfd: pytest.CaptureFixture[str]
) -> None:
    delivered = printed("deliver", "--detector", _detector(service), "--to", "-")
    line = capfd.readouterr().out
    assert not _RAW.search(line)
    assert json.loads(line)["name"] == HOSTILE
    assert r"1001 \x1b]52" in delivered.stderr


def test_names_are_shown_as_they_are_but_escaped(service: HostileService) -> None:
    shown = on_one_line(HOSTILE)
    for words in (("detectors", "list"), ("rules", "list", "--detector", _detector(service))):
        assert shown in printed(*words).stdout
    assert shown in printed("rules", "show", _rule(service), "--detector", _detector(service)).stdout
    [listed] = json.loads(printed("detectors", "list", "-o", "json").stdout)
    assert listed["name"] == HOSTILE


def test_refusals_of_a_service_are_escaped(service: HostileService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        service,
        "answer",
        lambda request: HostileService.answer(service, httpx.Request("GET", "http://s/refused")),
    )
    assert r"\x1b]52" in printed("detectors", "list").stderr


def test_on_a_terminal_cells_are_neither_obeyed_nor_markup() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=200, color_system=None)
    print_table(("name", "fired"), [(HOSTILE, "1"), ("[red]", "\\")], console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert not _RAW.search(shown)
    assert on_one_line(HOSTILE) in shown
    assert "[red]" in shown


def test_under_a_progress_bar_lines_are_escaped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    terminal: Any = io.TextIOWrapper(raw, "utf-8", write_through=True)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)

    @click.command()
    def echo() -> None:
        with BarGauge(Console(force_terminal=True, width=40, color_system="standard"), 10) as gauge:
            gauge.advance(1, 5)
            click.echo(f"<{HOSTILE}>")
            click.echo(f"<{HOSTILE}>", err=True)

    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setitem(main.commands, "echo", echo)
    assert main(["echo"], standalone_mode=False) is None
    shown = raw.getvalue().decode()
    assert shown.count(f"<{escaped(HOSTILE)}>") == 2
    assert "1 events" in shown
    # The bar's own sequences are none of a stranger.
    assert ("\x1b[90m" in shown, r"\x1b[90m" in shown) == (True, False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def make() -> None:
        async with local_service(tmp_path / "made") as service:
            await service.backend.create_detector("\u202eturned")
            shutil.copytree(tmp_path / "made", tmp_path / "data")

    asyncio.run(make())
    (tmp_path / "data" / "detectors" / _FILE).mkdir()
    return tmp_path / "data"


def test_the_commands_for_a_data_folder_escape_what_is_in_it(data: Path, tmp_path: Path) -> None:
    name = _FILE
    assert r"\x1b]52" in printed("inspect", str(data), "--rules").stdout
    assert r"\u202eturned" in printed("inspect", str(data)).stdout
    assert json.loads(printed("inspect", str(data), "--json").stdout)["orphans"][0].endswith(name)
    assert r"\x1b]52" in printed("repair", str(data), "--yes").output
    assert r"\x1b]52" in printed("retry", "--data", str(data), "--detector", name).output
    assert r"\x1b]52" in printed("backup", "--data", str(data), str(tmp_path / name)).output
    assert r"\x1b]52" in printed("restore", "--data", str(data), str(tmp_path / name / "x")).output
    assert r"\x1b]52" in printed("token", "new", "--data", str(data / "identity" / name)).output


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    events = '{"time": 1709542800, "user": "ä😀"}\n{"time": 1709542801}\n'
    (tmp_path / "events.ndjson").write_text(events, "utf-8")
    (tmp_path / "rules.yaml").write_text("r: per user exists user\n")
    return tmp_path


def shell(folder: Path, line: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a line of the shell in a folder, in which RD is the command."""
    return subprocess.run(
        ["sh", "-c", line.replace("RD", shlex.quote(PROGRAM))],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["--version", "check --schema", "try rules.yaml events.ndjson"])
def test_a_full_disk_is_told_in_words(rules: Path, arguments: str) -> None:
    ran = shell(rules, f"RD {arguments} > /dev/full")
    assert ran.returncode == 1
    assert ran.stderr == b"rule-detector: the output cannot be written: no space left on device\n"


def test_standard_error_goes_on_after_its_disk_was_full() -> None:
    class Full(io.StringIO):
        room = False

        def write(self, text: str) -> int:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(text)

    full = Full()
    stream = EscapingStream(full)
    with pytest.raises(OSError, match="No space left"):
        stream.write("lost")
    full.room = True
    stream.write("kept")
    assert full.getvalue() == "kept"


@pytest.mark.slow
def test_a_closed_pipe_ends_a_command_silently(rules: Path) -> None:
    ran = shell(rules, "{ RD try rules.yaml events.ndjson; echo $? >&2; } | true")
    assert ran.stderr == b"1\n"


@pytest.mark.slow
def test_closed_standard_streams_are_like_dev_null(rules: Path) -> None:
    ran = shell(rules, "RD try rules.yaml - <&-")
    assert (ran.returncode, ran.stdout[:8]) == (0, b"0 events")
    ran = shell(rules, "RD try rules.yaml events.ndjson >&-")
    assert (ran.returncode, ran.stderr) == (0, b"")
    ran = shell(rules, "RD try rules.yaml events.ndjson 2>&-")
    assert (ran.returncode, ran.stdout.count(b"events.ndjson, line 1")) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_encoding_lacks_are_escaped(rules: Path, encoding: str) -> None:
    ran = shell(rules, "RD try rules.yaml events.ndjson", PYTHONIOENCODING=encoding)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert rb"\U0001f600" in ran.stdout
