//! Scales a PNG or JPEG down to fit into a box.

use std::io::Cursor;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gristmill_sdk::{Context, Error, handler};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use serde::{Deserialize, Serialize};

/// The longest side of an image that is accepted, in pixels.
const SIDE_PIXELS_MAX: u32 = 16_384;
/// The most pixels of an accepted image. A sandbox has 256 MiB by default, and decoding a
/// progressive JPEG takes nine bytes per pixel.
const PIXELS_MAX: u64 = 16_000_000;
/// The most memory that decoding may take, in bytes.
const DECODER_BYTES_MAX: u64 = 160 << 20;
/// The largest box.
const BOX_PIXELS_MAX: u32 = 2_048;

#[derive(Deserialize)]
struct Input {
    /// The image, in base64.
    image: String,
    #[serde(default = "default_side")]
    max_width: u32,
    #[serde(default = "default_side")]
    max_height: u32,
    /// The format of the thumbnail; that of the image when it is missing.
    #[serde(default)]
    format: Option<Format>,
}

fn default_side() -> u32 {
    256
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Png,
    Jpeg,
}

#[derive(Serialize)]
struct Output {
    /// The thumbnail, in base64.
    image: String,
    format: Format,
    width: u32,
    height: u32,
    original_width: u32,
    original_height: u32,
}

fn thumbnail(ctx: &Context, input: Input) -> Result<Output, Error> {
    for side in [input.max_width, input.max_height] {
        if !(1..=BOX_PIXELS_MAX).contains(&side) {
            let message = format!("max_width and max_height are 1 to {BOX_PIXELS_MAX} pixels");
            return Err(Error::invalid_input(message));
        }
    }
    let bytes = STANDARD
        .decode(input.image)
        .map_err(|error| Error::invalid_input(format_args!("image is not base64: {error}")))?;
    let Decoded { image, format: original_format, orientation } = decode(bytes)?;
    ctx.debug(format_args!("decoded {} x {} pixels", image.width(), image.height()));
    let (original_width, original_height) = turned(image.width(), image.height(), orientation);

    // Never larger than the original. The small image is turned, since a copy of the large one may
    // not fit.
    let (width, height) =
        (input.max_width.min(original_width), input.max_height.min(original_height));
    let (width, height) = turned(width, height, orientation);
    let mut small = image.thumbnail(width, height);
    drop(image);
    small.apply_orientation(orientation);
    let format = input.format.unwrap_or(original_format);
    let mut encoded = Cursor::new(Vec::new());
    match format {
        Format::Png => small.write_to(&mut encoded, ImageFormat::Png)?,
        Format::Jpeg => small.to_rgb8().write_to(&mut encoded, ImageFormat::Jpeg)?,
    }
    Ok(Output {
        image: STANDARD.encode(encoded.into_inner()),
        format,
        width: small.width(),
        height: small.height(),
        original_width,
        original_height,
    })
}

/// An image as its file has it, and how it is to be turned.
struct Decoded {
    image: DynamicImage,
    format: Format,
    orientation: Orientation,
}

/// Width and height after the turn, or before it: a quarter turn exchanges them.
fn turned(width: u32, height: u32, orientation: Orientation) -> (u32, u32) {
    match orientation {
        Orientation::Rotate90
        | Orientation::Rotate270
        | Orientation::Rotate90FlipH
        | Orientation::Rotate270FlipH => (height, width),
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => (width, height),
    }
}

/// Checks the declared size of the image before any pixel is decoded.
fn decode(bytes: Vec<u8>) -> Result<Decoded, Error> {
    let refuse = |error| Error::invalid_input(format_args!("image: {error}"));

    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    let format = match reader.format() {
        Some(ImageFormat::Png) => Format::Png,
        Some(ImageFormat::Jpeg) => Format::Jpeg,
        _ => return Err(Error::invalid_input("image is neither a PNG nor a JPEG")),
    };
    let mut limits = Limits::default();
    limits.max_image_width = Some(SIDE_PIXELS_MAX);
    limits.max_image_height = Some(SIDE_PIXELS_MAX);
    limits.max_alloc = Some(DECODER_BYTES_MAX);
    reader.limits(limits);

    let mut decoder = reader.into_decoder().map_err(refuse)?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > PIXELS_MAX {
        let message = format!("image has {width} x {height} pixels, limit: {PIXELS_MAX} pixels");
        return Err(Error::invalid_input(message));
    }
    let orientation = decoder.orientation().map_err(refuse)?;
    let image = DynamicImage::from_decoder(decoder).map_err(refuse)?;
    Ok(Decoded { image, format, orientation })
}

handler!(thumbnail);

#[cfg(test)]
mod tests;
