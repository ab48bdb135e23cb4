"""Translates SQL between dialects, with sqlglot: a parser of 31 dialects in plain Python."""

import sqlglot
from sqlglot.errors import ParseError

# sqlglot loads a dialect when it is first asked for. These dialects are loaded when the component
# is built, and no job needs the time.
DIALECTS = ["bigquery", "duckdb", "mysql", "postgres", "snowflake", "sqlite"]
for dialect in DIALECTS:
    sqlglot.Dialect.get_or_raise(dialect)


def handler(job):
    job_input = job["input"]
    for side in ("from", "to"):
        if job_input.get(side) not in DIALECTS:
            return {"error": f"{side}: expected one of {', '.join(DIALECTS)}"}
    try:
        statements = sqlglot.transpile(
            job_input["sql"], read=job_input["from"], write=job_input["to"], pretty=True
        )
    except ParseError as error:
        mistake = error.errors[0]
        return {
            "error": f"line {mistake['line']}, column {mistake['col']}: {mistake['description']}"
        }
    return {"statements": statements}
