//! Reads the batch of a frame.

use std::io;

use crate::damage::damaged;
use crate::format::image::{BatchImage, JobLocations};
use crate::journal::frame::Frame;
use crate::medium::PayloadLocation;

/// Decodes a frame, with the locations of the jobs' payloads.
///
/// # Errors
/// Of kind [`InvalidData`](io::ErrorKind::InvalidData) when the frame cannot be decoded. Its
/// checksum was right, so another program wrote it.
pub(crate) fn frame<'a>(frame: &'a Frame<'_>) -> io::Result<(BatchImage<'a>, Vec<JobLocations>)> {
    batch(frame.encoded_batch(), frame.payloads)
}

/// Decodes a batch with payloads at `payloads`.
///
/// # Errors
/// Those of [`frame`].
pub(crate) fn batch(
    encoded_batch: &[u8],
    payloads: PayloadLocation,
) -> io::Result<(BatchImage<'_>, Vec<JobLocations>)> {
    let image = BatchImage::decode(encoded_batch)
        .map_err(|details| damaged(format!("a frame that cannot be decoded: {details}")))?;
    let locations = image.checked_locations(payloads)?;
    Ok((image, locations))
}
