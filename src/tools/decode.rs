//! Lossy UTF-8 decoding of a stream: a character split over two pieces is put together, each invalid sequence becomes
//! U+FFFD by the rule browsers use (as `String::from_utf8_lossy`).

/// Decodes pieces of a stream; the result does not depend on where the pieces were cut.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    /// Beginning of a character whose rest has not come yet; at most three bytes.
    pending: Vec<u8>,
}

impl StreamDecoder {
    /// Decodes the next piece into `out`.
    pub fn feed(&mut self, piece: &[u8], out: &mut String) {
        self.feed_with(piece, &mut |text| out.push_str(text));
    }

    /// Ends the stream: an unfinished character becomes U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        self.finish_with(&mut |text| out.push_str(text));
    }

    /// As [`Self::feed`], handing on the text in parts without a copy.
    pub fn feed_with(&mut self, piece: &[u8], take: &mut impl FnMut(&str)) {
        let mut rest = piece;
        // One byte at a time until the pending character is whole or turned out to be none: three bytes at most.
        while let (false, Some((first, after))) = (self.pending.is_empty(), rest.split_first()) {
            let mut joined = std::mem::take(&mut self.pending);
            joined.push(*first);
            self.decode(&joined, take);
            rest = after;
        }
        self.decode(rest, take);
    }

    /// As [`Self::finish`], handing on the text.
    pub fn finish_with(&mut self, take: &mut impl FnMut(&str)) {
        if !self.pending.is_empty() {
            self.pending.clear();
            take(REPLACEMENT);
        }
    }

    fn decode(&mut self, bytes: &[u8], take: &mut impl FnMut(&str)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            // Far faster than `utf8_chunks` on the valid text that nearly all input is.
            let error = match std::str::from_utf8(rest) {
                Ok(text) => return take(text),
                Err(error) => error,
            };
            let (valid, invalid) = rest.split_at(error.valid_up_to());
            if let Ok(text) = std::str::from_utf8(valid)
                && !text.is_empty()
            {
                take(text);
            }
            let Some(length) = error.error_len() else {
                self.pending = invalid.to_vec();
                return;
            };
            take(REPLACEMENT);
            rest = invalid.get(length..).unwrap_or_default();
        }
    }
}

const REPLACEMENT: &str = "\u{fffd}";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_decode_as_the_whole(
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0xe4), Just(0xbd), Just(0xa0), Just(0xf0), Just(0x9f), Just(b'a')], 0..40),
            cuts in proptest::collection::vec(0usize..40, 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut out = String::new();
            let mut decoder = StreamDecoder::default();
            let mut from = 0;
            for to in cuts.into_iter().chain([bytes.len()]) {
                decoder.feed(&bytes[from..to], &mut out);
                from = to;
            }
            decoder.finish(&mut out);
            prop_assert_eq!(out, String::from_utf8_lossy(&bytes));
        }
    }
}
