"""``runpod.serverless.modules``: those that handlers use."""

from . import rp_http, rp_logger, rp_progress

__all__ = ["rp_http", "rp_logger", "rp_progress"]
