"""A page with a form: a guest book, whose entries are a file of the volume."""

import html
import json
import os
import time
from pathlib import Path

import bottle
import gristmill

TEXT_CHARS_MAX = 1_000
ENTRIES_SHOWN = 50

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Guest book</title>
<h1>Guest book</h1>
<form method="post" action="{action}">
  <p><label>Name <input name="name" required maxlength="100"></label>
  <p><label>Text <textarea name="text" required maxlength="{most}"></textarea></label>
  <p><button>Sign</button>
</form>
<p>{notice}
{entries}
</html>
"""

app = bottle.Bottle()


def book() -> Path:
    return Path(os.environ.get("BOOK", "/workspace/book.jsonl"))


def entries() -> list[dict[str, str]]:
    try:
        lines = book().read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines[-ENTRIES_SHOWN:]]


def page(notice: str = "") -> str:
    bottle.response.content_type = "text/html; charset=utf-8"
    # Whatever a guest has written is text, and no part of the page.
    shown = [
        f"<p><b>{html.escape(entry['name'])}</b>: {html.escape(entry['text'])}"
        for entry in reversed(entries())
    ]
    # The path that the client sees, such as /http/form/.
    action = html.escape(bottle.request.script_name)
    entry_list = "\n".join(shown)
    return PAGE.format(action=action, most=TEXT_CHARS_MAX, notice=notice, entries=entry_list)


@app.get("/")
def show() -> str:
    return page()


@app.post("/")
def sign() -> str:
    name, text = bottle.request.forms.getunicode("name"), bottle.request.forms.getunicode("text")
    if not name or not text or len(name) > 100 or len(text) > TEXT_CHARS_MAX:
        bottle.response.status = 400
        return page("Please fill in both fields.")
    line = json.dumps({"name": name, "text": text, "at": int(time.time())})
    # One step, so that requests at the same time lose no entry.
    with book().open("a") as file:
        file.write(line + "\n")
    # Another request then shows the page: a reload sends no second entry.
    bottle.response.status = 303
    bottle.response.set_header("location", bottle.request.script_name)
    return ""


gristmill.wsgi.serve(app)
