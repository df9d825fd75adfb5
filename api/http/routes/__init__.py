"""The routes of the service: blueprints of views, each with the description of its operation."""

from typing import Final

from api.http.routes import cluster, detectors, evaluations, relations, rules, tokens

BLUEPRINTS: Final = tuple(
    file.blueprint for file in (tokens, detectors, evaluations, rules, relations, cluster)
)

OPERATIONS: Final = tuple(operation for blueprint in BLUEPRINTS for operation in blueprint.operations)
"""All operations: those of the interface and the additions."""

BY_ENDPOINT: Final = {
    f"{blueprint.name}.{operation.name}": operation
    for blueprint in BLUEPRINTS
    for operation in blueprint.operations
}
"""The operations by the names that Quart gives their routes."""
