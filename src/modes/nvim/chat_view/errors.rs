//! An error of a model server as a person reads it: what failed, and what to do about it.
//!
//! The session file keeps the text as it came; only what is shown is made here.

use serde_json::Value as Json;

use crate::ai::overflow::is_overflow_text;
use crate::ai::retry::is_retryable_text;
use crate::modes::nvim::json::at;

/// Returns the error in one line without what surrounds its message: JSON, a page of HTML, numbers of the system.
pub(in crate::modes::nvim) fn plain(text: &str) -> String {
    let text = without_json(text);
    let text = without_page(&text);
    let text = without_number(&text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn without_json(text: &str) -> String {
    let Some((head, Ok(body))) = text
        .find('{')
        .and_then(|at| text.split_at_checked(at))
        .map(|(head, body)| (head, serde_json::from_str::<Json>(body)))
    else {
        return text.to_owned();
    };
    let message = [at(&body, "/error/message"), at(&body, "/message")];
    match message.into_iter().find_map(Json::as_str) {
        Some(message) => format!("{head}{message}"),
        None => text.to_owned(),
    }
}

/// What proxies answer: only the title of the page says something.
fn without_page(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let Some(page) = ["<!doctype", "<html"].iter().find_map(|it| lower.find(it)) else {
        return text.to_owned();
    };
    let head = text.get(..page).unwrap_or_default().trim();
    let title = lower.find("<title>").map(|at| at + "<title>".len());
    let title = title.and_then(|from| {
        let length = lower.get(from..)?.find("</title>")?;
        text.get(from..from + length)
    });
    match title.map(str::trim).filter(|title| !title.is_empty()) {
        Some(title) if title.starts_with(head) => title.to_owned(),
        Some(title) => format!("{head} {title}"),
        None => head.to_owned(),
    }
}

/// `Connection refused (os error 111)`: the words say it.
fn without_number(text: &str) -> String {
    let Some((head, tail)) = text.split_once(" (os error ") else {
        return text.to_owned();
    };
    match tail.split_once(')') {
        Some((number, rest)) if number.chars().all(|c| c.is_ascii_digit()) => {
            format!("{head}{rest}")
        }
        _ => text.to_owned(),
    }
}

/// Says what to do about an error of this provider; `None` when there is nothing to say that the error does not.
pub(super) fn advice(text: &str, provider: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let key = ["no api key", "api key", "unauthorized", "authentication"];
    Some(if is_overflow_text(text, provider) {
        "`:Pi compact` shortens the conversation, `:Pi model` has models that read more".into()
    } else if has(&["401", "403"]) && !has(&["429"]) || has(&key) {
        let login = format!(":Pi login {provider}");
        let login = login.trim_end();
        format!("`{login}` stores another key, `:Pi model` takes another model")
    } else if has(&["connection refused", "dns error", "failed to lookup"]) {
        "is the server running? `:Pi settings models` has its address".into()
    } else if has(&["timed out", "timeout"]) {
        "send again: <Up> brings the text back (the limit is `httpIdleTimeoutMs`)".into()
    } else if has(&["ended without", "stream ended", "stream was interrupted"]) {
        "the answer broke off, what came is kept: send `go on`".into()
    } else if has(&["404", "not found", "does not exist"]) {
        "`:Pi model` lists the models there are".into()
    } else if has(&["quota", "billing", "balance", "usage limit"]) {
        "waiting does not lift this limit: `:Pi model` takes another model".into()
    } else if is_retryable_text(text) {
        "send again in a while: <Up> brings the text back".into()
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn only_the_message_is_left() {
        assert_eq!(
            plain("401: {\"error\":{\"message\":\"bad key\"}}"),
            "401: bad key"
        );
        assert_eq!(
            plain("502 <html><head><TITLE>502 Bad Gateway</TITLE></head>\n<body>x</body></html>"),
            "502 Bad Gateway"
        );
        assert_eq!(plain("503 <!DOCTYPE html><p>x"), "503");
        assert_eq!(
            plain("connection error: Connection refused (os error 111) (127.0.0.1:80)"),
            "connection error: Connection refused (127.0.0.1:80)"
        );
        assert_eq!(plain("a\n  b (os error x)"), "a b (os error x)");
    }

    #[test]
    fn each_kind_says_what_to_do() {
        for (error, part) in [
            ("401: Incorrect API key provided", ":Pi login mock"),
            ("403 Forbidden", ":Pi login mock"),
            ("429: Rate limit reached for requests", "in a while"),
            ("429: insufficient_quota: check billing", "does not lift"),
            (
                "connection error: Connection refused",
                "is the server running?",
            ),
            (
                "request timed out: the server sent nothing for 1 s",
                "httpIdleTimeoutMs",
            ),
            ("Stream ended without finish_reason", "what came is kept"),
            (
                "the stream was interrupted by something that is no JSON: x",
                "what came is kept",
            ),
            (
                "400: This model's maximum context length is 8192 tokens. However, you asked for more.",
                ":Pi compact",
            ),
            ("404: The model `x` does not exist", ":Pi model"),
            ("502 Bad Gateway", "in a while"),
        ] {
            let said = advice(error, "mock").unwrap_or_default();
            assert!(said.contains(part), "{error}: {said}");
        }
        assert_eq!(advice("something else", "mock"), None);
    }
}
