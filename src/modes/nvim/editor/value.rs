//! JSON to msgpack and back, and the limit on nesting.

use rmpv::Value;
use serde_json::Value as Json;

/// Deepest argument Neovim takes: 32 levels in all, of which message, parameters and argument list use three.
pub const MAX_DEPTH: usize = 29;

/// Returns how many containers stand inside each other.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(pairs) => {
            1 + pairs
                .iter()
                .map(|(_, value)| depth(value))
                .max()
                .unwrap_or(0)
        }
        _ => 0,
    }
}

/// Leaves a value alone that Neovim takes; a deeper one has its too deep parts replaced by their JSON text. Neovim would
/// close the connection over them.
pub(super) fn fit(value: Value) -> Value {
    if depth(&value) <= MAX_DEPTH {
        value
    } else {
        flatten(value, MAX_DEPTH)
    }
}

/// Turns containers that stand below `levels` others into JSON text.
fn flatten(value: Value, levels: usize) -> Value {
    match value {
        Value::Array(_) | Value::Map(_) if levels == 0 => to_json(&value).to_string().into(),
        Value::Array(items) => items.into_iter().map(|v| flatten(v, levels - 1)).collect(),
        Value::Map(pairs) => {
            let flat = pairs.into_iter().map(|(k, v)| (k, flatten(v, levels - 1)));
            Value::Map(flat.collect())
        }
        other => other,
    }
}

/// Converts JSON. A lone surrogate cannot occur; everything has a msgpack form.
pub fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(it) => (*it).into(),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(it), _, _) => it.into(),
            (_, Some(it), _) => it.into(),
            (_, _, it) => it.unwrap_or(0.0).into(),
        },
        Json::String(it) => it.as_str().into(),
        Json::Array(items) => items.iter().map(from_json).collect(),
        Json::Object(map) => {
            let pairs = map.iter().map(|(k, v)| (k.as_str().into(), from_json(v)));
            Value::Map(pairs.collect())
        }
    }
}

/// Converts to JSON: bytes that are no text are read with replacement characters, handles become their number.
pub fn to_json(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Boolean(it) => Json::Bool(*it),
        Value::Integer(it) => match (it.as_i64(), it.as_u64()) {
            (Some(it), _) => it.into(),
            (_, Some(it)) => it.into(),
            _ => Json::Null,
        },
        Value::F32(it) => f64::from(*it).into(),
        Value::F64(it) => (*it).into(),
        Value::String(it) => String::from_utf8_lossy(it.as_bytes()).into(),
        Value::Binary(it) => String::from_utf8_lossy(it).into(),
        Value::Array(items) => items.iter().map(to_json).collect(),
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| {
                let key = match key {
                    Value::String(it) => String::from_utf8_lossy(it.as_bytes()).into_owned(),
                    other => other.to_string(),
                };
                (key, to_json(value))
            });
            Json::Object(pairs.collect())
        }
        // Buffer, window and tab page handles: a msgpack integer inside.
        Value::Ext(_, bytes) => rmpv::decode::read_value(&mut bytes.as_slice())
            .ok()
            .and_then(|it| it.as_i64())
            .into(),
    }
}

/// Splits an error of Neovim into its kind and a readable text.
pub(super) fn lua_error(error: &Value) -> (Option<i64>, String) {
    let (code, text) = match error.as_array().map(Vec::as_slice) {
        Some([code, text]) => (code.as_i64(), to_json(text)),
        _ => (None, to_json(error)),
    };
    let text = text
        .as_str()
        .map_or_else(|| text.to_string(), str::to_owned);
    let text = text.split("\nstack traceback:").next().unwrap_or_default();
    let text = text.strip_prefix("Error executing lua: ").unwrap_or(text);
    (code, text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn nested(levels: usize) -> Json {
        (0..levels).fold(Json::from(1), |inner, _| Json::Array(vec![inner]))
    }

    #[test]
    fn json_survives_a_round_trip() {
        let json = serde_json::json!({"a": [1, -2, 2.5, null, true, "ü"], "b": {}, "c": u64::MAX});
        assert_eq!(to_json(&from_json(&json)), json);
    }

    #[test]
    fn depth_counts_containers() {
        assert_eq!(
            depth(&from_json(&serde_json::json!({"a": [1, {"b": []}]}))),
            4
        );
        assert_eq!(depth(&Value::from(1)), 0);
    }

    #[test]
    fn what_is_too_deep_becomes_json_text() {
        let kept = from_json(&nested(MAX_DEPTH));
        assert_eq!(fit(kept.clone()), kept);
        let cut = fit(from_json(&nested(MAX_DEPTH + 2)));
        assert_eq!(depth(&cut), MAX_DEPTH);
        assert!(cut.to_string().contains("[[1]]"), "{cut}");
    }
}
