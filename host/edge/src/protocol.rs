//! HTTP on one connection: the bounds of its requests, and the start of its calls.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use hyper::rt::Executor;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto::Builder;

use crate::addresses::Account;
use crate::connection_shares::ConnectionAuth;
use crate::thread_time::Measured;

/// Largest head of a request on HTTP/1.1, in bytes; beyond it the answer is 431.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The same on HTTP/2, where each field counts as 32 bytes more (RFC 9113, section 6.5.2). HTTP/2
/// unpacks the heads of 256 calls before the host sees the first of them.
const UNPACKED_HEAD_BYTES_MAX: u32 = 16 << 10;

/// Streams that one HTTP/2 connection may have open. Further ones are refused, and may be tried
/// again.
const STREAMS_MAX: u32 = 256;

/// Streams that an HTTP/2 client may reset before the host has handled them. With one more the
/// connection is closed: opening and resetting costs a client less than the host.
const PENDING_RESETS_MAX: usize = 20;

/// Most fields of a head, as on HTTP/1.1, where hyper counts them. A field of one byte on the wire
/// takes some 100 bytes here.
pub(crate) const FIELDS_MAX: usize = 100;

/// HTTP/2 takes the next piece of an answer once fewer bytes of the answer than these are in its
/// queue. Up to twice as many may be in the queue when their call has ended: 256 KiB for the 256
/// streams of a connection, of the same order as the last piece of an HTTP/1 answer.
pub(crate) const QUEUED_BYTES_MAX: usize = 512;

/// The HTTP of one connection.
pub(crate) fn http(executor: CallExecutor) -> Builder<CallExecutor> {
    let mut builder = Builder::new(executor);
    // The connection bounds the time of a head, also before the protocol is known.
    builder.http1().header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(QUEUED_BYTES_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_header_list_size(UNPACKED_HEAD_BYTES_MAX);
    builder
}

/// Starts the calls of an HTTP/2 connection. Until a call has shown a valid key, each call is
/// polled before it becomes a task: its key is checked before the head of the next call is looked
/// at, and a refused call never becomes a task.
#[derive(Debug, Clone)]
pub(crate) struct CallExecutor {
    connection_auth: Arc<ConnectionAuth>,
    account: Arc<Account>,
}

impl CallExecutor {
    pub(crate) fn new(connection_auth: Arc<ConnectionAuth>, account: Arc<Account>) -> Self {
        Self { connection_auth, account }
    }

    /// Starts a call, whose time counts for the connection's owner.
    fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) {
        let account = self.account.clone();
        tokio::spawn(async move {
            let mut call = pin!(call);
            poll_fn(|context| {
                let measured = account.measure();
                let polled = call.as_mut().poll(context);
                measured.map(Measured::end);
                polled
            })
            .await;
        });
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for CallExecutor {
    fn execute(&self, call: F) {
        if self.connection_auth.has_key() {
            return self.spawn(call);
        }
        let mut call = Box::pin(call);
        // A task polls it again at once, and gives it a waker.
        if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.spawn(call);
        }
    }
}
