//! Two sides meet over a pipe in memory.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};

use super::*;

const PIPE_BYTES: usize = 64 << 10;

fn member(key: u8, session: u64) -> Membership {
    Membership::new(&[[key; 32]], session)
}

/// Whether the two sides agree: a byte arrives in each direction.
async fn meet(
    caller: &Membership,
    purpose: Purpose,
    active: &Membership,
) -> (bool, Option<Purpose>) {
    let (left, right) = tokio::io::duplex(PIPE_BYTES);
    let calling = async {
        let mut stream = caller.call(left, purpose).await?;
        stream.write_all(b"1").await?;
        stream.flush().await?;
        stream.read_u8().await
    };
    let accepting = async {
        let (mut stream, purpose) = active.accept(right).await?;
        stream.read_u8().await?;
        stream.write_all(b"2").await?;
        stream.flush().await?;
        io::Result::Ok(purpose)
    };
    let (called, accepted) = tokio::join!(calling, accepting);
    (called.is_ok(), accepted.ok())
}

#[tokio::test]
async fn hosts_of_one_session_meet_and_no_others() {
    for purpose in Purpose::ALL {
        assert_eq!(meet(&member(1, 7), purpose, &member(1, 7)).await, (true, Some(purpose)));
    }
    for outsider in [member(2, 7), member(1, 6), member(1, 8)] {
        let active = member(1, 7);
        assert_eq!(meet(&outsider, Purpose::Calls, &active).await, (false, None));
        assert_eq!(meet(&active, Purpose::Calls, &outsider).await, (false, None));
    }
}

/// The steps of a rotation: both sides have always one key in common, and the last step leaves the
/// former key outside.
#[tokio::test]
async fn hosts_meet_at_each_step_of_a_new_key() {
    let (old, new) = ([1; 32], [2; 32]);
    let steps = [vec![old], vec![old, new], vec![new, old], vec![new]];
    let steps = steps.map(|keys| Membership::new(&keys, 7));
    for (at, step) in steps.iter().enumerate() {
        for next in &steps[at..(at + 2).min(steps.len())] {
            for (caller, active) in [(step, next), (next, step)] {
                let met = meet(caller, Purpose::Calls, active).await;
                assert_eq!(met, (true, Some(Purpose::Calls)), "step {at}");
            }
        }
    }
    assert_eq!(meet(&steps[0], Purpose::Calls, &steps[3]).await, (false, None));
}

/// A caller that accepts any host, and shows a key of its own or none.
#[tokio::test]
async fn a_caller_without_the_key_is_refused() {
    let active = member(1, 7);
    let outsider = member(2, 7);
    let mut config = ClientConfig::clone(&outsider.caller);
    let accepted = key_pair(&[1; 32], 7).cert[0].to_vec();
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
    let members = Members { accepted: vec![accepted], algorithms };
    config.dangerous().set_certificate_verifier(Arc::new(members));
    let lying = Membership { caller: Arc::new(config), ..outsider };
    assert_eq!(meet(&lying, Purpose::Calls, &active).await, (false, None));

    let (mut left, right) = tokio::io::duplex(PIPE_BYTES);
    left.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let refused = active.accept(right).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
}

/// Passes bytes on, and changes one of those after the handshake.
async fn change(mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>, at: usize) {
    let (mut passed, mut bytes) = (0, [0; 1_024]);
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if (passed..passed + read).contains(&at) {
            bytes[at - passed] ^= 1;
        }
        passed += read;
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

#[tokio::test]
async fn a_changed_byte_ends_the_connection() {
    let (caller, active) = (member(1, 7), member(1, 7));
    for at in [100, 2_000, 5_000, 20_000] {
        // Forward through a relay that changes a byte; back directly.
        let (left, relay_in) = tokio::io::duplex(PIPE_BYTES);
        let (relay_out, right) = tokio::io::duplex(PIPE_BYTES);
        let (from_caller, to_caller) = tokio::io::split(relay_in);
        let (from_active, to_active) = tokio::io::split(relay_out);
        let forth = change(from_caller, to_active, at);
        let back = change(from_active, to_caller, usize::MAX);
        let calling = async {
            let Ok(mut stream) = caller.call(left, Purpose::Calls).await else { return };
            let _ = stream.write_all(&[7; 32 << 10]).await;
            let _ = stream.shutdown().await;
        };
        let accepting = async {
            let mut read = vec![];
            match active.accept(right).await {
                Ok((mut stream, _)) => (stream.read_to_end(&mut read).await, read),
                Err(error) => (Err(error), read),
            }
        };
        let relay = async {
            tokio::join!(forth, back);
        };
        let (_, (outcome, read), _) = tokio::join!(calling, accepting, relay);
        assert!(outcome.is_err(), "{at}: {} bytes", read.len());
        assert!(read.iter().all(|byte| *byte == 7), "only whole records are read");
    }
}
