//! Times as session files carry them: ISO text with milliseconds, read the short way where it is canonical.

/// Reads an ISO time; the canonical form takes a short way.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    canonical_time(text.as_bytes()).or_else(|| {
        let time: jiff::Timestamp = text.parse().ok()?;
        Some(time.as_millisecond())
    })
}

/// `YYYY-MM-DDTHH:MM:SS.mmmZ` to Unix milliseconds.
fn canonical_time(text: &[u8]) -> Option<i64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        text.get(from..to)?.iter().try_fold(0i64, |sum, byte| {
            byte.is_ascii_digit()
                .then(|| sum * 10 + i64::from(byte - b'0'))
        })
    };
    let marks = [
        (4, b'-'),
        (7, b'-'),
        (10, b'T'),
        (13, b':'),
        (16, b':'),
        (19, b'.'),
        (23, b'Z'),
    ];
    if text.len() != 24 || marks.iter().any(|(at, mark)| text.get(*at) != Some(mark)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second, milli) = (
        number(11, 13)?,
        number(14, 16)?,
        number(17, 19)?,
        number(20, 23)?,
    );
    let in_range = (1..=12).contains(&month)
        && (1..=28).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !in_range {
        // Days 29 to 31 need the calendar: the long way knows it.
        return None;
    }
    // Days since 1970 by counting years from March, so that the leap day comes last.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 306 + 5) / 10 + day - 1 - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + milli)
}

/// Returns Unix milliseconds as the ISO text that files carry.
pub fn iso_time(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => "1970-01-01T00:00:00.000Z".into(),
    }
}

/// Reads an ISO time to Unix milliseconds.
pub fn iso_ms(text: &str) -> Option<i64> {
    parse_time(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_every_day_are_read() {
        for text in [
            "2026-01-05T09:00:01.002Z",
            "2024-02-29T23:59:59.999Z",
            "1969-12-31T00:00:00.000Z",
            "2000-03-01T00:00:00.000Z",
        ] {
            let ms = iso_ms(text).unwrap();
            assert_eq!(iso_time(ms), text);
            assert_eq!(canonical_time(text.as_bytes()).unwrap_or(ms), ms);
        }
        assert_eq!(
            iso_ms("2026-01-05T10:00:01+01:00"),
            iso_ms("2026-01-05T09:00:01.000Z")
        );
        assert_eq!(iso_ms("yesterday"), None);
    }
}
