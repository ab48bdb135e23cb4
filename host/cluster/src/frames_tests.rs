//! Messages in bodies of any pieces: round trips, foreign bytes, slow readers, and ends of bodies.

use futures::FutureExt as _;
use http_body_util::{Full, StreamBody};
use proptest::prelude::*;

use super::*;
use crate::messages::LogLine;

fn line(text: &str) -> LogLine {
    LogLine { level: "info".to_owned(), line: text.to_owned() }
}

/// The messages of a body whose pieces have these sizes.
fn read(bytes: &[u8], piece: usize) -> Vec<io::Result<Option<LogLine>>> {
    let pieces: Vec<_> = bytes
        .chunks(piece)
        .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(piece))))
        .collect();
    let mut reader = FrameReader::new(StreamBody::new(futures::stream::iter(pieces)));
    let mut read = Vec::new();
    loop {
        let next = reader.next::<LogLine>().now_or_never().expect("all pieces are there");
        let is_last = !matches!(next, Ok(Some(_)));
        read.push(next);
        if is_last {
            return read;
        }
    }
}

proptest! {
    #[test]
    fn messages_arrive_as_they_were_sent(
        lines in prop::collection::vec(".{0,40}", 0..8), piece in 1_usize..50,
    ) {
        let sent: Vec<u8> = lines.iter().flat_map(|text| encode(&line(text))).collect();
        let mut read: Vec<_> = read(&sent, piece).into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(read.pop(), Some(None));
        prop_assert_eq!(read, lines.iter().map(|text| Some(line(text))).collect::<Vec<_>>());
    }

    #[test]
    fn bytes_of_another_program_are_an_error_or_a_message(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let read = read(&bytes, 7);
        prop_assert!(!read.is_empty());
    }
}

#[test]
fn small_messages_have_frames_of_256_bytes() {
    for chars in [0, 1, 100, 230, 240, 250, 300] {
        let frame = encode(&line(&"x".repeat(chars)));
        assert!((FRAME_BYTES_MIN..FRAME_BYTES_MIN + 64).contains(&frame.len()), "{chars}");
        let read = read(&frame, 1_000).remove(0).unwrap();
        assert_eq!(read, Some(line(&"x".repeat(chars))));
    }
}

#[test]
fn a_cut_or_an_endless_message_is_an_error() {
    let whole = encode(&line("flour"));
    let cut = read(&whole[..whole.len() - 1], 100).pop().unwrap().unwrap_err();
    assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    let endless = read(&[0xff; 8], 100).pop().unwrap().unwrap_err();
    assert_eq!(endless.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_sender_sees_that_its_reader_has_left() {
    let (sender, body) = channel();
    sender.send(&line("one")).unwrap();
    drop(body);
    assert_eq!(sender.send(&line("two")), Err(Closed));
}

#[tokio::test]
async fn a_body_ends_with_its_senders() {
    let mut reader = FrameReader::new(single(&line("one")));
    assert_eq!(reader.next().await.unwrap(), Some(line("one")));
    assert_eq!(reader.next::<LogLine>().await.unwrap(), None);
    let mut empty = FrameReader::new(Full::new(Bytes::new()));
    assert_eq!(empty.next::<LogLine>().await.unwrap(), None);
}
