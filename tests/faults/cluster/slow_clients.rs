//! Clients that pause in the middle of an answer which another host forwards.

use std::time::Duration;

use gristmill_tests::guests;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::{sleep, timeout};

use crate::hosts::{first, further};
use crate::postgres::Database;

/// More than the buffers between the hosts and the client, so that the active host has to wait.
const OUTPUT_BYTES: usize = 19_000_000;

/// A host that confirms nothing is lost after 5 s; this one only has no room.
const PAUSE: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_client_that_pauses_gets_the_whole_answer_through_another_host() {
    let Some(database) = Database::new() else { return };
    let one = first(&database);
    let two = further(&database, &one);
    one.deploy(&guests::playground(), "play", json!({})).await;
    let client = one.client();
    let job = client.submit("play", json!({ "op": "output", "bytes": OUTPUT_BYTES })).await;
    client.until("play", &job, "COMPLETED").await;

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(two.address().parse().unwrap()).await.unwrap();
    let call = format!(
        "GET {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        two.client().path("play", &format!("status/{job}")),
        one.admin_key()
    );
    stream.write_all(call.as_bytes()).await.unwrap();
    let mut answer = vec![0; 1024];
    stream.read_exact(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    // The subject: a client that reads nothing meanwhile.
    sleep(PAUSE).await;
    let rest = timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
    let end = rest.expect("the answer is read to its end");
    assert!(end.is_ok() && answer.len() > OUTPUT_BYTES, "{end:?}, {} B", answer.len());
}
