"""Answers HTTP requests: a greeting, and how many words a text has."""

import bottle
import gristmill

app = bottle.Bottle()


@app.get("/")
def greet() -> str:
    bottle.response.content_type = "text/plain"
    return "hello\n"


@app.post("/words")
def count() -> dict[str, object]:
    data = bottle.request.json
    if not isinstance(data, dict) or not isinstance(data.get("text"), str):
        bottle.response.status = 400
        return {"error": "text: expected a string"}
    words = data["text"].split()
    print(f"{len(words)} words")
    return {"words": len(words)}


gristmill.wsgi.serve(app)
