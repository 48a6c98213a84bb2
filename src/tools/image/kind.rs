//! What a file is, by its first bytes.

/// A kind of picture that models take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PNG, not animated.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF.
    Gif,
    /// WebP.
    WebP,
    /// Windows bitmap; converted before it is shown.
    Bmp,
}

impl Kind {
    /// Returns its MIME type.
    pub fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::WebP => "image/webp",
            Self::Bmp => "image/bmp",
        }
    }
}

/// Tells a picture from everything else; `start` is the beginning of the file, 4100 bytes if it has that many.
pub fn sniff(start: &[u8]) -> Option<Kind> {
    if start.starts_with(&[0xff, 0xd8, 0xff]) && start.get(3) != Some(&0xf7) {
        Some(Kind::Jpeg)
    } else if is_still_png(start) {
        Some(Kind::Png)
    } else if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
        Some(Kind::Gif)
    } else if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
        Some(Kind::WebP)
    } else if is_bmp(start).unwrap_or(false) {
        Some(Kind::Bmp)
    } else {
        None
    }
}

fn is_still_png(start: &[u8]) -> bool {
    let Some(mut chunks) = start.strip_prefix(b"\x89PNG\r\n\x1a\n") else {
        return false;
    };
    if be32(chunks, 0) != Some(13) || chunks.get(4..8) != Some(b"IHDR") {
        return false;
    }
    // An animation says so before the first picture data.
    while let (Some(length), Some(name)) = (be32(chunks, 0), chunks.get(4..8)) {
        match name {
            b"acTL" => return false,
            b"IDAT" => return true,
            _ => {}
        }
        let next = (length as usize).saturating_add(12);
        chunks = chunks.get(next..).unwrap_or_default();
    }
    true
}

fn is_bmp(start: &[u8]) -> Option<bool> {
    if !start.starts_with(b"BM") || start.len() < 26 {
        return Some(false);
    }
    let declared = le32(start, 2)?;
    let pixels = le32(start, 10)?;
    let header = le32(start, 14)?;
    if declared != 0 && declared < 26 || !(header == 12 || (40..=124).contains(&header)) {
        return Some(false);
    }
    if pixels < 14 + header || declared != 0 && pixels >= declared {
        return Some(false);
    }
    let (planes, bits) = if header == 12 { (22, 24) } else { (26, 28) };
    let plausible =
        le16(start, planes)? == 1 && [1, 4, 8, 16, 24, 32].contains(&le16(start, bits)?);
    Some(plausible)
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_no_pictures() {
        for text in [
            "GIF files\n",
            "BMW is a car, and this text is long enough",
            "RIFF raff",
            "\u{ff}",
        ] {
            assert_eq!(sniff(text.as_bytes()), None, "{text}");
        }
        assert_eq!(sniff(&[0xff, 0xd8, 0xff, 0xf7]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at_safely(bytes in proptest::collection::vec(any::<u8>(), 0..80), head in 0usize..6) {
            let heads: [&[u8]; 6] = [b"", b"BM", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"RIFF", b"GIF89a", b"\xff\xd8\xff"];
            let _kind = sniff(&[heads[head], &bytes].concat());
        }
    }
}
