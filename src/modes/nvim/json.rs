//! Reading and building JSON without a way to panic.

use serde_json::Value;

static NULL: Value = Value::Null;

/// Returns what stands at a JSON pointer (`/message/role`), `null` when there is nothing.
pub(super) fn at<'a>(json: &'a Value, pointer: &str) -> &'a Value {
    json.pointer(pointer).unwrap_or(&NULL)
}

/// Sets a field of an object; anything else is left alone.
pub(super) fn put(json: &mut Value, key: &str, value: Value) {
    if let Value::Object(map) = json {
        map.insert(key.to_owned(), value);
    }
}
