"""Places detectors in workers and workers on nodes, in the directory's process."""
