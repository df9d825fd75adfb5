"""Encodes and decodes the bytes of all files, without any I/O."""
