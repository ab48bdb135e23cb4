"""``runpod.serverless.modules.rp_http``: the host takes results, so these URLs have no effect."""

JOB_DONE_URL = ""
JOB_STREAM_URL = ""
