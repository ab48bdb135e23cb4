"""``runpod.serverless.utils.rp_cuda``."""


def is_available() -> bool:
    """False: a component has no GPU."""
    return False
