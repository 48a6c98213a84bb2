//! Tool schemas in the forms the wire APIs take. Anything odd is sent through or refused by value, never a crash.

use serde_json::{Map, Value, json};

use super::message::ToolDeclaration;

/// Keywords that strict sampling does not know.
const NOT_STRICT: [&str; 19] = [
    "$ref",
    "$defs",
    "definitions",
    "allOf",
    "oneOf",
    "patternProperties",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "contains",
    "prefixItems",
    "not",
    "if",
    "then",
    "else",
    "additionalItems",
];

/// How a tool wants its arguments sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// As the model likes.
    Plain,
    /// Strictly where schema and model allow it.
    Prefer,
    /// Strictly or not at all.
    Require,
}

/// Reads `constrainedSampling` of a tool.
pub fn strictness(tool: &ToolDeclaration) -> Strictness {
    let sampling = tool.constrained_sampling.as_ref();
    let schema = sampling
        .is_some_and(|value| value.get("type").and_then(Value::as_str) == Some("json_schema"));
    match sampling
        .and_then(|value| value.get("strict"))
        .and_then(Value::as_str)
    {
        Some("prefer") if schema => Strictness::Prefer,
        Some("require") if schema => Strictness::Require,
        _ => Strictness::Plain,
    }
}

/// Converts a schema to its strict form; `None` when it cannot be.
pub fn strict(schema: &Value) -> Option<Value> {
    let root = schema.as_object()?;
    if root.get("type").and_then(Value::as_str) != Some("object") || root.contains_key("anyOf") {
        return None;
    }
    strict_node(schema, 0)
}

fn strict_node(node: &Value, depth: usize) -> Option<Value> {
    let map = node.as_object()?;
    if depth > 60 || NOT_STRICT.iter().any(|key| map.contains_key(*key)) {
        return None;
    }
    if !["type", "anyOf", "enum"]
        .iter()
        .any(|key| map.contains_key(*key))
    {
        return None;
    }
    let mut out = map.clone();
    if let Some(variants) = map.get("anyOf") {
        let variants = variants.as_array()?;
        if variants.iter().any(is_container) {
            return None;
        }
        let strict: Option<Vec<Value>> =
            variants.iter().map(|v| strict_node(v, depth + 1)).collect();
        out.insert("anyOf".into(), Value::Array(strict?));
    }
    if is_container(node) && map.get("type").is_some_and(Value::is_array) {
        return None;
    }
    if map.get("type").and_then(Value::as_str) == Some("object") || map.contains_key("properties") {
        strict_object(map, &mut out, depth)?;
    }
    if let Some(items) = map.get("items") {
        out.insert("items".into(), strict_node(items, depth + 1)?);
    }
    Some(Value::Object(out))
}

fn strict_object(
    map: &Map<String, Value>,
    out: &mut Map<String, Value>,
    depth: usize,
) -> Option<()> {
    if !matches!(
        map.get("additionalProperties"),
        None | Some(Value::Bool(false))
    ) {
        return None;
    }
    let empty = Map::new();
    let properties = match map.get("properties") {
        Some(value) => value.as_object()?,
        None => &empty,
    };
    let required: Vec<&str> = match map.get("required") {
        Some(value) => value
            .as_array()?
            .iter()
            .map(Value::as_str)
            .collect::<Option<_>>()?,
        None => Vec::new(),
    };
    if required.iter().any(|name| !properties.contains_key(*name)) {
        return None;
    }
    let mut strict = Map::new();
    for (name, schema) in properties {
        let mut schema = strict_node(schema, depth + 1)?;
        if !required.contains(&name.as_str()) && !allows_null(&schema) {
            schema = json!({"anyOf": [schema, {"type": "null"}]});
        }
        strict.insert(name.clone(), schema);
    }
    let names: Vec<Value> = strict.keys().map(|name| name.as_str().into()).collect();
    out.insert("properties".into(), Value::Object(strict));
    out.insert("required".into(), Value::Array(names));
    out.insert("additionalProperties".into(), false.into());
    Some(())
}

/// Whether the node's type names an object or array.
fn is_container(node: &Value) -> bool {
    let named = |value: &Value| matches!(value.as_str(), Some("object" | "array"));
    match node.get("type") {
        Some(Value::Array(types)) => types.iter().any(named),
        Some(one) => named(one),
        None => node.get("properties").is_some() || node.get("items").is_some(),
    }
}

fn allows_null(node: &Value) -> bool {
    let null = |value: &Value| value.as_str() == Some("null");
    let typed = match node.get("type") {
        Some(Value::Array(types)) => types.iter().any(null),
        Some(one) => null(one),
        None => false,
    };
    let listed = |key: &str, test: &dyn Fn(&Value) -> bool| {
        node.get(key)
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(test))
    };
    typed || listed("enum", &Value::is_null) || listed("anyOf", &allows_null)
}

/// Whether a strict schema keeps to the smaller set of keywords that Anthropic compiles.
pub fn anthropic_strict_ok(schema: &Value) -> bool {
    const REFUSED: [&str; 11] = [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "maxItems",
        "uniqueItems",
        "minContains",
        "maxContains",
        "minProperties",
        "maxProperties",
    ];
    const FORMATS: [&str; 10] = [
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "uri",
        "ipv4",
        "ipv6",
        "uuid",
    ];
    let Some(map) = schema.as_object() else {
        return true;
    };
    let format_ok = map
        .get("format")
        .and_then(Value::as_str)
        .is_none_or(|format| FORMATS.contains(&format));
    let min_items_ok = map
        .get("minItems")
        .is_none_or(|min| matches!(min.as_u64(), Some(0 | 1)));
    let below = map
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::values);
    let variants = map
        .get("anyOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    format_ok
        && min_items_ok
        && !REFUSED.iter().any(|key| map.contains_key(*key))
        && below
            .chain(variants)
            .chain(map.get("items"))
            .all(anthropic_strict_ok)
}

/// Returns Anthropic's `input_schema` of a plain tool: the root keywords it accepts, with defaults.
pub fn anthropic_input(schema: &Value) -> Value {
    let get = |key: &str| schema.get(key).filter(|value| !value.is_null()).cloned();
    let mut out = Map::new();
    out.insert("type".into(), "object".into());
    out.insert(
        "properties".into(),
        get("properties").unwrap_or_else(|| json!({})),
    );
    out.insert(
        "required".into(),
        get("required").unwrap_or_else(|| json!([])),
    );
    for key in ["additionalProperties", "$defs", "definitions"] {
        if let Some(value) = get(key) {
            out.insert(key.into(), value);
        }
    }
    Value::Object(out)
}

/// Rewrites `const` to a one-value `enum` where it is a schema keyword: Gemini reads over `const`.
pub fn gemini(schema: &Value) -> Value {
    let Some(map) = schema.as_object() else {
        return schema.clone();
    };
    let mut out = Map::new();
    for (key, value) in map {
        let (key, value) = match key.as_str() {
            "const" if value.is_string() || value.is_number() => {
                ("enum".to_owned(), json!([value]))
            }
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                (key.clone(), each_value(value))
            }
            "default" | "enum" | "examples" | "const" | "required" => (key.clone(), value.clone()),
            _ => match value {
                Value::Array(list) => (key.clone(), list.iter().map(gemini).collect()),
                other => (key.clone(), gemini(other)),
            },
        };
        out.insert(key, value);
    }
    Value::Object(out)
}

fn each_value(value: &Value) -> Value {
    match value.as_object() {
        Some(map) => Value::Object(
            map.iter()
                .map(|(name, schema)| (name.clone(), gemini(schema)))
                .collect(),
        ),
        None => value.clone(),
    }
}
