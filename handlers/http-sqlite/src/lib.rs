//! A REST API on SQLite: items with a name and a number, below `/items`. The database is a file of the
//! endpoint's volume.

use std::env;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wstd::http::{Body, Error, Method, Request, Response, StatusCode};

/// How long a request waits for the lock of the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Most items of one answer.
const ITEMS_SHOWN: u32 = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewItem {
    name: String,
    count: i64,
}

#[derive(Debug, PartialEq, Serialize)]
struct Item {
    id: i64,
    name: String,
    count: i64,
}

#[wstd::http_server]
async fn main(request: Request<Body>) -> Result<Response<Body>, Error> {
    let (head, mut body) = request.into_parts();
    let body = body.contents().await?;
    let (status, answer) = match open() {
        Ok(db) => answer(&db, &head.method, head.uri.path(), body),
        Err(error) => failed(&error),
    };
    let response = Response::builder().status(status);
    Ok(match answer {
        Some(value) => response
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&value)?.into())?,
        None => response.body(().into())?,
    })
}

/// Opens the database. Its lock is a directory beside the file, since volumes have no locks of files.
fn open() -> rusqlite::Result<Connection> {
    let path = env::var("DATABASE").unwrap_or_else(|_| "/workspace/items.db".to_owned());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let db = Connection::open_with_flags_and_vfs(path, flags, c"unix-dotfile")?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    prepare(&db)?;
    Ok(db)
}

fn prepare(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS items (
           id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, count INTEGER NOT NULL
         )",
    )
}

/// The status, and the JSON of the answer.
type Answer = (StatusCode, Option<Value>);

fn answer(db: &Connection, method: &Method, path: &str, body: &[u8]) -> Answer {
    let item = path.strip_prefix("/items/").map(str::parse::<i64>);
    let result = match (method.as_str(), path, item) {
        ("GET", "/items", _) => list(db),
        ("POST", "/items", _) => with_item(body, |item| create(db, item)),
        ("GET", _, Some(Ok(id))) => read(db, id),
        ("PUT", _, Some(Ok(id))) => with_item(body, |item| replace(db, id, item)),
        ("DELETE", _, Some(Ok(id))) => delete(db, id),
        (_, "/items", _) | (_, _, Some(Ok(_))) => {
            Ok(refused(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not possible here")))
        }
        _ => Ok(refused(StatusCode::NOT_FOUND, format!("there is no {path}"))),
    };
    result.unwrap_or_else(|error| failed(&error))
}

fn refused(status: StatusCode, error: String) -> Answer {
    (status, Some(json!({ "error": error })))
}

fn failed(error: &rusqlite::Error) -> Answer {
    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) {
        return refused(StatusCode::CONFLICT, "there is an item of this name".to_owned());
    }
    // The log alone gets the cause.
    eprintln!("{error}");
    refused(StatusCode::INTERNAL_SERVER_ERROR, "the database failed".to_owned())
}

fn with_item(
    body: &[u8],
    work: impl FnOnce(NewItem) -> rusqlite::Result<Answer>,
) -> rusqlite::Result<Answer> {
    match serde_json::from_slice(body) {
        Ok(item) => work(item),
        Err(error) => Ok(refused(StatusCode::BAD_REQUEST, error.to_string())),
    }
}

fn item(row: &Row<'_>) -> rusqlite::Result<Item> {
    Ok(Item { id: row.get(0)?, name: row.get(1)?, count: row.get(2)? })
}

fn list(db: &Connection) -> rusqlite::Result<Answer> {
    let mut query = db.prepare("SELECT id, name, count FROM items ORDER BY id LIMIT ?1")?;
    let items = query.query_map([ITEMS_SHOWN], item)?;
    let items: Vec<_> = items.collect::<rusqlite::Result<_>>()?;
    Ok((StatusCode::OK, Some(json!(items))))
}

fn create(db: &Connection, NewItem { name, count }: NewItem) -> rusqlite::Result<Answer> {
    db.execute("INSERT INTO items (name, count) VALUES (?1, ?2)", (&name, count))?;
    let created = Item { id: db.last_insert_rowid(), name, count };
    Ok((StatusCode::CREATED, Some(json!(created))))
}

fn read(db: &Connection, id: i64) -> rusqlite::Result<Answer> {
    let found = db.query_row("SELECT id, name, count FROM items WHERE id = ?1", [id], item);
    Ok(match found.optional()? {
        Some(found) => (StatusCode::OK, Some(json!(found))),
        None => missing(id),
    })
}

fn replace(db: &Connection, id: i64, NewItem { name, count }: NewItem) -> rusqlite::Result<Answer> {
    let query = "UPDATE items SET name = ?2, count = ?3 WHERE id = ?1";
    Ok(match db.execute(query, (id, &name, count))? {
        0 => missing(id),
        _ => (StatusCode::OK, Some(json!(Item { id, name, count }))),
    })
}

fn delete(db: &Connection, id: i64) -> rusqlite::Result<Answer> {
    Ok(match db.execute("DELETE FROM items WHERE id = ?1", [id])? {
        0 => missing(id),
        _ => (StatusCode::NO_CONTENT, None),
    })
}

fn missing(id: i64) -> Answer {
    refused(StatusCode::NOT_FOUND, format!("there is no item {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_created_changed_and_deleted() {
        let db = Connection::open_in_memory().unwrap();
        prepare(&db).unwrap();
        let call = |method: &str, path: &str, body: &str| {
            let (status, answer) = answer(&db, &method.parse().unwrap(), path, body.as_bytes());
            (status.as_u16(), answer.unwrap_or_default())
        };
        let rye = json!({ "id": 1, "name": "rye", "count": 3 });
        assert_eq!(call("GET", "/items", ""), (200, json!([])));
        assert_eq!(call("POST", "/items", r#"{"name":"rye","count":3}"#), (201, rye.clone()));
        assert_eq!(call("GET", "/items/1", ""), (200, rye.clone()));
        assert_eq!(call("POST", "/items", r#"{"name":"rye","count":1}"#).0, 409);
        let changed = call("PUT", "/items/1", r#"{"name":"rye","count":4}"#);
        assert_eq!((changed.0, &changed.1["count"]), (200, &json!(4)));
        assert_eq!(call("DELETE", "/items/1", ""), (204, Value::Null));
        for (method, path, body, status) in [
            ("DELETE", "/items/1", "", 404),
            ("GET", "/items/1", "", 404),
            ("PUT", "/items/1", r#"{"name":"rye","count":4}"#, 404),
            ("POST", "/items", "{}", 400),
            ("POST", "/items", r#"{"name":"rye","count":4,"x":1}"#, 400),
            ("PATCH", "/items/1", "", 405),
            ("GET", "/items/flour", "", 404),
            ("GET", "/", "", 404),
        ] {
            assert_eq!(call(method, path, body).0, status, "{method} {path} {body}");
        }
    }
}
