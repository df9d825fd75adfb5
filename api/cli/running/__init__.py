"""The commands of whoever runs the service."""
