"""The broker between front ends and workers, and how front ends reach it."""
