//! Text of a session is untrusted: this is the only way it gets into a page.

use std::borrow::Cow;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};

/// Schemes a link may have.
const SCHEMES: [&str; 3] = ["http", "https", "mailto"];
/// Kinds of pictures that are shown.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Removes control characters but for tab and line feed.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let bad = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(bad) {
        Cow::Owned(text.replace(bad, ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// Escapes text for content and for quoted attributes alike.
pub(super) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in clean(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Returns a link target that may stand in a page; `None` for any scheme but the allowed ones.
pub(super) fn link(target: &str) -> Option<String> {
    // Browsers drop blanks and control characters before they look at the scheme.
    let target: String = target
        .chars()
        .filter(|c| !c.is_control() && !c.is_whitespace())
        .collect();
    let (scheme, _) = target.split_once(':')?;
    SCHEMES
        .iter()
        .any(|allowed| scheme.eq_ignore_ascii_case(allowed))
        .then_some(target)
}

/// Returns the `src` of a picture; `None` when it is not one of the usual kinds or its data is not base64.
pub(super) fn picture(mime: &str, data: &str) -> Option<String> {
    let mime = PICTURES
        .iter()
        .find(|allowed| mime.eq_ignore_ascii_case(allowed))?;
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    (!data.is_empty() && data.bytes().all(is_base64)).then(|| format!("data:{mime};base64,{data}"))
}

/// Turns Markdown into HTML: raw HTML becomes text, pictures become links (a page loads nothing), links keep only allowed
/// targets.
pub(super) fn markdown(source: &str) -> String {
    let source = clean(source);
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    // Whether each open link had an allowed target: a refused one leaves its text only.
    let mut open = Vec::new();
    let events = Parser::new_ext(&source, options).filter_map(|event| match event {
        Event::Html(raw) | Event::InlineHtml(raw) => Some(Event::Text(raw)),
        Event::Start(Tag::HtmlBlock) | Event::End(TagEnd::HtmlBlock) => None,
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            let target = link(&dest_url);
            open.push(target.is_some());
            let anchor = |target: String| {
                format!("<a rel=\"noreferrer noopener\" href=\"{}\">", text(&target))
            };
            target.map(|target| Event::InlineHtml(anchor(target).into()))
        }
        Event::End(TagEnd::Link | TagEnd::Image) => open
            .pop()
            .filter(|allowed| *allowed)
            .map(|_| Event::InlineHtml("</a>".into())),
        Event::Start(Tag::CodeBlock(_)) => Some(Event::InlineHtml("<pre><code>".into())),
        Event::End(TagEnd::CodeBlock) => Some(Event::InlineHtml("</code></pre>\n".into())),
        Event::SoftBreak => Some(Event::HardBreak),
        other => Some(other),
    });
    let mut out = String::new();
    html::push_html(&mut out, events);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_targets_stay() {
        for bad in [
            "javascript:alert(1)",
            "JaVaScRiPt:alert(1)",
            " java\u{1}script\n:alert(1)",
            "data:text/html,x",
            "vbscript:x",
            "//host/x",
            "x.html",
            "file:///etc/passwd",
            "&#106;avascript:x",
        ] {
            assert_eq!(link(bad), None, "{bad:?}");
        }
        assert_eq!(
            link("https://a.b/?x=\"y\"").as_deref(),
            Some("https://a.b/?x=\"y\"")
        );
        assert_eq!(link("MAILTO:a@b").as_deref(), Some("MAILTO:a@b"));
    }

    #[test]
    fn markdown_cannot_bring_its_own_elements() {
        for (source, expected) in [
            (
                "<script>alert(1)</script>",
                "&lt;script&gt;alert(1)&lt;/script&gt;",
            ),
            (
                "a <img src=x onerror=alert(1)> b",
                "<p>a &lt;img src=x onerror=alert(1)&gt; b</p>\n",
            ),
            ("[x](javascript:alert(1))", "<p>x</p>\n"),
            (
                "[x](https://a.b \"t\\\"><b>\")",
                "<p><a rel=\"noreferrer noopener\" href=\"https://a.b\">x</a></p>\n",
            ),
            (
                "![alt](https://a.b/p.png)",
                "<p><a rel=\"noreferrer noopener\" href=\"https://a.b/p.png\">alt</a></p>\n",
            ),
            (
                "<https://a.b/\"onclick=x>",
                "<p><a rel=\"noreferrer noopener\" href=\"https://a.b/&quot;onclick=x\">https://a.b/\"onclick=x</a></p>\n",
            ),
            (
                "```\"><script>\n</code><b>\n```",
                "<pre><code>&lt;/code&gt;&lt;b&gt;\n</code></pre>\n",
            ),
        ] {
            assert_eq!(
                markdown(source).trim_start_matches("<p>").trim_end(),
                expected.trim_start_matches("<p>").trim_end(),
                "{source}"
            );
        }
    }

    #[test]
    fn pictures_are_checked() {
        assert_eq!(
            picture("image/PNG", "aGk=").as_deref(),
            Some("data:image/png;base64,aGk=")
        );
        assert_eq!(picture("image/svg+xml", "aGk="), None);
        assert_eq!(picture("image/png", "\"><script>"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_opens_an_element_of_its_own(source in "[<>\"'&a-z`\\[\\]()!:/ \n*_#-]{0,60}") {
            // The elements that Markdown may make; anything else would come from the text.
            let made = ["p", "em", "strong", "code", "pre", "a", "br", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "blockquote", "del", "table", "thead", "tbody", "tr", "th", "td"];
            let page = markdown(&source);
            for piece in page.split('<').skip(1) {
                let name: String = piece.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
                proptest::prop_assert!(made.contains(&&*name), "{} -> {}", source, page);
                let inside = piece.split('>').next().unwrap();
                proptest::prop_assert!(!inside.contains(" on"), "{} -> {}", source, page);
            }
            proptest::prop_assert!(!text(&source).contains(['<', '>', '"', '\'']));
        }
    }
}
