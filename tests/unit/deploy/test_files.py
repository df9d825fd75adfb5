"""The files for deployment: what of them can be checked without the platforms that read them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from api.cli import main
from api.http.routes import OPERATIONS
from api.settings import settings
from engine.runtime.cluster.node_checks import WANTED
from tests.unit.deploy.monitoring import ALERTS, DEPLOY

ROOT = DEPLOY.parents[1]
KUBERNETES = DEPLOY / "kubernetes" / "rule-detector.yaml"
SERVE_IN_CLUSTER = DEPLOY / "container" / "serve-in-cluster"
UNIT = DEPLOY / "systemd" / "rule-detector.service"


def deployed() -> list[Path]:
    """The files for deployment, without what Python compiles of them."""
    return [path for path in DEPLOY.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]


def documents() -> dict[tuple[str, str], Any]:
    """The objects of Kubernetes by kind and name."""
    found = list(yaml.safe_load_all(KUBERNETES.read_text("utf-8")))
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def pods() -> list[Any]:
    """The templates of all pods."""
    found = documents()
    cluster = found["RayCluster", "rule-detector"]["spec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [
        found["Deployment", "rule-detector"]["spec"]["template"],
        *(group["template"] for group in groups),
    ]


def _kubernetes(name: str) -> Any:
    return yaml.safe_load((KUBERNETES.parent / name).read_text("utf-8"))


def test_each_file_has_its_line_in_the_page() -> None:
    page = (DEPLOY.parent / "DEPLOYING.md").read_text("utf-8")
    files = deployed()
    assert len(files) >= 8
    assert [path for path in files if f"deploy/{path.relative_to(DEPLOY)}" not in page] == []


def test_every_variable_in_the_files_is_a_setting() -> None:
    known = {setting.variable for setting in settings()}
    named = {
        name
        for path in deployed()
        for name in re.findall(r"RULE_DETECTOR_[A-Z_]+[A-Z]", path.read_text("utf-8"))
    }
    assert named
    assert named <= known


def test_what_kubernetes_objects_refer_to_is_there() -> None:
    found = documents()
    deployment = found["Deployment", "rule-detector"]["spec"]
    labels = deployment["template"]["metadata"]["labels"].items()
    for kind in ("Service", "PodDisruptionBudget"):
        selector = found[kind, "rule-detector"]["spec"]["selector"]
        assert (selector.get("matchLabels") or selector).items() <= labels
    assert deployment["selector"]["matchLabels"].items() <= labels
    for pod in pods():
        inside = found["NetworkPolicy", "rule-detector-inside"]["spec"]["podSelector"]["matchLabels"].items()
        assert inside <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
        claim = volumes["data"]["persistentVolumeClaim"]["claimName"]
        assert ("PersistentVolumeClaim", claim) in found
        assert {"name": "RAY_AUTH_MODE", "value": "token"} in container["env"]
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            for action in container.get(probe, {}).values():
                if isinstance(action, dict) and "port" in action:
                    assert action["port"] in ports
    callers = found["NetworkPolicy", "rule-detector-callers"]["spec"]
    assert callers["podSelector"]["matchLabels"].items() <= labels
    assert found["Service", "rule-detector"]["spec"]["ports"][0]["targetPort"] == "http"


def test_no_container_can_write_into_its_image_and_all_have_a_folder_for_ray() -> None:
    for pod in pods():
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
        assert {"name": "tmp", "emptyDir": {}} in pod["spec"]["volumes"]


def test_images_have_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    (image,) = _kubernetes("kustomization.yaml")["images"]
    assert image["newTag"] == version
    images = {container["image"] for pod in pods() for container in pod["spec"]["containers"]}
    assert images == {f"{image['name']}:{version}"}


def test_the_head_survives_its_pod_and_one_pod_of_detectors_is_evicted_at_a_time() -> None:
    found = documents()
    cluster = found["RayCluster", "rule-detector"]["spec"]
    redis = cluster["gcsFaultToleranceOptions"]
    assert re.fullmatch(r"[a-z.-]+:\d+", redis["redisAddress"])
    secret = redis["redisPassword"]["valueFrom"]["secretKeyRef"]["name"]
    assert f"kubectl create secret generic {secret} " in KUBERNETES.read_text("utf-8")
    budget = found["PodDisruptionBudget", "rule-detector-workers"]["spec"]
    assert budget["maxUnavailable"] == 1
    (group,) = cluster["workerGroupSpecs"]
    labels = {**group["template"]["metadata"]["labels"], "ray.io/group": group["groupName"]}
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    # Both conditions of a budget would have to hold for the front ends.
    front_ends = found["Deployment", "rule-detector"]["spec"]["template"]["metadata"]["labels"]
    assert not budget["selector"]["matchLabels"].items() <= front_ends.items()


def test_the_kustomization_has_all_files_and_prometheus_finds_its_port_and_its_job() -> None:
    resources = _kubernetes("kustomization.yaml")["resources"]
    files = {path.name for path in KUBERNETES.parent.iterdir()}
    assert {*resources, "kustomization.yaml"} == files
    service = documents()["Service", "rule-detector"]
    monitor = _kubernetes("monitoring.yaml")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
    assert ports[endpoint["port"]] == "probes"
    assert f'job="{service["metadata"]["labels"][monitor["jobLabel"]]}"' in ALERTS.read_text("utf-8")


def test_kubernetes_has_the_same_alert_rules() -> None:
    rule = _kubernetes("alerts.yaml")
    assert rule["kind"] == "PrometheusRule"
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text("utf-8"))


def test_a_pod_of_detectors_drains_its_node_before_it_ends_and_nothing_scales_by_itself() -> None:
    found = documents()
    cluster = found["RayCluster", "rule-detector"]["spec"]
    (group,) = cluster["workerGroupSpecs"]
    assert "enableInTreeAutoscaling" in cluster or (
        group["minReplicas"] == group["replicas"] == group["maxReplicas"]
    )
    pod = group["template"]["spec"]
    (container,) = pod["containers"]
    timeout, most_s, _, _, script = container["lifecycle"]["preStop"]["exec"]["command"]
    assert timeout == "timeout"
    assert int(most_s) < pod["terminationGracePeriodSeconds"]
    _, program, command, *arguments = script.split()
    assert program == "rule-detector"
    draining = main.get_command(click.Context(main), command)
    assert draining is not None
    given = draining.make_context(command, arguments).params
    assert given["node"] == '"$(hostname)"'
    assert given["url"] == "http://" + found["Service", "rule-detector"]["metadata"]["name"]
    # The token is that of the front ends, from the same secret.
    front_ends = found["Deployment", "rule-detector"]["spec"]["template"]["spec"]
    variables = {one["name"]: one.get("value") for one in front_ends["containers"][0]["env"]}
    assert str(given["token_file"]) == variables["RULE_DETECTOR_BOOTSTRAP_TOKEN_FILE"]
    for kind, holder in (("volumeMounts", container), ("volumes", pod)):
        (token,) = [one for one in holder[kind] if one["name"] == "token"]
        assert token in (front_ends["containers"][0] if holder is container else front_ends)[kind]


def test_every_ray_is_started_with_the_settings_of_the_page_and_heads_take_no_detectors() -> None:
    wanted = {
        "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
        "RAY_health_check_failure_threshold": str(WANTED),
        "RAY_worker_niceness": "0",
    }
    for pod in pods():
        (container,) = pod["spec"]["containers"]
        variables = {one["name"]: one.get("value") for one in container["env"]}
        assert wanted.items() <= variables.items()
    head = documents()["RayCluster", "rule-detector"]["spec"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    machines = yaml.safe_load((DEPLOY / "ray" / "cluster.yaml").read_text("utf-8"))
    starts = [machines[f"{kind}_start_ray_commands"][-1] for kind in ("head", "worker")]
    assert all(f" {name}={value} " in f" {start} " for start in starts for name, value in wanted.items())
    assert " --head --num-cpus=0 " in starts[0]


def test_probes_ask_operations_that_need_no_token() -> None:
    container = documents()["Deployment", "rule-detector"]["spec"]["template"]["spec"]["containers"][0]
    open_paths = {operation.path for operation in OPERATIONS if operation.is_open}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in open_paths
        assert container[probe]["httpGet"]["port"] == "probes", "callers must not keep it from an answer"
    variables = {one["name"]: one.get("value") for one in container["env"]}
    ports = {one["name"]: str(one["containerPort"]) for one in container["ports"]}
    assert variables["RULE_DETECTOR_PROBE_PORT"] == ports["probes"]
    pod = documents()["Deployment", "rule-detector"]["spec"]["template"]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == ports["probes"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz", (
        "a pod that is not ready must not be killed"
    )


def test_the_versions_of_ray_are_those_of_the_constraints() -> None:
    (version,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert documents()["RayCluster", "rule-detector"]["spec"]["rayVersion"] == version


def test_ray_up_accepts_the_form_of_its_file() -> None:
    spec = find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    schema = json.loads((Path(spec.origin).parent / "autoscaler" / "ray-schema.json").read_text("utf-8"))
    document = yaml.safe_load((DEPLOY / "ray" / "cluster.yaml").read_text("utf-8"))
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "unknown": 1}, schema)


def test_the_container_file_copies_what_is_there_and_does_not_run_as_root() -> None:
    lines = (DEPLOY / "container" / "Containerfile").read_text("utf-8").splitlines()
    instructions = [line.split() for line in lines if line and not line.startswith("#")]
    copied = [words[1] for words in instructions if words[0] == "COPY" and not words[1].startswith("--from")]
    assert copied
    assert [path for path in copied if not (ROOT / path).exists()] == []
    users = [words[1] for words in instructions if words[0] == "USER"]
    assert users[-1] == "10001"
    assert all(pod["spec"]["securityContext"]["runAsUser"] == 10001 for pod in pods())


def verify(unit: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Have systemd judge a unit, whose program need not be there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    copy = folder / unit.name
    text = re.sub("^ExecStart=\\S+", "ExecStart=/bin/true", unit.read_text("utf-8"), flags=re.MULTILINE)
    copy.write_text(text)
    return subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    done = verify(UNIT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("systemd/rule-detector.service", ["serve", "--port", "none"]),
        ("delivering/rule-detector-deliver.service", ["deliver", "--all"]),
    ],
)
def test_a_unit_does_not_start_again_what_wrong_settings_ended(unit: str, words: list[str]) -> None:
    status = CliRunner(env={"RULE_DETECTOR_TOKEN": ""}).invoke(main, words).exit_code
    assert f"\nRestartPreventExitStatus={status}\n" in (DEPLOY / unit).read_text("utf-8")


# -- serve-in-cluster, with programs that stand in for Ray and the service -----------------------------------

_RAY = '#!/bin/sh\necho "ray $*" >> "$LOG"\n'
_SERVICE = """#!/bin/sh
trap 'sleep 0.3; echo saved >> "$LOG"; exit 7' TERM
echo "serve $*" >> "$LOG"
while :; do sleep 0.05; done
"""


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """An environment with the two programs, and the file that they write to."""
    for name, text in (("ray", _RAY), ("rule-detector", _SERVICE)):
        program = tmp_path / name
        program.write_text(text)
        program.chmod(0o755)
    return {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "LOG": str(tmp_path / "log"),
        "RAY_CLUSTER": "head:6379",
    }


def test_a_signal_reaches_the_service_and_ray_ends_after_it(programs: dict[str, str]) -> None:
    log = Path(programs["LOG"])
    running = subprocess.Popen([str(SERVE_IN_CLUSTER), "--port", "1"], env=programs)
    try:
        until_s = time.monotonic() + 60
        while not (log.exists() and "serve" in log.read_text()) and time.monotonic() < until_s:
            time.sleep(0.02)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 7
    finally:
        running.kill()
    assert log.read_text().splitlines() == [
        "ray start --address=head:6379 --num-cpus=0 --disable-usage-stats",
        "serve serve --ray-address head:6379 --port 1",
        "saved",
        "ray stop --grace-period 5",
    ]


def test_the_status_of_a_service_that_ends_by_itself_is_passed_on(programs: dict[str, str]) -> None:
    (Path(programs["LOG"]).parent / "rule-detector").write_text("#!/bin/sh\nexit 3\n")
    done = subprocess.run([str(SERVE_IN_CLUSTER)], env=programs, timeout=60, check=False)
    assert done.returncode == 3


def test_the_programs_that_the_files_start_are_installed_by_the_wheel() -> None:
    scripts = Path(sys.executable).parent
    assert (scripts / "rule-detector").exists()
    assert (scripts / "ray").exists()
