"""The files that deploy `rule-detector deliver`: its options, secrets and places fit together."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.cli.delivering.command import deliver
from api.cli.delivering.deliveries import Figures
from api.cli.delivering.templates import form_of
from rule_detector_client import Detector, Firing
from tests.unit.deploy.monitoring import DELIVER_ALERTS, DEPLOY, alerts, labels_in, metrics_in
from tests.unit.deploy.test_files import documents, verify

UNIT = DEPLOY / "delivering" / "rule-detector-deliver.service"
POD = DEPLOY / "delivering" / "deliver.yaml"


def objects() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(POD.read_text("utf-8"))}


def setting(name: str) -> list[str]:
    """The values that the unit has of a setting."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE)


def options(words: list[str], folders: dict[str, Path]) -> dict[str, Any]:
    """What the command makes of its words, with secrets in other folders."""
    for name, folder in folders.items():
        words = [word.replace(name, str(folder)) for word in words]
    assert [Path(words[0]).name, words[1]] == ["rule-detector", "deliver"]
    with deliver.make_context("deliver", words[2:]) as context:
        return context.params


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    for name in ("token", "to", "key"):
        (tmp_path / name).write_text(f"https://{name}\n")
        (tmp_path / name).chmod(0o600)
    return tmp_path


def test_the_unit_names_options_and_credentials_that_are_there(secrets: Path) -> None:
    given = options(shlex.split(setting("ExecStart")[0]), {"%d": secrets, "%S": secrets})
    assert given["token_file"] == secrets / "token"
    assert (given["to_secret"], given["secret"]) == ("https://to", "https://key")
    assert {line.partition(":")[0] for line in setting("LoadCredential")} == {"token", "to", "key"}
    for file in (given["state"], given["dead_letters"]):
        assert file.parent == secrets / setting("StateDirectory")[0]


def test_the_alerts_are_about_metrics_and_labels_that_it_has() -> None:
    figures = Figures()
    figures.follow("a", 1)
    samples = [one for family in figures.registry.collect() for one in family.samples]
    expressions = [rule["expr"] for rule in alerts(DELIVER_ALERTS)]
    used = set[str]().union(*map(metrics_in, expressions))
    assert used == {one.name for one in samples if one.name.startswith("rule_detector_")} - {
        *(f"rule_detector_deliver_{name}" for name in ("delivered_total", "place")),
        *(one.name for one in samples if one.name.endswith("_created")),
    }
    labels = {label for one in samples for label in one.labels}
    assert set[str]().union(*map(labels_in, expressions)) <= labels | {"job"}


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    done = verify(UNIT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_pod_names_options_secrets_and_volumes_that_are_there(secrets: Path) -> None:
    found = objects()
    pod = found["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    given = options(container["args"], {mounts["secrets"]: secrets})
    assert given["token_file"] == secrets / "token"
    assert (given["to_secret"], given["secret"]) == ("https://to", "https://key")
    assert {str(given["state"].parent), str(given["dead_letters"].parent)} == {mounts["places"]}
    assert given["metrics_port"] == container["ports"][0]["containerPort"]
    assert str(given["metrics_port"]) == pod["metadata"]["annotations"]["prometheus.io/port"]
    assert given["url"] == f"http://{documents()['Service', 'rule-detector']['metadata']['name']}"
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    assert volumes.keys() == mounts.keys()
    claim = volumes["places"]["persistentVolumeClaim"]["claimName"]
    assert claim == found["PersistentVolumeClaim"]["metadata"]["name"]
    secret = volumes["secrets"]["secret"]["secretName"]
    created = re.search(rf"kubectl create secret generic {secret} .*\n.*", POD.read_text("utf-8"))
    assert created is not None
    assert re.findall(r"--from-literal=(\w+)", created[0]) == ["token", "to", "key"]


def test_one_pod_at_a_time_delivers_and_cannot_reach_ray() -> None:
    spec = objects()["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    inside = documents()["NetworkPolicy", "rule-detector-inside"]["spec"]["podSelector"]["matchLabels"]
    assert not inside.items() <= labels.items()
    (container,) = spec["template"]["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    version = tomllib.loads((DEPLOY.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert container["image"] == f"rule-detector:{version}"


def test_the_template_for_pagerduty_has_what_its_events_require() -> None:
    firing = Firing(1, 0.0, "r", "forced", 1, {"user": "ada"}, found={"count(a)": 3})
    body = json.loads(
        form_of(str(DEPLOY / "delivering" / "pagerduty.json")).body(Detector("d", "shop"), firing)
    )
    assert body["event_action"] == "trigger"
    assert {"summary", "source", "severity"} <= body["payload"].keys()
    assert body["payload"]["severity"] in {"critical", "error", "warning", "info"}
    assert len(body["dedup_key"]) <= 255
    assert body["payload"]["custom_details"]["found"] == {"count(a)": 3}
