"""`rule-detector relations`, and the calls of the client, against a service over a real socket."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from api.cli import main
from api.http.app import Application
from api.settings import Settings
from rule_detector_client import AsyncClient, Client, calls
from tests.api.conftest import BOOTSTRAP
from tests.api.wire import served
from tests.local_runtime.service import LocalService

pytestmark = pytest.mark.parametrize("service", ["apart"], indirect=True)


def runs(url: str, *arguments: str, stdin: bytes = b"", status: int = 0) -> str:
    env = {"RULE_DETECTOR_URL": url, "RULE_DETECTOR_TOKEN": BOOTSTRAP}
    words = ["relations", *arguments, "--detector", "shop"]
    ran = CliRunner().invoke(main, words, env=env, input=stdin)
    assert ran.exit_code == status, ran.output
    return ran.output


def use(url: str, folder: Path) -> None:
    with Client(url, BOOTSTRAP) as client:
        shop = client.send(calls.create_detector("shop")).id
    text, rows, lines = folder / "blocked.txt", folder / "owns.csv", folder / "owns.ndjson.gz"
    text.write_text("# Berlin\n10.0.0.1\n\n 10.0.0.2 \n")
    rows.write_text('user,n\n"a,b",1\nbob,2\n')
    lines.write_bytes(gzip.compress(b'["eve",3]\n'))
    assert runs(url, "put", "blocked", str(text)) == "The relation `blocked` has 2 tuples.\n"
    assert runs(url, "put", "owns", str(rows), "--header", "--types", "string,number").endswith("2 tuples.\n")
    assert runs(url, "show", "owns") == '"a,b",1\nbob,2\n'
    assert runs(url, "show", "owns", "--limit", "1", "-o", "json") == '["a,b",1]\n'
    assert json.loads(runs(url, "put", "owns", str(lines), "-o", "json"))["tuples"] == 1
    document = folder / "owns.json"
    document.write_text('{"tuples": [["eve", 3]]}')
    assert "1001 line 1: expected" in runs(url, "put", "owns", str(document), status=1)
    assert runs(url, "put", "owns", "-", "--format", "ndjson", stdin=b'["eve",3]\n').endswith("1 tuple.\n")
    assert "1001 line 1: expected" in runs(
        url, "put", "owns", "-", "--format", "ndjson", stdin=b"{}", status=1
    )
    listed = json.loads(runs(url, "list", "-o", "json"))["relations"]
    assert [(one["name"], one["tuples"], one["arity"]) for one in listed] == [
        ("blocked", 2, 1),
        ("owns", 1, 2),
    ]
    assert runs(url, "list").split("\n")[1].split()[:3] == ["blocked", "2", "1"]
    many = folder / "many.txt"
    many.write_text("# more\n" + "".join(f"{n}\n" for n in range(2_500)))
    assert runs(url, "add", "blocked", "10.0.0.3", "--file", str(many)).endswith("2503 tuples.\n")
    assert runs(url, "remove", "blocked", "--file", str(many)).endswith("3 tuples.\n")
    assert runs(url, "add", "owns", '["zoe", 4]').endswith("2 tuples.\n")
    assert "is no tuple" in runs(url, "add", "owns", '["zoe", {}]', status=2)
    assert "`--header` and `--types` are for CSV" in runs(url, "put", "x", str(text), "--header", status=2)
    assert "Give a TUPLE" in runs(url, "add", "owns", status=2)
    assert "none.csv: no such file" in runs(url, "put", "x", str(folder / "none.csv"), status=1)
    assert runs(url, "delete", "owns", "--yes") == "The relation `owns` is deleted.\n"
    assert "1203" in runs(url, "delete", "owns", "--yes", status=1)
    with Client(url, BOOTSTRAP) as client:
        tuples = [[f"user {n}", n] for n in range(2_500)]
        assert client.send(calls.put_relation(shop, "a/b", tuples)).tuples == 2_500
        assert list(client.tuples(shop, "a/b")) == tuples
        csv = calls.put_relation(shop, "a/b", b"x,1\n", "text/csv", types="string,number")
        assert client.send(csv).tuples == 1
        assert client.send(calls.patch_relation(shop, "a/b", remove=[("x", 1)])).arity is None


async def use_async(url: str) -> None:
    async with AsyncClient(url, BOOTSTRAP) as client:
        [shop] = [one.id async for one in client.detectors()]
        await client.send(calls.put_relation(shop, "r", ["a", "b"]))
        assert [one async for one in client.tuples(shop, "r")] == [["a"], ["b"]]
        assert (await client.send(calls.delete_relation(shop, "r"))).name == "r"


async def test_relations_are_put_shown_changed_and_deleted(
    service: LocalService, settings: Settings, tmp_path: Path
) -> None:
    async with served(Application(settings, service.backend), settings) as wire:
        url = f"http://127.0.0.1:{wire.port}"
        await asyncio.to_thread(use, url, tmp_path)
        await use_async(url)
