//! The first bytes of a connection between two hosts of one database: each shows the other that it has the
//! key of the database's secrets, and that both mean the same session.
//!
//! The caller sends [`GREETING`] and 32 random bytes; the active host answers with 32 random bytes
//! and its proof; the caller sends its own proof. A proof is an HMAC-SHA256 over the side, the number of
//! the session, and the random bytes of both. So a host that has lost its session, or a program that
//! listens at its old address, receives no call. HTTP/1.1 follows.
//!
//! It protects neither the secrecy nor the integrity of what follows: the network between the hosts must be
//! private, as that to the database.

use std::io;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const GREETING: &[u8; 16] = b"gristmill host 1";

const NONCE_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;

/// The session between whose host and a caller a connection is made, with the key of the database's hosts.
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

/// A side of a connection.
#[derive(Debug, Clone, Copy)]
enum Side {
    Active,
    Caller,
}

type Nonces<'a> = (&'a [u8; NONCE_BYTES], &'a [u8; NONCE_BYTES]);

impl Membership {
    fn proof(&self, side: Side, (of_caller, of_active): Nonces<'_>) -> Hmac<Sha256> {
        let side: &[u8] = match side {
            Side::Active => b"active",
            Side::Caller => b"caller",
        };
        let mac = Hmac::<Sha256>::new_from_slice(&self.key);
        let mac = mac.expect("HMAC has keys of any length");
        mac.chain_update(side)
            .chain_update(self.session.to_be_bytes())
            .chain_update(of_caller)
            .chain_update(of_active)
    }

    /// The side of a host that forwards calls.
    ///
    /// # Errors
    /// Those of the connection, and of kind [`PermissionDenied`](io::ErrorKind::PermissionDenied) when
    /// the other side does not own the session.
    pub(crate) async fn call<IO>(&self, stream: &mut IO) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let own: [u8; NONCE_BYTES] = rand::random();
        stream.write_all(&[&GREETING[..], &own].concat()).await?;
        let (mut other, mut proof) = ([0; NONCE_BYTES], [0; PROOF_BYTES]);
        stream.read_exact(&mut other).await?;
        stream.read_exact(&mut proof).await?;
        let nonces = (&own, &other);
        if self.proof(Side::Active, nonces).verify_slice(&proof).is_err() {
            return Err(denied("it is not the active host"));
        }
        stream.write_all(&self.proof(Side::Caller, nonces).finalize().into_bytes()).await
    }

    /// The side of the active host.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn accept<IO>(&self, stream: &mut IO) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut greeting = [0; GREETING.len()];
        stream.read_exact(&mut greeting).await?;
        if greeting != *GREETING {
            return Err(denied("it is no host of this version"));
        }
        let (mut other, own): (_, [u8; NONCE_BYTES]) = ([0; NONCE_BYTES], rand::random());
        stream.read_exact(&mut other).await?;
        let nonces = (&other, &own);
        let proof = self.proof(Side::Active, nonces).finalize().into_bytes();
        stream.write_all(&[&own[..], &proof].concat()).await?;
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut proof).await?;
        let proven = self.proof(Side::Caller, nonces).verify_slice(&proof);
        proven.map_err(|_| denied("it does not have the key of this database, or its session"))
    }
}

fn denied(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn meet(caller: Membership, active: Membership) -> (io::Result<()>, io::Result<()>) {
        let (mut left, mut right) = tokio::io::duplex(1_024);
        let calling = async move { caller.call(&mut left).await };
        let accepting = async move { active.accept(&mut right).await };
        tokio::join!(calling, accepting)
    }

    fn member(key: u8, session: u64) -> Membership {
        Membership { key: [key; 32], session }
    }

    #[tokio::test]
    async fn hosts_of_one_session_meet_and_no_others() {
        let (called, accepted) = meet(member(1, 7), member(1, 7)).await;
        called.unwrap();
        accepted.unwrap();
        for stranger in [member(2, 7), member(1, 6), member(1, 8)] {
            let (called, accepted) = meet(stranger, member(1, 7)).await;
            assert_eq!(called.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert!(accepted.is_err());
        }
    }

    #[tokio::test]
    async fn a_caller_without_the_key_is_refused() {
        let (mut left, mut right) = tokio::io::duplex(1_024);
        let lying = async move {
            left.write_all(&[&GREETING[..], &[7; NONCE_BYTES]].concat()).await.unwrap();
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
