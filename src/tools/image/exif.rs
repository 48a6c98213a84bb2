//! The orientation a camera noted, in JPEG segments or the `EXIF` chunk of WebP.

use super::Kind;

const TAG_ORIENTATION: u16 = 0x112;

/// Returns the orientation, 1 to 8, when the file has one.
pub(super) fn orientation(kind: Kind, bytes: &[u8]) -> Option<u8> {
    let tiff = match kind {
        Kind::Jpeg => jpeg_block(bytes)?,
        Kind::WebP => webp_block(bytes)?,
        Kind::Png | Kind::Gif | Kind::Bmp => return None,
    };
    from_tiff(tiff).filter(|value| (1..=8).contains(value))
}

/// The block may stand behind other segments, also others of the same type.
fn jpeg_block(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(2..)?;
    loop {
        // Segments may be padded with any number of 0xff.
        while let [0xff, 0xff, ..] = rest {
            rest = rest.get(1..)?;
        }
        let [0xff, marker, after @ ..] = rest else {
            return None;
        };
        match *marker {
            0x01 | 0xd0..=0xd8 => {
                rest = after;
                continue;
            }
            // The picture data begins, or the picture ends.
            0xda | 0xd9 => return None,
            _ => {}
        }
        let length = usize::from(u16::from_be_bytes(after.get(..2)?.try_into().ok()?));
        let body = after.get(2..length)?;
        if *marker == 0xe1
            && let Some(tiff) = body.strip_prefix(b"Exif\0\0")
        {
            return Some(tiff);
        }
        rest = after.get(length..)?;
    }
}

fn webp_block(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(12..)?;
    loop {
        let name = rest.get(..4)?;
        let length = u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?) as usize;
        let end = length.checked_add(8)?;
        let body = rest.get(8..end)?;
        if name == b"EXIF" {
            return Some(body.strip_prefix(b"Exif\0\0").unwrap_or(body));
        }
        // Chunks are padded to an even length.
        rest = rest.get(end.checked_add(length % 2)?..)?;
    }
}

fn from_tiff(tiff: &[u8]) -> Option<u8> {
    let big = match tiff.get(..2)? {
        b"MM" => true,
        b"II" => false,
        _ => return None,
    };
    let two = |at: usize| -> Option<u16> {
        let bytes = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    };
    let four = |at: usize| -> Option<u32> {
        let bytes = tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    };
    let directory = four(4)? as usize;
    let entries = usize::from(two(directory)?);
    (0..entries).find_map(|index| {
        let entry = directory.checked_add(2)?.checked_add(index * 12)?;
        if two(entry)? != TAG_ORIENTATION {
            return None;
        }
        u8::try_from(two(entry.checked_add(8)?)?).ok()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn broken_blocks_are_ignored(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _jpeg = orientation(Kind::Jpeg, &[b"\xff\xd8\xff\xe1\0\x40Exif\0\0MM", &bytes[..]].concat());
            let _webp = orientation(Kind::WebP, &[b"RIFF\0\0\0\0WEBPEXIF\x20\0\0\0II", &bytes[..]].concat());
        }
    }
}
