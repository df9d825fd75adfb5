"""The handlers of the operations. The longer ones have files of their own."""
