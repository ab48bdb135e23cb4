"""The echo handler on the documented service's own development server."""

import runpod

runpod.serverless.start({"handler": lambda job: job["input"]})
