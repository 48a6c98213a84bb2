//! The comparison rules of `tests/conformance/tools/README.md`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pi_nvim::agent::ErrorClass;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::harness::{Case, Ran, Setup};

/// Compares all calls of a case and the files.
pub(crate) fn case(case: &Case, ran: &[Ran], setup: &Setup) -> Result<(), String> {
    match case.0.get("results").and_then(Value::as_array) {
        Some(results) => {
            for (index, (ran, recorded)) in ran.iter().zip(results).enumerate() {
                result(case, ran, recorded, setup).map_err(|why| format!("call {index}: {why}"))?;
            }
        }
        None => result(case, &ran[0], &case.0["result"], setup)?,
    }
    setup.check_files(case)
}

/// Compares one call with its recorded result.
pub(crate) fn result(
    case: &Case,
    ran: &Ran,
    recorded: &Value,
    setup: &Setup,
) -> Result<(), String> {
    let compare = case.0["compare"]["content"].as_str().unwrap_or_default();
    let told = || format!("got {}", short(&ran.result));
    if ran.result["isError"] != recorded["isError"] {
        return Err(format!(
            "isError should be {}, {}",
            recorded["isError"],
            told()
        ));
    }
    if compare == "error_like" {
        let code = &recorded["structuredContent"]["exit_code"];
        return equal(
            "exit_code",
            code,
            &ran.result["structuredContent"]["exit_code"],
        );
    }
    if let Some(error) = recorded.get("error") {
        check_error(error, ran, compare)?;
    }
    content(case, compare, ran, recorded)?;
    if let Some(details) = recorded.get("details") {
        check_details(details, &ran.result["details"])?;
    }
    if let Some(structured) = recorded.get("structuredContent") {
        check_structured(structured, &ran.result["structuredContent"])?;
    }
    match recorded.get("full_output_file") {
        Some(spec) => check_full_output(spec, ran),
        None => Ok(()),
    }?;
    let _ = setup;
    Ok(())
}

/// Whether an error is of the class and names what it must.
pub(crate) fn check_error(error: &Value, ran: &Ran, compare: &str) -> Result<(), String> {
    let class = error["class"].as_str().unwrap();
    // bash returns its exit codes as results with `isError`; they carry no class.
    if class != "exit_code" && class_name(ran.class) != class {
        return Err(format!(
            "class should be {class}, got {:?}: {}",
            ran.class,
            ran.text()
        ));
    }
    let text = ran.text().to_lowercase();
    for keyword in error["keywords"].as_array().into_iter().flatten() {
        let keyword = keyword.as_str().unwrap();
        if !text.contains(&keyword.to_lowercase()) {
            return Err(format!(
                "({compare}) {keyword:?} is missing in {:?}",
                ran.text()
            ));
        }
    }
    Ok(())
}

/// The recorded name of a class.
pub(crate) fn class_name(class: Option<ErrorClass>) -> String {
    let mut out = String::new();
    for (at, c) in class
        .map(|class| format!("{class:?}"))
        .unwrap_or_default()
        .char_indices()
    {
        if c.is_ascii_uppercase() && at > 0 {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn content(case: &Case, compare: &str, ran: &Ran, recorded: &Value) -> Result<(), String> {
    let text = ran.text();
    match compare {
        "exact" | "image" => blocks(
            compare,
            &recorded["content"],
            &ran.result["content"],
            recorded,
        ),
        "keywords" | "keywords_image" => {
            for keyword in case.0["content_keywords"].as_array().into_iter().flatten() {
                if !text.contains(keyword.as_str().unwrap()) {
                    return Err(format!("{keyword} is missing in {text:?}"));
                }
            }
            if compare == "keywords_image" {
                no_image(ran)
            } else {
                Ok(())
            }
        }
        "no_image" => no_image(ran),
        "line_set" if recorded["content"][0].get("text_digest").is_some() => {
            // Recorded sorted.
            let (lines, _) = sorted_body(compare, &text);
            text_is(&recorded["content"][0], "text", &lines.join("\n"))
        }
        "line_set" | "file_groups" => {
            let wanted = sorted_body(compare, &recorded_text(recorded)?);
            let got = sorted_body(compare, &text);
            if wanted == got {
                Ok(())
            } else {
                Err(format!("wanted {wanted:?}\n   got {got:?}"))
            }
        }
        "count" => count(recorded, &text),
        "last_line" => {
            let last = |text: &str| {
                text.lines()
                    .rev()
                    .find(|line| !line.trim().is_empty())
                    .map(str::to_owned)
            };
            let (wanted, got) = (last(&recorded_text(recorded)?), last(&text));
            if wanted == got {
                Ok(())
            } else {
                Err(format!("last line {got:?}, wanted {wanted:?}"))
            }
        }
        _ => Ok(()),
    }
}

fn recorded_text(recorded: &Value) -> Result<String, String> {
    let text = recorded["content"][0]["text"].as_str();
    text.map(str::to_owned)
        .ok_or_else(|| "the recorded text is a digest".to_owned())
}

fn no_image(ran: &Ran) -> Result<(), String> {
    let blocks = ran.result["content"].as_array().unwrap();
    let has = blocks.iter().any(|block| block["type"] == "image");
    if has {
        Err("an image block".to_owned())
    } else {
        Ok(())
    }
}

fn blocks(compare: &str, wanted: &Value, got: &Value, recorded: &Value) -> Result<(), String> {
    let (wanted, got) = (wanted.as_array().unwrap(), got.as_array().unwrap());
    if wanted.len() != got.len() {
        return Err(format!(
            "{} blocks instead of {}: {}",
            got.len(),
            wanted.len(),
            short(&got[0])
        ));
    }
    for (wanted, got) in wanted.iter().zip(got) {
        equal("type", &wanted["type"], &got["type"])?;
        if wanted["type"] == "text" {
            text_is(wanted, "text", got["text"].as_str().unwrap())?;
            continue;
        }
        equal("mimeType", &wanted["mimeType"], &got["mimeType"])?;
        let data = got["data"].as_str().unwrap();
        if compare == "image" {
            let picture = image::load_from_memory(&STANDARD.decode(data).unwrap()).unwrap();
            let size = serde_json::json!([picture.width(), picture.height()]);
            equal("image_size", &recorded["image_size"], &size)?;
        } else if let Some(digest) = wanted.get("data_digest") {
            digest_is(digest, data)?;
        } else {
            equal("data", &wanted["data"], &got["data"])?;
        }
    }
    Ok(())
}

/// Whether `text` is the recorded field `key`, given whole or as a digest.
pub(crate) fn text_is(recorded: &Value, key: &str, text: &str) -> Result<(), String> {
    if let Some(wanted) = recorded[key].as_str() {
        return if wanted == text {
            Ok(())
        } else {
            Err(format!(
                "{key}: wanted {:?}\n   got {:?}",
                shorten(wanted),
                shorten(text)
            ))
        };
    }
    digest_is(&recorded[format!("{key}_digest")], text)
}

fn digest_is(digest: &Value, text: &str) -> Result<(), String> {
    let sha: String = Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if digest["sha256"].as_str() == Some(&sha) {
        return Ok(());
    }
    let units: Vec<u16> = text.encode_utf16().collect();
    let head = String::from_utf16_lossy(&units[..units.len().min(160)]);
    let tail = String::from_utf16_lossy(&units[units.len().saturating_sub(160)..]);
    Err(format!(
        "digest: {} bytes, head {head:?}, tail {tail:?}\n   wanted {digest}",
        text.len()
    ))
}

/// Whether bytes are what a recorded file value says.
pub(crate) fn file_is(spec: &Value, bytes: &[u8]) -> bool {
    if let Some(text) = spec["text"].as_str() {
        return text.as_bytes() == bytes;
    }
    if let Some(data) = spec["base64"].as_str() {
        return STANDARD.decode(data).unwrap() == bytes;
    }
    let digest = if spec["text_digest"].is_null() {
        &spec["bytes_digest"]
    } else {
        &spec["text_digest"]
    };
    let sha: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    digest["sha256"].as_str() == Some(&sha)
}

fn split_notice(text: &str) -> (&str, Option<&str>) {
    match text.rfind("\n\n[") {
        Some(at) if text.ends_with(']') => (&text[..at], Some(&text[at + 2..])),
        _ => (text, None),
    }
}

fn sorted_body(compare: &str, text: &str) -> (Vec<String>, Option<String>) {
    let (body, notice) = split_notice(text);
    let mut lines: Vec<String> = body.split('\n').map(str::to_owned).collect();
    match compare {
        "line_set" => lines.sort(),
        // Stable: lines of one file keep their order.
        _ => lines.sort_by_key(|line| file_of(line)),
    }
    (lines, notice.map(str::to_owned))
}

/// The path before `:12:` or `-12-`.
fn file_of(line: &str) -> String {
    let pattern = regex::Regex::new(r"^(.*?)(:\d+: |-\d+- )").unwrap();
    pattern
        .captures(line)
        .map_or_else(|| line.to_owned(), |found| found[1].to_owned())
}

fn count(recorded: &Value, text: &str) -> Result<(), String> {
    let (body, notice) = split_notice(text);
    let lines = body.split('\n').count();
    if recorded["line_count"].as_u64() != Some(lines as u64) {
        return Err(format!(
            "{lines} lines instead of {}",
            recorded["line_count"]
        ));
    }
    let wanted = recorded["notice"].as_str();
    if wanted == notice {
        Ok(())
    } else {
        Err(format!("notice {notice:?}, wanted {wanted:?}"))
    }
}

/// Compares details: digests for long texts, the copy of the shown text left out of `truncation`.
pub(crate) fn check_details(recorded: &Value, got: &Value) -> Result<(), String> {
    let (Some(wanted), Some(fields)) = (recorded.as_object(), got.as_object()) else {
        return equal("details", recorded, got);
    };
    let mut fields = fields.clone();
    for (key, value) in wanted {
        let plain = key.trim_end_matches("_digest");
        let Some(got) = fields.shift_remove(plain) else {
            return Err(format!("details.{plain} is missing"));
        };
        match got {
            Value::String(text) => {
                text_is(recorded, plain, &text).map_err(|why| format!("details: {why}"))?;
            }
            Value::Object(mut inner) => {
                inner.shift_remove("content");
                equal(plain, value, &Value::Object(inner))?;
            }
            other => equal(plain, value, &other)?,
        }
    }
    // What a review adds is ours and ignored by other programs.
    fields.shift_remove("review");
    if fields.is_empty() {
        Ok(())
    } else {
        Err(format!("details have more: {:?}", fields.keys()))
    }
}

fn check_structured(recorded: &Value, got: &Value) -> Result<(), String> {
    for key in recorded.as_object().unwrap().keys() {
        let plain = key.trim_end_matches("_digest");
        match &recorded[key] {
            Value::String(mask) if mask == "{number}" => {
                if !got[key].is_number() {
                    return Err(format!(
                        "structuredContent.{key} is no number: {}",
                        got[key]
                    ));
                }
            }
            _ if plain == "output" => {
                text_is(recorded, plain, got[plain].as_str().unwrap_or_default())?;
            }
            wanted => equal(key, wanted, &got[key])?,
        }
    }
    Ok(())
}

fn check_full_output(spec: &Value, ran: &Ran) -> Result<(), String> {
    let path = ran.full_output.as_ref().ok_or("no full output file")?;
    let bytes = fs::read(path).map_err(|error| format!("full output: {error}"))?;
    if !file_is(spec, &bytes) {
        return Err(format!(
            "full output has {} bytes, wanted {}",
            bytes.len(),
            shorten(&spec.to_string())
        ));
    }
    let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let wanted = spec["mode"]
        .as_str()
        .map(|mode| u32::from_str_radix(mode, 8).unwrap());
    if wanted.is_some_and(|wanted| wanted != mode) {
        return Err(format!("full output has mode {mode:o}"));
    }
    Ok(())
}

fn equal(what: &str, wanted: &Value, got: &Value) -> Result<(), String> {
    if same(wanted, got) {
        return Ok(());
    }
    Err(format!(
        "{what}: wanted {}\n   got {}",
        short(wanted),
        short(got)
    ))
}

/// JSON equality that does not tell `2` from `2.0`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

fn short(value: &Value) -> String {
    shorten(&value.to_string())
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 900 {
        return text.to_owned();
    }
    let head: String = text.chars().take(600).collect();
    let tail: String = text
        .chars()
        .rev()
        .take(200)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect();
    format!("{head} ... {tail}")
}
