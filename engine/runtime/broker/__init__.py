"""The process between front ends and actors, and how front ends reach it."""
