"""``runpod.serverless.modules.rp_progress``."""

from ....serverless import progress_update

__all__ = ["progress_update"]
