"""While nodes fail, some order of the requests explains the answers to concurrent clients."""

import pytest

from tests.linearizability.namespaces import WHY_NOT, possible
from tests.linearizability.proof import prove
from tests.linearizability.scenarios import PATIENT, SHORT, SHORT_OF_NAMESPACES

NAMESPACES = pytest.param(True, id="namespaces")
# With namespaces, the scenarios of the other clusters are played in them too.
RAYLETS = pytest.param(False, id="raylets", marks=[pytest.mark.long] if possible() else [])


@pytest.mark.ray
@pytest.mark.parametrize("partitions", [RAYLETS, NAMESPACES])
def test_some_order_explains_all_answers_while_processes_and_nodes_fail(partitions, tmp_path, seed):
    if partitions and not possible():
        pytest.skip(WHY_NOT)
    scenarios = SHORT + SHORT_OF_NAMESPACES if partitions else SHORT
    came = prove(
        tmp_path,
        scenarios,
        nodes=3 if partitions else 2,
        partitions=partitions,
        detectors=3,
        clients=5,
        pause_s=0.02,
        seed=seed,
    )
    print(*came.lines(), sep="\n")
    assert not came.violations, "\n\n".join(came.violations)
    assert not [outcome for outcome in came.outcomes if outcome.startswith("unexpected")]
    assert came.requests > 300


@pytest.mark.ray
@pytest.mark.long
def test_a_cluster_whose_head_was_cut_off_for_20_s_goes_on(tmp_path, seed):
    if not possible():
        pytest.skip(WHY_NOT)
    came = prove(
        tmp_path,
        PATIENT,
        nodes=3,
        partitions=True,
        patient=True,
        detectors=3,
        clients=4,
        pause_s=0.05,
        seed=seed,
    )
    print(*came.lines(), sep="\n")
    assert not came.violations, "\n\n".join(came.violations)
