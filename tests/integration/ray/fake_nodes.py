"""Nodes that Ray's autoscaler starts on this machine: Ray's own fake ones, of a type that declares memory."""

from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class FakeNodes(FakeMultiNodeProvider):
    """Lets the node find out its memory, which Ray's provider cannot set."""

    def create_node_with_resources_and_labels(
        self, node_config: Any, tags: Any, count: int, resources: dict[str, Any], labels: Any
    ) -> None:
        without = {name: much for name, much in resources.items() if name != "memory"}
        super().create_node_with_resources_and_labels(node_config, tags, count, without, labels)
