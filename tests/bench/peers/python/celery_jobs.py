"""The application that Celery's workers and the client share. A job that its worker has not
finished is not acknowledged, so that it is not lost with the worker."""

import os

from celery import Celery
from celery.signals import worker_ready

redis = f"redis://127.0.0.1:{os.environ['PEER_REDIS_PORT']}/0"
app = Celery("peer", broker=redis, backend=redis)
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True


@app.task(name="echo")
def echo(value):
    return value


@worker_ready.connect
def say_ready(**_):
    print("ready")
