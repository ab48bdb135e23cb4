//! The first bytes of a connection between two hosts of one database: each shows the other that it
//! has the key of the database's secrets, and that both mean the same session.
//!
//! The caller sends the greeting of its [`Purpose`] and 32 random bytes; the active host answers
//! with 32 random bytes and its proof; the caller sends its own proof. A proof is an HMAC-SHA256
//! over the purpose, the side, the number of the session, and the random bytes of both. So a host
//! that has lost its session, or a program that listens at its old address, receives no call. HTTP
//! 2 follows: the caller is its client for calls that it forwards, and its server for attempts that
//! it runs.
//!
//! It protects neither the secrecy nor the integrity of what follows: the network between the hosts
//! must be private, as that to the database.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::link;

/// Longest time to connect, with the handshake.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);

const GREETING_BYTES: usize = 16;

const NONCE_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;

/// The session between whose host and a caller a connection is made, with the key of the database's
/// hosts.
#[derive(Clone)]
pub(crate) struct Membership {
    pub(crate) key: [u8; 32],
    pub(crate) session: u64,
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Membership(session {})", self.session)
    }
}

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The caller forwards calls of clients.
    Calls,
    /// The caller runs attempts for the active host.
    Attempts,
}

impl Purpose {
    const ALL: [Self; 2] = [Self::Calls, Self::Attempts];

    fn greeting(self) -> &'static [u8; GREETING_BYTES] {
        match self {
            Self::Calls => b"gristmill host 1",
            Self::Attempts => b"gristmill runs 1",
        }
    }
}

/// A side of a connection.
#[derive(Debug, Clone, Copy)]
enum Side {
    Active,
    Caller,
}

type Nonces<'a> = (&'a [u8; NONCE_BYTES], &'a [u8; NONCE_BYTES]);

impl Membership {
    fn proof(
        &self,
        purpose: Purpose,
        side: Side,
        (of_caller, of_active): Nonces<'_>,
    ) -> Hmac<Sha256> {
        let side: &[u8] = match (purpose, side) {
            (Purpose::Calls, Side::Active) => b"active",
            (Purpose::Calls, Side::Caller) => b"caller",
            (Purpose::Attempts, Side::Active) => b"active for attempts",
            (Purpose::Attempts, Side::Caller) => b"runner",
        };
        let mac = Hmac::<Sha256>::new_from_slice(&self.key);
        let mac = mac.expect("HMAC has keys of any length");
        mac.chain_update(side)
            .chain_update(self.session.to_be_bytes())
            .chain_update(of_caller)
            .chain_update(of_active)
    }

    /// Connects to the active host.
    ///
    /// # Errors
    /// As [`Self::call`], and of kind [`TimedOut`](io::ErrorKind::TimedOut) after
    /// [`CONNECT_TIME_MAX`].
    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
        purpose: Purpose,
    ) -> io::Result<TcpStream> {
        let connect = async {
            let mut stream = TcpStream::connect(address).await?;
            link::prepare(&stream)?;
            self.call(&mut stream, purpose).await?;
            Ok(stream)
        };
        timeout(CONNECT_TIME_MAX, connect).await?
    }

    /// The side of a host that stands by.
    ///
    /// # Errors
    /// Those of the connection, and of kind [`PermissionDenied`](io::ErrorKind::PermissionDenied)
    /// when the other side does not own the session.
    pub(crate) async fn call<IO>(&self, stream: &mut IO, purpose: Purpose) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let own: [u8; NONCE_BYTES] = rand::random();
        stream.write_all(&[&purpose.greeting()[..], &own].concat()).await?;
        let (mut other, mut proof) = ([0; NONCE_BYTES], [0; PROOF_BYTES]);
        stream.read_exact(&mut other).await?;
        stream.read_exact(&mut proof).await?;
        let nonces = (&own, &other);
        if self.proof(purpose, Side::Active, nonces).verify_slice(&proof).is_err() {
            return Err(denied("it is not the active host"));
        }
        let proof = self.proof(purpose, Side::Caller, nonces).finalize();
        stream.write_all(&proof.into_bytes()).await
    }

    /// The side of the active host.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn accept<IO>(&self, stream: &mut IO) -> io::Result<Purpose>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut greeting = [0; GREETING_BYTES];
        stream.read_exact(&mut greeting).await?;
        let purpose = Purpose::ALL.into_iter().find(|purpose| *purpose.greeting() == greeting);
        let purpose = purpose.ok_or_else(|| denied("it is no host of this version"))?;
        let (mut other, own): (_, [u8; NONCE_BYTES]) = ([0; NONCE_BYTES], rand::random());
        stream.read_exact(&mut other).await?;
        let nonces = (&other, &own);
        let proof = self.proof(purpose, Side::Active, nonces).finalize().into_bytes();
        stream.write_all(&[&own[..], &proof].concat()).await?;
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut proof).await?;
        let proven = self.proof(purpose, Side::Caller, nonces).verify_slice(&proof);
        proven.map_err(|_| denied("it does not have the key of this database, or its session"))?;
        Ok(purpose)
    }
}

fn denied(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn meet(
        caller: Membership,
        purpose: Purpose,
        active: Membership,
    ) -> (io::Result<()>, io::Result<Purpose>) {
        let (mut left, mut right) = tokio::io::duplex(1_024);
        let calling = async move { caller.call(&mut left, purpose).await };
        let accepting = async move { active.accept(&mut right).await };
        tokio::join!(calling, accepting)
    }

    fn member(key: u8, session: u64) -> Membership {
        Membership { key: [key; 32], session }
    }

    #[tokio::test]
    async fn hosts_of_one_session_meet_and_no_others() {
        for purpose in Purpose::ALL {
            let (called, accepted) = meet(member(1, 7), purpose, member(1, 7)).await;
            called.unwrap();
            assert_eq!(accepted.unwrap(), purpose);
        }
        for outsider in [member(2, 7), member(1, 6), member(1, 8)] {
            let (called, accepted) = meet(outsider, Purpose::Calls, member(1, 7)).await;
            assert_eq!(called.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert!(accepted.is_err());
        }
    }

    #[tokio::test]
    async fn a_caller_without_the_key_is_refused() {
        let (mut left, mut right) = tokio::io::duplex(1_024);
        let lying = async move {
            left.write_all(&[&Purpose::Calls.greeting()[..], &[7; NONCE_BYTES]].concat())
                .await
                .unwrap();
            let mut answer = [0; NONCE_BYTES + PROOF_BYTES];
            left.read_exact(&mut answer).await.unwrap();
            // The active host's own proof is not one of the caller.
            left.write_all(&answer[NONCE_BYTES..]).await.unwrap();
        };
        let active = member(1, 7);
        let (accepted, ()) = tokio::join!(active.accept(&mut right), lying);
        assert_eq!(accepted.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let (mut left, mut right) = tokio::io::duplex(1_024);
        left.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let refused = active.accept(&mut right).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }
}
