"""A service that joins a cluster changes no folder before the cluster has said which one it serves."""

from pathlib import Path

import pytest

from api.process import supervisor
from api.process.listening import StartError
from api.settings import Settings
from engine.runtime.cluster.session.joining import ClusterError
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import WrongFolder


def nothing(*_: object) -> None:
    """Leave this process as it is."""


@pytest.fixture
def unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `run` leave the log, the signals and the environment of this process alone."""
    monkeypatch.setattr(supervisor.logs, "set_up", nothing)
    for name in ("_interrupt_on_signals", "keep_needed", "raise_limit"):
        monkeypatch.setattr(supervisor, name, nothing)


async def work(_: supervisor.Running) -> bool:
    return False


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("address", ["local", "127.0.0.1:6379"])
def test_only_a_service_with_a_ray_of_its_own_begins_its_folder_before_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def no_ray(*_: object) -> None:
        raise ClusterError("there is no Ray here")

    monkeypatch.setattr(supervisor, "start_ray", no_ray)
    data = tmp_path / "data"
    with pytest.raises(StartError, match="there is no Ray here"):
        supervisor.run(Settings(data=data, ray_address=address, port=0), work)
    assert data.exists() == (address == "local")


@pytest.mark.parametrize("is_wrong", [True, False])
def test_the_cluster_is_asked_for_its_folder_and_the_wrong_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_wrong: bool
) -> None:
    def begin(data: Path, **options: object) -> str:
        assert options["must_exist"] is False
        if is_wrong:
            raise WrongFolder("it is not the service's data folder")
        return begin_folder(data)

    tried: list[str] = []
    monkeypatch.setattr(supervisor, "refuse_other_versions", list)
    monkeypatch.setattr(supervisor, "patience_warning", nothing)
    monkeypatch.setattr(supervisor, "begin_joined_folder", begin)
    monkeypatch.setattr(supervisor, "try_nodes", lambda _, folder_id: tried.append(folder_id) or [])
    data = tmp_path / "data"
    settings = Settings(data=data, ray_address="127.0.0.1:6379")
    if is_wrong:
        with pytest.raises(StartError, match="it is not the service's data folder"):
            supervisor._refuse_nodes(settings)
        assert not data.exists()
        return
    supervisor._refuse_nodes(settings)
    assert tried == [begin_folder(data)]
