//! Ids of tool calls as the wire APIs want them, and the short hash that keeps shortened ones apart.

/// Hashes text over its UTF-16 units to about 13 letters and digits (the well-known 53-bit multiply-xor hash).
pub fn short_hash(text: &str) -> String {
    const A: u32 = 2_654_435_761;
    const B: u32 = 1_597_334_677;
    const C: u32 = 2_246_822_507;
    const D: u32 = 3_266_489_909;
    let (mut one, mut two) = (0xdead_beef_u32, 0x41c6_ce57_u32);
    for unit in text.encode_utf16() {
        one = (one ^ u32::from(unit)).wrapping_mul(A);
        two = (two ^ u32::from(unit)).wrapping_mul(B);
    }
    one = (one ^ (one >> 16)).wrapping_mul(C) ^ (two ^ (two >> 13)).wrapping_mul(D);
    two = (two ^ (two >> 16)).wrapping_mul(C) ^ (one ^ (one >> 13)).wrapping_mul(D);
    base36(two) + &base36(one)
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit(number % 36, 36));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

/// Replaces every character outside `[A-Za-z0-9_-]` by `_`.
fn sanitise(id: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
            c
        } else {
            '_'
        }
    };
    id.chars().map(plain).collect()
}

/// Cuts ASCII text to `len` characters.
fn cut(id: &str, len: usize) -> String {
    id.chars().take(len).collect()
}

/// Id for the Messages API (and for Gemini models with ids): plain characters, at most 64.
pub fn plain(id: &str) -> String {
    cut(&sanitise(id), 64)
}

/// Id for Chat Completions.
pub fn chat(id: &str, provider: &str) -> String {
    let Some((call, item)) = id.split_once('|') else {
        return if provider == "openai" {
            cut(id, 40)
        } else {
            id.to_owned()
        };
    };
    let (call, item) = (sanitise(call), sanitise(item));
    let joined = format!("{call}_{item}");
    if joined.len() <= 40 {
        return joined;
    }
    format!("{}_{}", cut(&call, 31), cut(&short_hash(id), 8))
}

/// Id for the Responses API. `foreign_item` = the item id was made by another provider or API.
pub fn responses(id: &str, provider: &str, foreign_item: bool) -> String {
    if !matches!(provider, "openai" | "openai-codex" | "opencode") {
        return plain(id).trim_end_matches('_').to_owned();
    }
    let Some((call, item)) = id.split_once('|') else {
        return plain(id).trim_end_matches('_').to_owned();
    };
    let call = plain(call).trim_end_matches('_').to_owned();
    let item = if foreign_item {
        format!("fc_{}", short_hash(item))
    } else {
        let item = sanitise(item);
        let item = if item.starts_with("fc_") {
            item
        } else {
            format!("fc_{item}")
        };
        cut(&item, 64)
    };
    format!("{call}|{}", item.trim_end_matches('_'))
}
