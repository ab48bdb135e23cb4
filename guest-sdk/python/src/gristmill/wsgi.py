"""HTTP requests in place of jobs, answered by an application of WSGI (PEP 3333), such as one of Bottle
or Flask.

    import bottle
    import gristmill

    app = bottle.Bottle()

    @app.get("/")
    def index():
        return "hello\\n"

    gristmill.wsgi.serve(app)

The component exports ``wasi:http/incoming-handler``, and its endpoint has the type
``LOAD_BALANCER``. Bodies come and go in pieces. An instance answers one request at a time.
``gristmill.context()`` is there during a request, for its log, :meth:`Context.submit` and
:meth:`Context.call`; it has no job, so its ``job_id`` is empty, and nobody gets chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ._handler import Server, register

Application = TypeVar("Application", bound=Callable[..., Any])


def serve(application: Application) -> Application:
    """Makes a WSGI application the handler of this component; returns it at once."""
    if not callable(application):
        kind = type(application).__name__
        raise TypeError(f"a WSGI application is called with (environ, start_response), not {kind}")
    register(Server(application))
    return application
