"""The routes of the cluster and of the service itself."""

import msgspec

from api.http.request.head import authorization
from api.http.routes.described import Operations, describe
from api.http.service import request, service
from api.schema import examples
from api.schema.envelope import Response, success_of
from api.schema.messages import cluster as messages
from api.schema.messages.catalogue import PAGE_MAX, given
from engine.runtime.contract.measurements.figures import NodeFigures

blueprint = Operations("cluster")


@blueprint.get("/api/cluster")
@describe(
    summary="Show what runs where",
    text="Nodes, front ends, detector workers with their detectors, what waits, memory, and disk room. "
    "The numbers are at most a second old. With `limit` or `after`, only a page of the workers, by name.",
    query=messages.ClusterQuery,
    result=messages.Cluster,
    result_example=examples.CLUSTER,
)
async def show_cluster(query: messages.ClusterQuery) -> Response:
    found = await service.backend.cluster()
    workers = sorted(found.workers, key=lambda worker: worker.name)
    if query != messages.ClusterQuery():
        after, most = given(query.after) or "", given(query.limit) or PAGE_MAX
        workers = [worker for worker in workers if worker.name > after][:most]
    page = msgspec.structs.replace(found, workers=workers)
    shown = msgspec.convert(page, messages.Cluster, from_attributes=True)
    return success_of(msgspec.structs.replace(shown, busiest=messages.Busiest.of(found.workers)))


@blueprint.post("/api/cluster/nodes/<id>/drain")
@describe(
    summary="Drain a node",
    text="No worker is started there from now on, its detectors are moved to other nodes one after the "
    "other, and its workers end; the directory moves too. `GET /api/cluster` shows the progress. "
    "Repeating it changes nothing.",
    result=NodeFigures,
    own_codes=(1204,),
    result_example={**examples.CLUSTER["nodes"][0], "draining": "operator"},
)
async def drain_node(id: str) -> Response:
    return success_of(await service.backend.drain_node(id, draining=True))


@blueprint.delete("/api/cluster/nodes/<id>/drain")
@describe(
    summary="Let a node take detectors again",
    text="Ends a drain that an operator asked for, not one by Ray.",
    result=NodeFigures,
    own_codes=(1204,),
    result_example=examples.CLUSTER["nodes"][0],
)
async def undrain_node(id: str) -> Response:
    return success_of(await service.backend.drain_node(id, draining=False))


@blueprint.get("/healthz")
@describe(
    summary="Tell whether the process is alive",
    result=messages.Alive,
    result_example={"alive": True},
)
async def health() -> Response:
    return success_of(messages.Alive(alive=True))


@blueprint.get("/readyz")
@describe(
    summary="Tell whether requests are served",
    text="With a token, the response also says why they are not, or what is wrong although they are: "
    "`problems`, which names detectors and files. An unknown token counts as none here, so that a "
    "revoked one does not make a probe fail.",
    result=messages.Ready,
    own_codes=(1501, 1503),
    result_example={"ready": True, "problems": []},
    says_more=True,
)
async def readiness() -> Response:
    has_token = service.authenticator.objection(authorization(request.head)) is None
    return await service.readiness.answer(has_token=has_token)
