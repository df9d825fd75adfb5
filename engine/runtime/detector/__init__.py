"""The inside of a worker: operations are applied, journaled and replayed."""
