//! Pictures for models: what a file is, and making it small enough.
//!
//! Entry points: [`sniff`] (by content), [`prepare`] (convert, turn upright, scale), [`prepare_blocks`] (results of any
//! tool). Decoding and scaling are heavy: call them on a blocking thread; one runs at a time.

mod exif;
mod kind;

use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{DynamicImage, ImageFormat, ImageReader};
use parking_lot::Mutex;
use serde_json::Value;

use crate::ai::{Block, Model};

pub use kind::{Kind, sniff};

/// One picture at a time: decoded pictures are large.
static WORKER: Mutex<()> = Mutex::new(());

/// How large a picture may be for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    max_width: u32,
    max_height: u32,
    max_base64: usize,
    jpeg_quality: u8,
    resize: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            max_width: 2000,
            max_height: 2000,
            max_base64: 4_718_592,
            jpeg_quality: 80,
            resize: true,
        }
    }
}

impl Profile {
    /// The limits of a model (`inputLimits.images.resize`), else the usual ones; `resize` off passes pictures through.
    pub fn of(model: Option<&Model>, resize: bool) -> Self {
        let usual = Self {
            resize,
            ..Self::default()
        };
        let limits = model.and_then(|model| model.input_limits.as_ref()?.pointer("/images/resize"));
        let Some(limits) = limits else {
            return usual;
        };
        let number = |key: &str| {
            let number = limits.get(key).and_then(Value::as_f64)?;
            (number >= 1.0).then_some(number)
        };
        Self {
            max_width: number("maxWidth").map_or(usual.max_width, |it| it as u32),
            max_height: number("maxHeight").map_or(usual.max_height, |it| it as u32),
            max_base64: number("maxBytes").map_or(usual.max_base64, |it| it as usize),
            jpeg_quality: number("jpegQuality")
                .map_or(usual.jpeg_quality, |it| it.min(100.0) as u8),
            resize,
        }
    }
}

/// A picture ready to show, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// MIME type of `data`, or of the file when it was omitted.
    pub mime: &'static str,
    /// Base64; `None` when it was omitted.
    pub data: Option<String>,
    /// One bracketed line each, for the model.
    pub notes: Vec<String>,
}

impl Picture {
    /// A picture that is not shown.
    pub fn omitted(kind: Kind, why: &str) -> Self {
        Self {
            mime: kind.mime(),
            data: None,
            notes: vec![format!("[Image omitted: {why}.]")],
        }
    }

    /// The text that goes with it.
    pub fn text(&self) -> String {
        let mut text = format!("Read image file [{}]", self.mime);
        for note in &self.notes {
            text.push('\n');
            text.push_str(note);
        }
        text
    }
}

/// Makes a picture fit for a model.
pub fn prepare(kind: Kind, bytes: Vec<u8>, profile: &Profile) -> Picture {
    let _one_at_a_time = WORKER.lock();
    let mut notes = Vec::new();
    let (kind, bytes) = if kind == Kind::Bmp {
        let png = decode(kind, &bytes).and_then(|picture| encode_png(&picture));
        let Some(png) = png else {
            return Picture::omitted(kind, "it cannot be decoded");
        };
        notes.push("[Image converted from image/bmp to image/png.]".to_owned());
        (Kind::Png, png)
    } else {
        (kind, bytes)
    };
    if !profile.resize {
        let data = Some(STANDARD.encode(&bytes));
        return Picture {
            mime: kind.mime(),
            data,
            notes,
        };
    }
    let Some(picture) = decode(kind, &bytes) else {
        return Picture::omitted(kind, "it cannot be decoded");
    };
    let (width, height) = (picture.width(), picture.height());
    if width <= profile.max_width && height <= profile.max_height {
        let data = STANDARD.encode(&bytes);
        if data.len() < profile.max_base64 {
            return Picture {
                mime: kind.mime(),
                data: Some(data),
                notes,
            };
        }
    }
    drop(bytes);
    let Some(small) = shrink(&picture, profile) else {
        return Picture::omitted(kind, "it cannot be made small enough");
    };
    let factor = f64::from(width) / f64::from(small.width);
    notes.push(format!(
        "[Image: original {width}x{height}, displayed at {}x{}. Multiply coordinates by {factor:.2} to map to original image.]",
        small.width, small.height
    ));
    Picture {
        mime: small.mime,
        data: Some(small.data),
        notes,
    }
}

/// Applies the limits to all pictures among blocks, for results of any tool before they are stored. A picture that
/// cannot be processed stays as it is; hints become a text block right after it.
pub fn prepare_blocks(blocks: Vec<Block>, profile: &Profile) -> Vec<Block> {
    let mut out = Vec::with_capacity(blocks.len());
    for block in blocks {
        let Block::Image(image) = &block else {
            out.push(block);
            continue;
        };
        let bytes = STANDARD.decode(&image.data).unwrap_or_default();
        let prepared = sniff(&bytes).map(|kind| prepare(kind, bytes, profile));
        match prepared {
            Some(Picture {
                mime,
                data: Some(data),
                notes,
            }) if data != image.data => {
                out.push(Block::image(data, mime));
                if !notes.is_empty() {
                    out.push(Block::text(notes.join("\n")));
                }
            }
            _ => out.push(block),
        }
    }
    out
}

/// Decodes and turns upright.
fn decode(kind: Kind, bytes: &[u8]) -> Option<DynamicImage> {
    let format = match kind {
        Kind::Png => ImageFormat::Png,
        Kind::Jpeg => ImageFormat::Jpeg,
        Kind::Gif => ImageFormat::Gif,
        Kind::WebP => ImageFormat::WebP,
        Kind::Bmp => ImageFormat::Bmp,
    };
    let mut picture = ImageReader::with_format(Cursor::new(bytes), format)
        .decode()
        .ok()?;
    if let Some(orientation) = exif::orientation(kind, bytes).and_then(Orientation::from_exif) {
        picture.apply_orientation(orientation);
    }
    Some(picture)
}

struct Small {
    mime: &'static str,
    data: String,
    width: u32,
    height: u32,
}

/// Scales to the limits, then by three quarters until an encoding fits.
fn shrink(picture: &DynamicImage, profile: &Profile) -> Option<Small> {
    let (mut width, mut height) = fit(picture.width(), picture.height(), profile);
    loop {
        let scaled = if (width, height) == (picture.width(), picture.height()) {
            picture.clone()
        } else {
            picture.resize_exact(width, height, FilterType::Lanczos3)
        };
        if let Some((mime, data)) = encode(&scaled, profile) {
            return Some(Small {
                mime,
                data,
                width,
                height,
            });
        }
        if (width, height) == (1, 1) {
            return None;
        }
        let smaller = |side: u32| (side.saturating_mul(3) / 4).max(1);
        (width, height) = (smaller(width), smaller(height));
    }
}

fn fit(width: u32, height: u32, profile: &Profile) -> (u32, u32) {
    let scaled = |side: u32, limit: u32, other: u32| {
        let side = f64::from(side) * f64::from(limit) / f64::from(other);
        // A side that would round to nothing stays one pixel.
        ((side + 0.5).floor() as u32).max(1)
    };
    let (mut width, mut height) = (width, height);
    if width > profile.max_width {
        height = scaled(height, profile.max_width, width);
        width = profile.max_width;
    }
    if height > profile.max_height {
        width = scaled(width, profile.max_height, height);
        height = profile.max_height;
    }
    (width, height)
}

/// The smaller of PNG and JPEG first, then the other, then JPEG of lower quality.
fn encode(picture: &DynamicImage, profile: &Profile) -> Option<(&'static str, String)> {
    let fits = |(mime, bytes): (&'static str, Vec<u8>)| {
        let data = STANDARD.encode(bytes);
        (data.len() < profile.max_base64).then_some((mime, data))
    };
    let mut first: Vec<(&'static str, Vec<u8>)> = Vec::new();
    first.extend(encode_png(picture).map(|bytes| ("image/png", bytes)));
    first.extend(encode_jpeg(picture, profile.jpeg_quality).map(|bytes| ("image/jpeg", bytes)));
    first.sort_by_key(|(_, bytes)| bytes.len());
    let lower = [85, 70, 55, 40]
        .into_iter()
        .filter(|quality| *quality != profile.jpeg_quality);
    first.into_iter().find_map(fits).or_else(|| {
        lower
            .filter_map(|quality| encode_jpeg(picture, quality))
            .find_map(|bytes| fits(("image/jpeg", bytes)))
    })
}

fn encode_png(picture: &DynamicImage) -> Option<Vec<u8>> {
    let mut out = Cursor::new(Vec::new());
    picture.write_to(&mut out, ImageFormat::Png).ok()?;
    Some(out.into_inner())
}

fn encode_jpeg(picture: &DynamicImage, quality: u8) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let encoder = JpegEncoder::new_with_quality(&mut out, quality);
    picture.to_rgb8().write_with_encoder(encoder).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use image::{Rgb, RgbImage};

    use super::*;

    fn noise(width: u32, height: u32) -> DynamicImage {
        let mut state = 1u32;
        DynamicImage::ImageRgb8(RgbImage::from_fn(width, height, |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Rgb([(state >> 24) as u8, (state >> 16) as u8, (state >> 8) as u8])
        }))
    }

    fn jpeg(picture: &DynamicImage) -> Vec<u8> {
        encode_jpeg(picture, 90).unwrap()
    }

    /// Puts segments behind the start of a JPEG.
    fn with_segments(jpeg: &[u8], segments: &[&[u8]]) -> Vec<u8> {
        let mut out = jpeg[..2].to_vec();
        for body in segments {
            out.extend([0xff, 0xe1]);
            out.extend(u16::try_from(body.len() + 2).unwrap().to_be_bytes());
            out.extend_from_slice(body);
        }
        out.extend_from_slice(&jpeg[2..]);
        out
    }

    /// An Exif block that says "turned by 90 degrees", big or little endian.
    fn exif(big: bool) -> Vec<u8> {
        let mut out = b"Exif\0\0".to_vec();
        let two = |value: u16| {
            if big {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            }
        };
        let four = |value: u32| {
            if big {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            }
        };
        let mark: &[u8] = if big { b"MM" } else { b"II" };
        out.extend_from_slice(mark);
        out.extend(two(42));
        out.extend(four(8));
        out.extend(two(1));
        out.extend(two(0x112));
        out.extend(two(3));
        out.extend(four(1));
        out.extend(two(6));
        out.extend(two(0));
        out.extend(four(0));
        out
    }

    #[test]
    fn photos_are_turned_upright_before_scaling() {
        let profile = Profile {
            max_width: 10,
            max_height: 10,
            ..Profile::default()
        };
        for (segments, size) in [
            (vec![exif(true)], "20x40"),
            (vec![exif(false)], "20x40"),
            (
                vec![b"http://ns.adobe.com/xap/1.0/\0<x/>".to_vec(), exif(true)],
                "20x40",
            ),
            (vec![], "40x20"),
        ] {
            let parts: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
            let bytes = with_segments(&jpeg(&noise(40, 20)), &parts);
            let text = prepare(sniff(&bytes).unwrap(), bytes, &profile).text();
            assert!(text.contains(&format!("original {size}")), "{text}");
        }
    }

    #[test]
    fn a_picture_over_the_byte_limit_becomes_smaller_even_if_its_sides_fit() {
        let profile = Profile {
            max_base64: 4000,
            ..Profile::default()
        };
        let bytes = encode_png(&noise(100, 100)).unwrap();
        let picture = prepare(Kind::Png, bytes, &profile);
        assert!(picture.data.as_ref().is_some_and(|data| data.len() < 4000));
        assert_eq!(picture.mime, "image/jpeg");
    }

    #[test]
    fn a_thin_picture_keeps_a_pixel() {
        assert_eq!(fit(5000, 1, &Profile::default()), (2000, 1));
        assert_eq!(fit(1, 9000, &Profile::default()), (1, 2000));
        assert_eq!(fit(3000, 1500, &Profile::default()), (2000, 1000));
    }

    #[test]
    fn nothing_fits_into_nothing() {
        let profile = Profile {
            max_base64: 10,
            ..Profile::default()
        };
        let picture = prepare(Kind::Png, encode_png(&noise(4, 4)).unwrap(), &profile);
        assert_eq!(picture.data, None);
        assert!(
            picture
                .text()
                .starts_with("Read image file [image/png]\n[Image omitted")
        );
    }

    #[test]
    fn blocks_of_other_tools_are_scaled_and_broken_ones_kept() {
        let profile = Profile {
            max_width: 5,
            ..Profile::default()
        };
        let big = Block::image(
            STANDARD.encode(encode_png(&noise(10, 10)).unwrap()),
            "image/png",
        );
        let odd = Block::image("not base64", "image/png");
        let out = prepare_blocks(vec![Block::text("a"), big.clone(), odd.clone()], &profile);
        assert_eq!(out.len(), 4);
        assert!(matches!(&out[1], block if *block != big));
        assert!(out[2].as_text().unwrap().contains("displayed at 5x5"));
        assert_eq!(out[3], odd);
    }
}
