use gristmill_sdk::testing::TestContext;
use serde_json::{Value, json};

use super::*;

fn encoded(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    DynamicImage::new_rgb8(width, height).write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn run(image: &[u8], mut input: Value) -> Result<Value, Error> {
    input["image"] = STANDARD.encode(image).into();
    let output = TestContext::new().run_json(thumbnail, &input.to_string())?;
    Ok(serde_json::from_str(&output)?)
}

#[test]
fn proportions_and_format_are_kept() {
    for (format, name) in [(ImageFormat::Png, "png"), (ImageFormat::Jpeg, "jpeg")] {
        let image = encoded(400, 200, format);
        let output = run(&image, json!({ "max_width": 100, "max_height": 100 })).unwrap();
        assert_eq!((&output["width"], &output["height"]), (&json!(100), &json!(50)));
        assert_eq!(output["original_width"], 400);
        assert_eq!(output["format"], name);

        let small = STANDARD.decode(output["image"].as_str().unwrap()).unwrap();
        assert_eq!(image::guess_format(&small).unwrap(), format);
        assert_eq!(image::load_from_memory(&small).unwrap().height(), 50);
    }
}

#[test]
fn the_format_can_change() {
    let image = encoded(4, 4, ImageFormat::Png);
    assert_eq!(run(&image, json!({ "format": "jpeg" })).unwrap()["format"], "jpeg");
}

#[test]
fn small_images_stay_small() {
    let output = run(&encoded(10, 20, ImageFormat::Png), json!({})).unwrap();
    assert_eq!((&output["width"], &output["height"]), (&json!(10), &json!(20)));
}

/// The height and width of a JPEG are 16 bits each, five bytes after the start of its SOF0 marker.
fn claiming(width: u16, height: u16) -> Vec<u8> {
    let mut image = encoded(8, 8, ImageFormat::Jpeg);
    let sof0 = image.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
    image[sof0 + 5..sof0 + 7].copy_from_slice(&height.to_be_bytes());
    image[sof0 + 7..sof0 + 9].copy_from_slice(&width.to_be_bytes());
    image
}

#[test]
fn hostile_sizes_are_refused_before_they_are_decoded() {
    let error = run(&claiming(10_000, 10_000), json!({})).unwrap_err();
    assert_eq!(error.message(), "image has 10000 x 10000 pixels, limit: 16000000 pixels");
    let error = run(&claiming(65_000, 1), json!({})).unwrap_err();
    assert!(error.message().starts_with("image: "), "{error}");
    assert!(matches!(error, Error::InvalidInput(_)));
}

#[test]
fn broken_images_are_refused() {
    let image = encoded(40, 40, ImageFormat::Png);
    let error = run(&image[..image.len() / 2], json!({})).unwrap_err();
    assert!(error.message().starts_with("image: "), "{error}");
    let error = run(b"GIF89a", json!({})).unwrap_err();
    assert_eq!(error.message(), "image is neither a PNG nor a JPEG");
    let error = run(&image, json!({ "max_width": 0 })).unwrap_err();
    assert_eq!(error.message(), "max_width and max_height are 1 to 2048 pixels");
}
