//! A server whose answers pause in the middle, for commands that are stopped or overtaken there.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use gristmill_tests::PATIENCE;

/// Sends the first half of its body to each call. Its threads end with the process.
#[derive(Debug)]
pub(crate) struct PartialServer {
    pub(crate) url: String,
    calls: Receiver<Sender<()>>,
}

impl PartialServer {
    pub(crate) fn start(body: &[u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (send, calls) = channel();
        let body = body.to_owned();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (body, send) = (body.clone(), send.clone());
                thread::spawn(move || answer(connection.unwrap(), &body, &send));
            }
        });
        Self { url, calls }
    }

    /// Waits for a call that has got its half. A message makes the answer whole; without one, its
    /// connection breaks when the sender is dropped.
    pub(crate) fn paused(&self) -> Sender<()> {
        self.calls.recv_timeout(PATIENCE).unwrap()
    }
}

fn answer(mut connection: TcpStream, body: &[u8], calls: &Sender<Sender<()>>) {
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        let count = connection.read(&mut piece).unwrap();
        assert!(count > 0, "the call ends within its head");
        request.extend_from_slice(&piece[..count]);
    }
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    let (first, rest) = body.split_at(body.len() / 2);
    connection.write_all(&[head.as_bytes(), first].concat()).unwrap();
    let (go_on, told) = channel();
    // The test may have ended.
    let _ = calls.send(go_on);
    if told.recv().is_ok() {
        let _ = connection.write_all(rest);
    }
}
