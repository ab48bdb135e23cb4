//! The decoders of bytes on disk: invalid bytes are refused, and valid values are unchanged after
//! they are written again.
//!
//! Input: the first byte chooses the decoder, the rest are its bytes.

use arbitrary::{Arbitrary, Unstructured};
use gristmill_core::job::payload::Json;
use gristmill_store::testing::fuzzing::{self, Columns};

pub fn record(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    match choice & 3 {
        0 => frame(data),
        1 => row(&mut Unstructured::new(data)),
        2 => page(&mut Unstructured::new(data)),
        _ => input(data),
    }
}

/// The encoded batch of a frame. The first two bytes are the length of its payloads.
fn frame(data: &[u8]) {
    let Some((payload_bytes, says)) = data.split_first_chunk() else { return };
    let payload_bytes = u16::from_le_bytes(*payload_bytes).into();
    let Ok(written) = fuzzing::rewrite_frame(says, payload_bytes) else { return };
    let again = fuzzing::rewrite_frame(&written, payload_bytes).unwrap();
    assert_eq!(written, again);
    let mut end = None;
    for (at, len) in fuzzing::payloads_of_frame(says, payload_bytes).unwrap() {
        assert!(end.is_none_or(|end| end == at), "payloads follow each other");
        end = Some(at.checked_add(len).expect("payloads end below 4 GiB"));
    }
    if let Ok([said, read]) = fuzzing::rows_of_frame(says, payload_bytes) {
        assert_eq!(said, read);
    }
}

/// A row that another program wrote.
fn row(data: &mut Unstructured<'_>) {
    #[derive(Arbitrary)]
    struct Row<'a> {
        // Most columns are small where the row is read at all.
        numbers: [i8; 13],
        wide: Option<(u8, i64)>,
        times: [Option<i64>; 2],
        id: Option<&'a [u8]>,
        texts: [Option<&'a str>; 3],
    }
    let Ok(row) = Row::arbitrary(data) else { return };
    let mut numbers = row.numbers.map(i64::from);
    if let Some((at, number)) = row.wide {
        numbers[usize::from(at) % numbers.len()] = number;
    }
    let id = row.id.unwrap_or(&[0; 19]);
    let columns = Columns { numbers, times: row.times, id, texts: row.texts };
    let read = fuzzing::read_row(&columns);
    // Other state numbers, lengths of ids and last bytes of ids are invalid.
    let is_right = (0..6).contains(&numbers[6]) && id.len() == 19 && id[18] < 2;
    assert!(is_right || read.is_err(), "{columns:?}");
}

/// A page of chunks as the store writes it, cut anywhere.
fn page(data: &mut Unstructured<'_>) {
    #[derive(Arbitrary)]
    struct Chunk<'a> {
        output: &'a str,
        metrics: Option<&'a str>,
        part: Option<(u32, u32)>,
    }
    let Ok((chunks, cut)) = <(Vec<Chunk<'_>>, u16)>::arbitrary(data) else { return };
    let mut bytes = Vec::new();
    for chunk in &chunks {
        let output = Json::from_value(&chunk.output);
        let metrics = chunk.metrics.map(|text| Json::from_value(&serde_json::json!({ "a": text })));
        let (index, count) = chunk.part.unwrap_or_default();
        let metrics_len = metrics.as_ref().map_or(0, |metrics| metrics.len() + 1);
        for number in [output.len(), metrics_len, index as usize, count as usize] {
            bytes.extend_from_slice(&u32::try_from(number).unwrap().to_be_bytes());
        }
        bytes.extend_from_slice(output.as_bytes());
        bytes.extend_from_slice(metrics.as_ref().map_or(&[], |metrics| metrics.as_bytes()));
    }
    assert_eq!(fuzzing::rewrite_page(&bytes).as_ref(), Some(&bytes));
    let cut = bytes.get(..usize::from(cut)).unwrap_or(&bytes);
    if let Some(read) = fuzzing::rewrite_page(cut) {
        assert_eq!(read.len(), cut.len());
    }
}

/// An input with its encrypted settings.
fn input(data: &[u8]) {
    if let Some((body, sealed)) = fuzzing::split_input(data) {
        assert_eq!(body.len() + sealed.map_or(0, <[u8]>::len) + 4, data.len());
    }
}
