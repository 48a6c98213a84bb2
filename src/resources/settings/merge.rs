//! How two settings files become one, and how old keys are read.

use serde_json::{Map, Value};

/// Merges the project's values over the global ones: objects key by key, everything else is replaced.
pub(super) fn effective(
    global: &Map<String, Value>,
    project: &Map<String, Value>,
) -> Map<String, Value> {
    let mut out = global.clone();
    merge_into(&mut out, project);
    if let Some(tools) = default_tools(global.get("defaultTools"), project.get("defaultTools")) {
        out.insert("defaultTools".into(), tools);
    }
    out
}

fn merge_into(base: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Object(inner)), Value::Object(over)) => merge_into(inner, over),
            _ => drop(base.insert(key.clone(), value.clone())),
        }
    }
}

/// A project list of nothing but `+x` and `-x` changes the person's list instead of replacing it.
fn default_tools(global: Option<&Value>, project: Option<&Value>) -> Option<Value> {
    let (Some(Value::Array(base)), Some(Value::Array(changes))) = (global, project) else {
        return None;
    };
    let is_change = |entry: &Value| {
        entry
            .as_str()
            .is_some_and(|text| text.starts_with(['+', '-']))
    };
    changes
        .iter()
        .all(is_change)
        .then(|| Value::Array(base.iter().chain(changes).cloned().collect()))
}

/// Reads keys of older versions as what they are called now. Only in memory: the file keeps them.
pub(super) fn migrate(values: &mut Map<String, Value>) {
    if !values.contains_key("steeringMode")
        && let Some(mode) = values.shift_remove("queueMode")
    {
        values.insert("steeringMode".into(), mode);
    }
    if !values.contains_key("transport")
        && let Some(&Value::Bool(websockets)) = values.get("websockets")
    {
        values.shift_remove("websockets");
        let transport = if websockets { "websocket" } else { "sse" };
        values.insert("transport".into(), transport.into());
    }
    migrate_skills(values);
    migrate_retry(values);
}

fn migrate_skills(values: &mut Map<String, Value>) {
    let Some(Value::Object(old)) = values.get("skills").cloned() else {
        return;
    };
    let paths = old.get("customDirectories").and_then(Value::as_array);
    match paths.filter(|paths| !paths.is_empty()) {
        Some(paths) => drop(values.insert("skills".into(), paths.clone().into())),
        None => drop(values.shift_remove("skills")),
    }
    if let Some(enabled) = old.get("enableSkillCommands") {
        values
            .entry("enableSkillCommands")
            .or_insert_with(|| enabled.clone());
    }
}

fn migrate_retry(values: &mut Map<String, Value>) {
    let Some(Value::Object(retry)) = values.get_mut("retry") else {
        return;
    };
    let Some(delay) = retry.shift_remove("maxDelayMs") else {
        return;
    };
    let provider = retry.entry("provider").or_insert_with(|| Map::new().into());
    if let Value::Object(provider) = provider {
        provider.entry("maxRetryDelayMs").or_insert(delay);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                object(inner).prop_map(Value::from),
            ]
        })
    }

    fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
        let entries = prop::collection::vec(("[a-d]", value), 0..4);
        entries.prop_map(|entries| entries.into_iter().collect())
    }

    proptest! {
        #[test]
        fn nothing_changes_nothing(values in object(json())) {
            prop_assert_eq!(&effective(&values, &Map::new()), &values);
            prop_assert_eq!(&effective(&Map::new(), &values), &values);
            prop_assert_eq!(&effective(&values, &values), &values);
        }

        #[test]
        fn the_project_has_the_last_word(global in object(json()), project in object(json())) {
            let merged = effective(&global, &project);
            for (key, value) in &project {
                if !value.is_object() {
                    prop_assert_eq!(merged.get(key), Some(value));
                }
            }
            for key in global.keys() {
                prop_assert!(merged.contains_key(key));
            }
        }

        #[test]
        fn reading_old_keys_twice_is_reading_them_once(values in object(json())) {
            let mut once = values;
            migrate(&mut once);
            let mut twice = once.clone();
            migrate(&mut twice);
            prop_assert_eq!(once, twice);
        }
    }
}
