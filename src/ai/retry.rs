//! Which failures are worth another attempt, and how long to wait for it.
//!
//! The classifier reads the text, because gateways relay errors as text and old session files hold nothing else.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use regex::Regex;
use reqwest::header::HeaderMap;

use super::message::{AssistantMessage, StopReason};
use super::overflow::is_overflow;

/// Never worth it: a limit that waiting a few seconds does not lift.
static FINAL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile(&[
        r"insufficient_quota",
        r"quota exceeded",
        r"billing",
        r"out of budget",
        r"available balance",
        r"monthly usage limit reached",
        r"gousagelimiterror",
        r"freeusagelimiterror",
        r"subscription_sharing_\w*usage_limit_exceeded",
        r#""code"\s*:\s*"?1308\b"#,
    ])
});

/// Worth it. A dot stands for any separator or none.
static PASSING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile(&[
        r"(?:^|[^a-z0-9])(?:429|500|502|503|504|520|524)(?:$|[^a-z0-9])",
        r"overloaded",
        r"server.?busy",
        r"servers are currently busy",
        r"experiencing high demand",
        r"model is at capacity",
        r"rate.?limit",
        r"too many requests",
        r"service.?(?:is.?)?(?:temporarily.?)?unavailable",
        r"server.?error",
        r"internal.?error",
        r"provider.?returned.?(?:an.?)?error",
        r"network.?error",
        r"connection.?(?:error|refused|lost|closed)",
        r"other side closed",
        r"connection.?reset(?:.?by.?peer)?",
        r"fetch failed",
        r"getaddrinfo",
        r"econnreset|econnaborted|econnrefused|etimedout|epipe|enotfound|eai_again",
        r"upstream.?connect",
        r"reset before headers",
        r"unable to forward upstream",
        r"upstream.?request.?failed",
        r"upstream_stream_read_error",
        r"stream was interrupted",
        r"http2 stream failed",
        r"exceeded request buffer limit while retrying upstream",
        r"socket hang up",
        r"timed.?out",
        r"timeout",
        r"terminated",
        r"ended without",
        r"stream ended before message_stop",
        r"stream ended before a terminal response event",
        r"stream disconnected before completion",
        r"pending stream has been cancell?ed",
        r"retry delay",
        r"you can retry your request",
        r"try your request again",
        r"please retry your request",
        r"resource.?exhausted",
    ])
});

/// Compiles patterns as one; `None` only if one of ours were invalid, which a test excludes.
pub(crate) fn compile(patterns: &[&str]) -> Option<Regex> {
    let joined = patterns
        .iter()
        .map(|pattern| format!("(?:{pattern})"))
        .collect::<Vec<_>>()
        .join("|");
    regex::RegexBuilder::new(&joined)
        .case_insensitive(true)
        .build()
        .ok()
}

/// Whether the text of an error says that another attempt may succeed.
pub fn is_retryable_text(text: &str) -> bool {
    let matches =
        |list: &LazyLock<Option<Regex>>| list.as_ref().is_some_and(|regex| regex.is_match(text));
    !matches(&FINAL) && matches(&PASSING)
}

/// Whether a failed answer is worth another attempt. A context overflow is not: it needs compaction.
pub fn is_retryable(message: &AssistantMessage, context_window: u64) -> bool {
    message.stop_reason == StopReason::Error
        && !is_overflow(message, context_window)
        && message
            .error_message
            .as_deref()
            .is_some_and(is_retryable_text)
}

/// How often and how long the agent waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// `retry.baseDelayMs`.
    pub base_delay_ms: u64,
    /// `retry.maxAgentDelayMs`.
    pub max_delay_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            base_delay_ms: 2000,
            max_delay_ms: 60_000,
        }
    }
}

/// Returns the wait before attempt `attempt` (1 = the first new one). What the server asked for counts when it is longer
/// than ours, up to the cap.
pub fn delay(policy: RetryPolicy, attempt: u32, retry_after_ms: Option<u64>) -> Duration {
    let factor = 1_u64
        .checked_shl(attempt.saturating_sub(1))
        .unwrap_or(u64::MAX);
    let own = policy.base_delay_ms.saturating_mul(factor);
    let wanted = retry_after_ms.map_or(own, |asked| asked.max(own));
    Duration::from_millis(wanted.min(policy.max_delay_ms))
}

/// Returns the wait that response headers ask for: `retry-after-ms`, else `retry-after` in seconds or as a date.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let get = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::trim)
    };
    let millis = get("retry-after-ms").and_then(|text| text.parse::<f64>().ok());
    if let Some(wait) = millis.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok()) {
        return Some(wait);
    }
    let text = get("retry-after")?;
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// Whether a response may be asked for again before any byte of an answer came.
pub(crate) fn retries_status(status: u16, headers: &HeaderMap) -> bool {
    match headers
        .get("x-should-retry")
        .and_then(|value| value.to_str().ok())
    {
        Some("true") => true,
        Some("false") => false,
        _ => matches!(status, 408 | 409 | 429) || status >= 500,
    }
}

/// Returns the wait before provider-level attempt `attempt` (0 = the first new one) when the server named none:
/// exponential, at most 8 s, less up to a quarter. `jitter` is in 0..1.
pub(crate) fn provider_delay(attempt: u32, jitter: f64) -> Duration {
    let seconds = (0.5 * f64::from(attempt.min(10)).exp2()).min(8.0);
    Duration::from_secs_f64(seconds * (1.0 - 0.25 * jitter.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn patterns_compile() {
        assert!(FINAL.is_some() && PASSING.is_some());
    }

    #[test]
    fn retry_after_in_all_its_forms() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let ask = |pairs: &[(&'static str, &str)]| retry_after(&headers(pairs), now);
        assert_eq!(ask(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(
            ask(&[("retry-after", "0.5")]),
            Some(Duration::from_millis(500))
        );
        assert_eq!(
            ask(&[("retry-after-ms", "20"), ("retry-after", "7")]),
            Some(Duration::from_millis(20))
        );
        assert_eq!(
            ask(&[("retry-after", "Sun, 06 Nov 1994 08:50:00 GMT")]),
            Some(Duration::from_secs(23))
        );
        assert_eq!(
            ask(&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")]),
            Some(Duration::ZERO)
        );
        assert_eq!(ask(&[("retry-after", "soon")]), None);
        assert_eq!(ask(&[("retry-after", "-3")]), None);
        assert_eq!(ask(&[]), None);
    }

    #[test]
    fn the_servers_wait_is_honoured_up_to_the_cap() {
        let policy = RetryPolicy::default();
        let ms = |asked| delay(policy, 1, asked).as_millis();
        assert_eq!(ms(None), 2000);
        assert_eq!(ms(Some(7000)), 7000);
        assert_eq!(ms(Some(100)), 2000);
        assert_eq!(ms(Some(3_600_000)), 60_000);
    }

    #[test]
    fn jitter_only_shortens() {
        assert_eq!(provider_delay(0, 0.0), Duration::from_millis(500));
        assert_eq!(provider_delay(0, 1.0), Duration::from_millis(375));
        assert_eq!(provider_delay(30, 0.0), Duration::from_secs(8));
    }
}
