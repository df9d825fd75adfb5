"""How Hypercorn is set up for this application."""

from typing import Final

from hypercorn.config import Config

from api.settings import Settings

_KEEP_ALIVE_REQUESTS_MAX: Final = 100_000


def server_config(settings: Settings) -> Config:
    """Give Hypercorn's configuration; where to listen is for the caller to say."""
    config = Config()
    config.accesslog = "-" if settings.access_log else None
    config.errorlog = "-"
    config.include_server_header = False
    # Cuts off whoever is slow with the headers of a request, too. Longer than clients keep idle connections,
    # most of them 5 s, so that they are the ones who close.
    config.keep_alive_timeout = 15
    # Finite, since over HTTP/2 this is what bounds the streams that a caller may open and drop.
    config.keep_alive_max_requests = _KEEP_ALIVE_REQUESTS_MAX
    config.h11_max_incomplete_size = settings.max_header_bytes
    config.h2_max_header_list_size = settings.max_header_bytes
    # It would end handlers that run longer; their time is bounded by the application's own deadline.
    config.read_timeout = None
    config.graceful_timeout = settings.shutdown_grace_s
    config.backlog = 1024
    return config
