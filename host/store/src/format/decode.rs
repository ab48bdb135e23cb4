//! Reads the batch of a frame, by the version of its segment.

use std::io;

use crate::damage::damaged;
use crate::format::image::{BatchImage, JobLocations};
use crate::format::positional;
use crate::journal::frame::Frame;
use crate::journal::segment::SegmentVersion;
use crate::medium::PayloadLocation;

/// Decodes a frame, with the locations of the jobs' payloads.
///
/// # Errors
/// Of kind [`InvalidData`](io::ErrorKind::InvalidData) when the frame cannot be decoded. Its
/// checksum was right, so another program wrote it.
pub(crate) fn frame<'a>(frame: &'a Frame<'_>) -> io::Result<(BatchImage<'a>, Vec<JobLocations>)> {
    batch(frame.encoded_batch(), frame.payloads, frame.version())
}

/// Decodes a batch of a segment of `version` with payloads at `payloads`.
///
/// # Errors
/// Those of [`frame`].
pub(crate) fn batch(
    encoded_batch: &[u8],
    payloads: PayloadLocation,
    version: SegmentVersion,
) -> io::Result<(BatchImage<'_>, Vec<JobLocations>)> {
    let decoded = match version {
        SegmentVersion::One | SegmentVersion::Two => positional::decode(encoded_batch),
        SegmentVersion::Three => BatchImage::decode(encoded_batch),
    };
    let image =
        decoded.map_err(|details| damaged(format!("a frame that cannot be decoded: {details}")))?;
    let locations = image.checked_locations(payloads, version)?;
    Ok((image, locations))
}
