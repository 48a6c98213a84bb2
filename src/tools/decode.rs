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
        if self.pending.is_empty() {
            self.decode(piece, out);
            return;
        }
        // Few bytes are enough to end the pending character; the rest is decoded in place.
        let take = piece.len().min(4);
        let (first, rest) = piece.split_at(take);
        let mut joined = std::mem::take(&mut self.pending);
        joined.extend_from_slice(first);
        self.decode(&joined, out);
        if !rest.is_empty() {
            if self.pending.is_empty() {
                self.decode(rest, out);
            } else {
                let mut joined = std::mem::take(&mut self.pending);
                joined.extend_from_slice(rest);
                self.decode(&joined, out);
            }
        }
    }

    /// Ends the stream: an unfinished character becomes U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push('\u{fffd}');
        }
    }

    fn decode(&mut self, bytes: &[u8], out: &mut String) {
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            out.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            if chunks.peek().is_none() && is_unfinished(invalid) {
                self.pending = invalid.to_vec();
            } else {
                out.push('\u{fffd}');
            }
        }
    }
}

/// Whether more bytes could still make this a character.
fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

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
