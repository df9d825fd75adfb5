"""The inside of an actor: operations applied, journaled, and replayed."""
