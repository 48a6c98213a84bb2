//! Arguments of a call, from what the model sent to what a tool gets.
//!
//! Order per call: the tool's own preparation, malformed text reported by the provider, coercion by schema, validation.
//! Entry point: [`ArgumentCheck::prepare`]. The transcript keeps the raw arguments; everything here works on a copy.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use jsonschema::Validator;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use parking_lot::Mutex;
use serde_json::{Map, Number, Value};

use super::{ErrorClass, Tool, ToolError};
use crate::ai::ToolDeclaration;
use crate::ai::message::ToolCall;

/// How deep a schema and a value are followed; deeper values are left to validation.
const MAX_DEPTH: usize = 64;

/// Compiled schemas by tool name; a schema is compiled at the first call of its tool.
#[derive(Default)]
pub struct ArgumentCheck {
    compiled: Mutex<HashMap<String, Compiled>>,
}

#[derive(Clone)]
struct Compiled {
    schema: Value,
    validator: Arc<Validator>,
}

impl ArgumentCheck {
    /// Returns the arguments a call runs with.
    ///
    /// # Errors
    /// `MalformedArguments` when the provider could not read the argument text, `Validation` when the arguments do not
    /// fit the schema; both texts are for the model.
    pub fn prepare(&self, tool: &dyn Tool, call: &ToolCall) -> Result<Value, ToolError> {
        let prepared = tool.prepare_arguments(call.arguments.clone());
        if let Some(problem) = &call.arguments_error {
            return Err(malformed(&call.name, problem));
        }
        self.check(tool.declaration(), prepared, &call.arguments)
    }

    /// Coerces and validates; `raw` is what the error text shows.
    ///
    /// # Errors
    /// `Validation`, with one line per problem.
    pub fn check(
        &self,
        declaration: &ToolDeclaration,
        prepared: Value,
        raw: &Value,
    ) -> Result<Value, ToolError> {
        let coerced = coerce(&declaration.parameters, prepared);
        let Some(validator) = self.validator(declaration) else {
            return Ok(coerced);
        };
        let problems = problems(&validator, &coerced);
        if problems.is_empty() {
            return Ok(coerced);
        }
        Err(invalid(&declaration.name, &problems, raw))
    }

    /// A schema that is itself broken checks nothing: the tool then decides alone.
    fn validator(&self, declaration: &ToolDeclaration) -> Option<Arc<Validator>> {
        let known = self.compiled.lock().get(&declaration.name).cloned();
        if let Some(known) = known.filter(|known| known.schema == declaration.parameters) {
            return Some(known.validator);
        }
        let validator = match jsonschema::validator_for(&declaration.parameters) {
            Ok(validator) => Arc::new(validator),
            Err(error) => {
                tracing::warn!(tool = declaration.name, %error, "argument schema cannot be used");
                return None;
            }
        };
        let compiled = Compiled {
            schema: declaration.parameters.clone(),
            validator: Arc::clone(&validator),
        };
        self.compiled
            .lock()
            .insert(declaration.name.clone(), compiled);
        Some(validator)
    }
}

/// The error for argument text that is no JSON object; `problem` comes from the provider and quotes the text.
pub fn malformed(tool: &str, problem: &str) -> ToolError {
    ToolError::new(
        ErrorClass::MalformedArguments,
        format!(
            "The arguments of this \"{tool}\" call are not valid JSON, so it was not run: {problem}\n\n\
             Send the call again with complete arguments."
        ),
    )
}

fn invalid(tool: &str, problems: &[(String, String)], raw: &Value) -> ToolError {
    let mut text = format!("Validation failed for tool \"{tool}\":\n");
    for (path, problem) in problems {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  - {path}: {problem}");
    }
    let shown = serde_json::to_string_pretty(raw).unwrap_or_default();
    let _ = write!(text, "\nReceived arguments:\n{shown}");
    ToolError::new(ErrorClass::Validation, text)
}

fn problems(validator: &Validator, arguments: &Value) -> Vec<(String, String)> {
    validator
        .iter_errors(arguments)
        .map(|error| {
            let mut path: Vec<String> = error
                .instance_path()
                .into_iter()
                .map(|segment| segment.to_string())
                .collect();
            if let ValidationErrorKind::Required { property } = error.kind() {
                path.push(property.as_str().unwrap_or_default().to_owned());
            }
            let path = if path.is_empty() {
                "root".to_owned()
            } else {
                path.join(".")
            };
            (path, problem(error.kind(), error.instance()))
        })
        .collect()
}

fn problem(kind: &ValidationErrorKind, instance: &Value) -> String {
    use ValidationErrorKind as Kind;
    match kind {
        Kind::Required { .. } => "missing".to_owned(),
        Kind::Type { kind } => {
            let wanted = match kind {
                TypeKind::Single(one) => one.to_string(),
                TypeKind::Multiple(set) => {
                    let names: Vec<String> = set.iter().map(|one| one.to_string()).collect();
                    names.join(" or ")
                }
            };
            format!("expected {wanted}, got {}", type_name(instance))
        }
        Kind::Enum { options } => format!("expected one of {options}, got {instance}"),
        Kind::Constant { expected_value } => format!("expected {expected_value}, got {instance}"),
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => {
            format!("{} fits none of the allowed forms", type_name(instance))
        }
        Kind::OneOfMultipleValid { .. } => "fits more than one of the allowed forms".to_owned(),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            format!("unknown {}", unexpected.join(", "))
        }
        Kind::Minimum { limit } => format!("must be at least {limit}"),
        Kind::Maximum { limit } => format!("must be at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Kind::MinLength { limit } => format!("needs at least {limit} characters"),
        Kind::MaxLength { limit } => format!("takes at most {limit} characters"),
        Kind::MinItems { limit } => format!("needs at least {limit} items"),
        Kind::MaxItems { limit } => format!("takes at most {limit} items"),
        Kind::Pattern { pattern } => format!("does not match the pattern {pattern}"),
        Kind::Format { format } => format!("is no {format}"),
        other => format!("breaks the rule `{}` of the schema", other.keyword()),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Turns values into what the schema asks for where the meaning is plain; leaves everything else alone.
pub fn coerce(schema: &Value, value: Value) -> Value {
    Coercion { root: schema }.value(schema, value, 0)
}

struct Coercion<'a> {
    root: &'a Value,
}

impl Coercion<'_> {
    fn value(&self, schema: &Value, value: Value, depth: usize) -> Value {
        if depth > MAX_DEPTH {
            return value;
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            return match self.resolve(target) {
                Some(target) => self.value(target, value, depth + 1),
                None => value,
            };
        }
        let mut value = value;
        for part in branches(schema, "allOf") {
            value = self.value(part, value, depth + 1);
        }
        for keyword in ["anyOf", "oneOf"] {
            value = self.union(branches(schema, keyword), value, depth);
        }
        match schema.get("type") {
            Some(Value::String(kind)) => self.typed(kind, schema, value, depth),
            Some(Value::Array(kinds)) => self.several(kinds, schema, value, depth),
            _ if schema.get("properties").is_some() => self.typed("object", schema, value, depth),
            _ => value,
        }
    }

    fn resolve(&self, target: &str) -> Option<&Value> {
        self.root.pointer(target.strip_prefix('#')?)
    }

    /// A value that one branch accepts is left alone; else the first branch whose coercion it accepts decides.
    fn union(&self, branches: &[Value], value: Value, depth: usize) -> Value {
        if branches.is_empty() || branches.iter().any(|branch| self.accepts(branch, &value)) {
            return value;
        }
        branches
            .iter()
            .map(|branch| (branch, self.value(branch, value.clone(), depth + 1)))
            .find(|(branch, coerced)| self.accepts(branch, coerced))
            .map_or(value, |(_, coerced)| coerced)
    }

    fn accepts(&self, branch: &Value, value: &Value) -> bool {
        let mut schema = branch.clone();
        // References inside a branch point into the whole schema.
        if let (Some(schema), Some(root)) = (schema.as_object_mut(), self.root.as_object()) {
            for key in ["$defs", "definitions"] {
                if let Some(shared) = root.get(key) {
                    schema.entry(key).or_insert_with(|| shared.clone());
                }
            }
        }
        jsonschema::validator_for(&schema).is_ok_and(|validator| validator.is_valid(value))
    }

    fn several(&self, kinds: &[Value], schema: &Value, value: Value, depth: usize) -> Value {
        let names = || kinds.iter().filter_map(Value::as_str);
        if let Some(kind) = names().find(|kind| is_of(kind, &value)) {
            return self.typed(kind, schema, value, depth);
        }
        names()
            .map(|kind| (kind, self.typed(kind, schema, value.clone(), depth)))
            .find(|(kind, coerced)| is_of(kind, coerced))
            .map_or(value, |(_, coerced)| coerced)
    }

    fn typed(&self, kind: &str, schema: &Value, value: Value, depth: usize) -> Value {
        match (kind, value) {
            ("string", Value::Number(number)) => Value::String(number_text(&number)),
            ("string", Value::Bool(flag)) => Value::String(flag.to_string()),
            ("number" | "integer", value) => to_number(value),
            ("boolean", value) => to_boolean(value),
            ("array", Value::Array(items)) => self.items(schema, items, depth),
            ("array", other) => self.items(schema, vec![other], depth),
            ("object", Value::Object(fields)) => self.fields(schema, fields, depth),
            (_, other) => other,
        }
    }

    fn items(&self, schema: &Value, items: Vec<Value>, depth: usize) -> Value {
        let prefix = branches(schema, "prefixItems");
        let rest = schema.get("items").filter(|items| items.is_object());
        let items =
            items
                .into_iter()
                .enumerate()
                .map(|(index, item)| match prefix.get(index).or(rest) {
                    Some(schema) => self.value(schema, item, depth + 1),
                    None => item,
                });
        Value::Array(items.collect())
    }

    fn fields(&self, schema: &Value, fields: Map<String, Value>, depth: usize) -> Value {
        let properties = schema.get("properties").and_then(Value::as_object);
        let others = schema
            .get("additionalProperties")
            .filter(|others| others.is_object());
        let required = branches(schema, "required");
        let mut out = Map::new();
        for (name, value) in fields {
            let property = properties.and_then(|properties| properties.get(&name));
            let Some(property) = property.or(others) else {
                out.insert(name, value);
                continue;
            };
            let is_required = required.iter().any(|required| *required == name.as_str());
            if value.is_null() && !is_required && !self.takes_null(property) {
                continue;
            }
            out.insert(name, self.value(property, value, depth + 1));
        }
        Value::Object(out)
    }

    fn takes_null(&self, schema: &Value) -> bool {
        match schema.get("type") {
            Some(Value::String(kind)) => kind == "null",
            _ => self.accepts(schema, &Value::Null),
        }
    }
}

fn branches<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    schema
        .get(keyword)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        kind => kind == type_name(value),
    }
}

fn to_number(value: Value) -> Value {
    match &value {
        Value::Null => Value::from(0),
        Value::Bool(flag) => Value::from(i32::from(*flag)),
        Value::String(text) => match text.as_str() {
            "true" => Value::from(1),
            "false" => Value::from(0),
            text => js_number(text).map_or(value, Value::Number),
        },
        _ => value,
    }
}

fn to_boolean(value: Value) -> Value {
    match &value {
        Value::String(text) if text == "1" || text.eq_ignore_ascii_case("true") => true.into(),
        Value::String(text) if text == "0" || text.eq_ignore_ascii_case("false") => false.into(),
        Value::Number(number) if number.as_f64() == Some(1.0) => true.into(),
        Value::Number(number) if number.as_f64() == Some(0.0) => false.into(),
        _ => value,
    }
}

/// Reads a number as JavaScript's `Number(text)` does; `None` for what is not finite there.
fn js_number(text: &str) -> Option<Number> {
    let text = text.trim_matches(|c: char| c.is_whitespace() && c != '\u{85}' || c == '\u{feff}');
    if text.is_empty() {
        return Some(Number::from(0));
    }
    let radix = |prefix: [&str; 2], radix| {
        let digits = prefix.iter().find_map(|prefix| text.strip_prefix(prefix))?;
        let plain = digits.chars().all(|c| c.is_digit(radix));
        plain
            .then(|| u64::from_str_radix(digits, radix).ok())
            .flatten()
    };
    if let Some(number) = radix(["0x", "0X"], 16)
        .or_else(|| radix(["0o", "0O"], 8))
        .or_else(|| radix(["0b", "0B"], 2))
    {
        return Some(Number::from(number));
    }
    // Rust's parser also takes words (`inf`, `nan`); JavaScript's does not, apart from `Infinity`, which JSON cannot hold.
    if text.contains(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')) {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 {
        return Some(Number::from(number as i64));
    }
    Number::from_f64(number)
}

/// Writes a number as JavaScript does: `0.5`, `2` and never `2.0`.
fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if float.fract() == 0.0 && float.abs() < 1e21 => format!("{float:.0}"),
        Some(float) if float.abs() >= 1e21 || float.abs() < 1e-6 => {
            let text = format!("{float:e}");
            if text.contains("e-") {
                text
            } else {
                text.replace('e', "e+")
            }
        }
        Some(float) => float.to_string(),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check_coercion(schema: Value, value: Value, expected: Value) {
        assert_eq!(coerce(&schema, value.clone()), expected, "{value}");
    }

    fn check_error(schema: Value, value: Value, expected: Expect) {
        let declaration = ToolDeclaration {
            name: "t".to_owned(),
            parameters: schema,
            ..ToolDeclaration::default()
        };
        let error = ArgumentCheck::default()
            .check(&declaration, value.clone(), &value)
            .unwrap_err();
        assert_eq!(error.class, ErrorClass::Validation);
        expected.assert_eq(&error.message);
    }

    #[test]
    fn text_and_numbers_follow_the_schema() {
        let number = json!({"type": "number"});
        for (given, wanted) in [
            (json!("2"), json!(2)),
            (json!(" 2.5 "), json!(2.5)),
            (json!(""), json!(0)),
            (json!("0x10"), json!(16)),
            (json!("1e3"), json!(1000)),
            (json!("Infinity"), json!("Infinity")),
            (json!("inf"), json!("inf")),
            (json!("two"), json!("two")),
            (json!("true"), json!(1)),
            (json!(false), json!(0)),
            (json!(null), json!(0)),
            (json!({}), json!({})),
        ] {
            check_coercion(number.clone(), given, wanted);
        }
        let string = json!({"type": "string"});
        for (given, wanted) in [
            (json!(42), json!("42")),
            (json!(2.0), json!("2")),
            (json!(0.5), json!("0.5")),
            (json!(1e21), json!("1e+21")),
            (json!(true), json!("true")),
            (json!(null), json!(null)),
            (json!(["a"]), json!(["a"])),
        ] {
            check_coercion(string.clone(), given, wanted);
        }
        let boolean = json!({"type": "boolean"});
        for (given, wanted) in [
            (json!("TRUE"), json!(true)),
            (json!("0"), json!(false)),
            (json!(1), json!(true)),
            (json!("yes"), json!("yes")),
            (json!(2), json!(2)),
        ] {
            check_coercion(boolean.clone(), given, wanted);
        }
    }

    #[test]
    fn null_goes_away_only_where_it_is_optional_and_not_meant() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string"}, "b": {"type": "number"}, "c": {"type": ["number", "null"]},
            "d": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        }});
        check_coercion(
            schema,
            json!({"a": null, "b": null, "c": null, "d": null, "e": null}),
            json!({"a": null, "c": null, "d": null, "e": null}),
        );
    }

    #[test]
    fn unions_leave_what_a_branch_accepts() {
        let schema = json!({"anyOf": [{"type": "number"}, {"$ref": "#/$defs/name"}],
            "$defs": {"name": {"type": "string"}}});
        check_coercion(schema.clone(), json!("12"), json!("12"));
        check_coercion(schema, json!(true), json!(1));
        check_coercion(
            json!({"type": ["boolean", "integer"]}),
            json!("7"),
            json!(7),
        );
    }

    #[test]
    fn one_value_becomes_a_list() {
        let schema = json!({"type": "array", "items": {"type": "string"}});
        check_coercion(schema.clone(), json!(7), json!(["7"]));
        check_coercion(schema, json!([1, "b"]), json!(["1", "b"]));
    }

    #[test]
    fn each_problem_has_a_line() {
        let schema = json!({"type": "object", "required": ["path", "edits"], "properties": {
            "path": {"type": "string"},
            "edits": {"type": "array", "items": {"type": "object", "required": ["oldText"],
                "properties": {"oldText": {"type": "string"}}}}}});
        check_error(
            schema,
            json!({"edits": [{}, {"oldText": {"a": 1}}, "x"]}),
            expect![[r#"
                Validation failed for tool "t":
                  - path: missing
                  - edits.0.oldText: missing
                  - edits.1.oldText: expected string, got object
                  - edits.2: expected object, got string

                Received arguments:
                {
                  "edits": [
                    {},
                    {
                      "oldText": {
                        "a": 1
                      }
                    },
                    "x"
                  ]
                }"#]],
        );
        check_error(
            json!({"type": "object"}),
            json!([]),
            expect![[r#"
                Validation failed for tool "t":
                  - root: expected object, got array

                Received arguments:
                []"#]],
        );
    }

    #[test]
    fn recursive_schemas_end() {
        let schema = json!({"$ref": "#"});
        check_coercion(schema, json!({"a": 1}), json!({"a": 1}));
    }
}
