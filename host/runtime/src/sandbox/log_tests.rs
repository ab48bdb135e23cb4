//! Lines of one attempt: standard streams, cuts, floods, and the end of standard error.

use super::*;
use crate::testing::RecordingSink;

fn log() -> (Arc<RecordingSink>, AttemptLog) {
    let sink = Arc::new(RecordingSink::default());
    (sink.clone(), AttemptLog::new(sink))
}

#[test]
fn standard_streams_become_lines() {
    let (sink, log) = log();
    log.write_std(StdStream::Out, b"one\ntw");
    log.write_std(StdStream::Err, b"oops\n");
    log.write_std(StdStream::Out, b"o\n\n\x1b[31mred\tx\x07\xff\nlast");
    assert_eq!(log.finish(), 0);
    let lines = sink.lines();
    let info = |text: &str| (LogLevel::Info, text.to_owned());
    let expected = [
        info("one"),
        (LogLevel::Warn, "oops".to_owned()),
        info("two"),
        info("[31mred x\u{fffd}"),
        info("last"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn long_lines_are_cut_on_every_stream() {
    let (sink, log) = log();
    for _ in 0..100 {
        log.write_std(StdStream::Out, "é".repeat(1_000).as_bytes());
    }
    log.write_std(StdStream::Out, b"\nnext\n");
    log.write(LogLevel::Error, &"x".repeat(10_000));
    log.finish();
    let lines = sink.lines();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|(_, line)| line.len() <= LOG_LINE_BYTES_MAX));
    assert!(lines[0].1.ends_with('…') && lines[2].1.ends_with('…'));
    assert_eq!(lines[1].1, "next");
}

#[test]
fn a_flood_is_counted_not_kept() {
    let (sink, log) = log();
    let lines = 100_000;
    for _ in 0..lines {
        log.write_std(StdStream::Out, b"all work and no play\n");
    }
    let dropped = log.finish();
    let kept: usize = sink.lines().iter().map(|(_, line)| line.len()).sum();
    assert!(kept <= LOG_BYTES_MAX && kept > LOG_BYTES_MAX - 64 * 1024, "{kept}");
    let (_, last) = sink.lines().pop().unwrap();
    assert_eq!(last, FULL);
    assert_eq!(dropped + sink.lines().len() as u64 - 1, lines);
}

/// Fills the log until it has room for this many bytes.
fn fill(log: &AttemptLog, room: usize) {
    let mut state = log.state.lock();
    while state.room() > room {
        let excess = state.room() - room;
        // The last line has at least 2 bytes, since an empty one is not kept.
        let bytes = if excess <= 1_000 { excess } else { 998 };
        state.push(LogLevel::Info, "x".repeat(bytes - 1));
    }
}

#[test]
fn lines_of_a_message_without_room_are_counted_not_cleaned() {
    let (sink, log) = log();
    let kept = (LOG_BYTES_MAX - FULL.len()) / "mill\n".len();
    let lines = 1_000_000;
    // Without the last line break, and with lines that have no visible character.
    let message = format!("{}mill", "mill\r\n\n\x1b\u{85}\n".repeat(lines - 1));
    log.write(LogLevel::Error, &message);
    let shown = sink.lines();
    assert_eq!(shown.len(), kept + 1);
    assert!(shown.iter().take(kept).all(|(_, line)| line == "mill"));
    assert_eq!(shown[kept], (LogLevel::Warn, FULL.to_owned()));
    assert_eq!(log.state.lock().lines_dropped, (lines - kept) as u64);

    // Only lines that remain here are cleaned.
    assert_eq!(log.state.lock().drop_lines(&message), "");
    assert_eq!(log.finish(), (2 * lines - kept) as u64);
    assert_eq!(sink.lines().len(), kept + 1);
}

#[test]
fn lines_that_are_not_cleaned_count_like_cleaned_ones() {
    let long = |bytes: usize| "y".repeat(bytes);
    let pieces = [
        long(4_095),
        long(4_096),
        long(5_000),
        "é".repeat(2_500),
        "aé𝄞".repeat(700),
        String::new(),
        "\r".to_owned(),
        "\u{85}\x1b".to_owned(),
        "\t".to_owned(),
        "a\u{9f}b".to_owned(),
        "𝄞".to_owned(),
        long(4_092),
        long(20),
        long(3),
        long(1),
    ];
    let rooms = (0..=25).chain(4_080..=4_110);
    for (room, step) in rooms.flat_map(|room| [1, 2, 4, 7].map(|step| (room, step))) {
        let texts = (0..40).map(|at| pieces[at * step % pieces.len()].as_str());
        let message = texts.collect::<Vec<_>>().join("\n");
        let ((sink, log), (expected_sink, expected)) = (log(), log());
        fill(&log, room);
        fill(&expected, room);
        log.write(LogLevel::Info, &message);
        for line in message.lines() {
            expected.state.lock().push(LogLevel::Info, clean(line));
        }
        assert_eq!(sink.lines(), expected_sink.lines(), "{room} {step}");
        assert_eq!(log.finish(), expected.finish(), "{room} {step}");
    }
}

#[test]
fn the_end_of_standard_error_is_kept() {
    let (_, log) = log();
    log.write_std(StdStream::Err, "é".repeat(3_000).as_bytes());
    let panic = "\nthread 'main' panicked at src/lib.rs:5:9:\nboom\n\
                 note: run with `RUST_BACKTRACE=1` environment variable\n";
    log.write_std(StdStream::Err, panic.as_bytes());
    let tail = log.stderr_tail();
    assert!(tail.len() <= STDERR_TAIL_BYTES_MAX);
    assert!(tail.ends_with("thread 'main' panicked at src/lib.rs:5:9: boom"), "{tail}");
}
