"""The routes of the cluster and of the service itself."""

import msgspec

from api.http.request.head import authorization
from api.http.routes.described import Operations, describe
from api.http.service import request, service
from api.schema import examples
from api.schema.envelope import RequestRefusal, Response, success_of
from api.schema.messages import cluster as messages
from api.schema.messages.catalogue import PAGE_MAX, given
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.figures import ClusterFigures, NodeFigures
from engine.runtime.front_end.permits import Permit

blueprint = Operations("cluster")


@blueprint.get("/api/cluster")
@describe(
    scope="admin",
    summary="Show what runs where",
    text="Nodes, front ends, detector workers with their detectors, queues, memory, and disk space. The "
    "numbers are at most a second old. With `limit` or `after`, only a page of the workers, by name.",
    query=messages.ClusterQuery,
    result=messages.Cluster,
    result_example=examples.CLUSTER,
)
async def show_cluster(query: messages.ClusterQuery) -> Response:
    found = _seen(await service.backend.cluster(), request.permit)
    workers = sorted(found.workers, key=lambda worker: worker.name)
    if query != messages.ClusterQuery():
        after, most = given(query.after) or "", given(query.limit) or PAGE_MAX
        workers = [worker for worker in workers if worker.name > after][:most]
    page = msgspec.structs.replace(found, workers=workers)
    shown = msgspec.convert(page, messages.Cluster, from_attributes=True)
    return success_of(msgspec.structs.replace(shown, busiest=messages.Busiest.of(found.workers)))


def _seen(cluster: ClusterFigures, permit: Permit) -> ClusterFigures:
    """Return the figures without the detectors that a token may not use."""
    if permit.detectors is None:
        return cluster
    replace = msgspec.structs.replace
    workers = [
        replace(worker, detectors=[one for one in worker.detectors if permit.sees(one.id)])
        for worker in cluster.workers
    ]
    return replace(cluster, workers=workers, activating=list(filter(permit.sees, cluster.activating)))


@blueprint.post("/api/cluster/nodes/<id>/drain")
@describe(
    scope="admin",
    is_of_all=True,
    summary="Drain a node",
    text="No more workers are started there, its detectors are moved to other nodes one after another, and "
    "its workers end; the directory moves too. `GET /api/cluster` shows the progress. Repeating it changes "
    "nothing.",
    result=NodeFigures,
    own_codes=(1204,),
    result_example={**examples.CLUSTER["nodes"][0], "draining": "operator"},
)
async def drain_node(id: str) -> Response:
    return success_of(await service.backend.drain_node(id, draining=True, by=request.permit))


@blueprint.delete("/api/cluster/nodes/<id>/drain")
@describe(
    scope="admin",
    is_of_all=True,
    summary="Let a node take detectors again",
    text="Ends a drain by an operator, not one by Ray.",
    result=NodeFigures,
    own_codes=(1204,),
    result_example=examples.CLUSTER["nodes"][0],
)
async def undrain_node(id: str) -> Response:
    return success_of(await service.backend.drain_node(id, draining=False, by=request.permit))


@blueprint.get("/healthz")
@describe(
    scope="none",
    summary="Check that the process is alive",
    result=messages.Alive,
    result_example={"alive": True},
)
async def health() -> Response:
    return success_of(messages.Alive(alive=True))


@blueprint.get("/readyz")
@describe(
    scope="none",
    summary="Check that requests are served",
    text="With a token, the response also says why they are not, or lists problems that do not prevent it: "
    "`problems`, which names detectors and files. An unknown token counts as none here, so that a probe "
    "does not fail because of a revoked one.",
    result=messages.Ready,
    own_codes=(1501, 1503),
    result_example={"ready": True, "problems": []},
    says_more=True,
)
async def readiness() -> Response:
    try:
        permit = service.authenticator.permit(authorization(request.head))
    except (RequestRefusal, DetectorUnavailable):
        permit = None
    # Problems name detectors.
    tells = permit is not None and permit.may("read") and permit.detectors is None
    return await service.readiness.answer(has_token=tells)
