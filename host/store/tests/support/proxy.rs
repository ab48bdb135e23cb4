//! A proxy in front of a PostgreSQL server, which loses connections as a network does: the client's
//! side ends, and the server does not notice.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::postgres::{Database, port};

/// A Unix socket that passes all bytes on to that of the server.
pub(crate) struct Proxy {
    directory: TempDir,
    connections: Arc<Mutex<Vec<Arc<Passed>>>>,
}

struct Passed {
    client: UnixStream,
    /// Open until the end of the test.
    server: UnixStream,
    /// What the client has sent.
    sent: Mutex<Vec<u8>>,
    /// The client has closed it.
    is_closed: AtomicBool,
}

impl Proxy {
    pub(crate) fn to(database: &Database) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = format!(".s.PGSQL.{}", port(&database.server));
        let listener = UnixListener::bind(directory.path().join(&socket)).unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (server, accepted) = (database.server.join(socket), connections.clone());
        std::thread::spawn(move || accept(&listener, &server, &accepted));
        Self { directory, connections }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Ends the client's side of the open connection on which the client has sent this text. On a
    /// slow machine the client may have given an earlier one up.
    pub(crate) fn cut(&self, text: &[u8]) {
        let connections = self.connections.lock();
        let has_sent =
            |passed: &Passed| passed.sent.lock().windows(text.len()).any(|part| part == text);
        let is_open = |passed: &Passed| !passed.is_closed.load(Ordering::Relaxed);
        let open: Vec<_> =
            connections.iter().filter(|passed| is_open(passed) && has_sent(passed)).collect();
        assert_eq!(open.len(), 1, "open connections with this text");
        open[0].client.shutdown(Shutdown::Both).unwrap();
    }
}

fn accept(listener: &UnixListener, server: &PathBuf, connections: &Mutex<Vec<Arc<Passed>>>) {
    // The listener lives as long as the program.
    while let Ok((client, _)) = listener.accept() {
        let server = UnixStream::connect(server).unwrap();
        let passed = Arc::new(Passed {
            client,
            server,
            sent: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        connections.lock().push(passed.clone());
        let answers = passed.clone();
        std::thread::spawn(move || copy(&answers.server, &answers.client, |_| ()));
        std::thread::spawn(move || {
            copy(&passed.client, &passed.server, |bytes| passed.sent.lock().extend(bytes));
            passed.is_closed.store(true, Ordering::Relaxed);
        });
    }
}

/// Copies bytes until one side ends; the other side stays open.
fn copy(mut from: &UnixStream, mut to: &UnixStream, seen: impl Fn(&[u8])) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        seen(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}
