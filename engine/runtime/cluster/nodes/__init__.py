"""What a joining service asks the nodes of the cluster."""
