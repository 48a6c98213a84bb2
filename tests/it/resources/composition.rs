//! How handlers of several extensions compose, with handlers that do what a case says.

use async_trait::async_trait;
use parking_lot::Mutex;
use pi_nvim::extensions::compose::{Handler, dispatch};
use pi_nvim::resources::system_prompt::DEFAULT_TOOLS;
use serde_json::{Map, Value, json};

use super::{run, same};

struct Recorded<'a> {
    name: String,
    script: &'a Value,
    seen: &'a Mutex<Vec<Value>>,
}

#[async_trait]
impl Handler for Recorded<'_> {
    fn extension(&self) -> &str {
        &self.name
    }

    async fn call(&self, event: &mut Map<String, Value>) -> Result<Option<Value>, String> {
        self.seen.lock().push(event.clone().into());
        let mut whole = Value::Object(std::mem::take(event));
        for edit in self.script["mutate"].as_array().into_iter().flatten() {
            mutate(&mut whole, edit[0].as_str().unwrap(), &edit[1]);
        }
        *event = whole.as_object().unwrap().clone();
        if self.script["throw"] == true {
            return Err("thrown".to_owned());
        }
        Ok(self.script.get("return").cloned())
    }
}

/// `a.b.push` appends, `"__delete__"` removes, else the value is set.
fn mutate(event: &mut Value, path: &str, value: &Value) {
    let (parents, last) = path.rsplit_once('.').unwrap();
    let parent = parents
        .split('.')
        .fold(event, |at, key| match key.parse::<usize>() {
            Ok(idx) => &mut at[idx],
            Err(_) => &mut at[key],
        });
    match parent {
        Value::Array(list) if last == "push" => list.push(value.clone()),
        Value::Array(list) if value == "__delete__" => drop(list.remove(last.parse().unwrap())),
        Value::Object(map) if value == "__delete__" => drop(map.shift_remove(last)),
        other => other[last] = value.clone(),
    }
}

/// The event as handlers see it.
fn event_of(case: &Value) -> Map<String, Value> {
    let mut event = case["input"].clone();
    match case["event"].as_str().unwrap() {
        "input" => event["source"] = "interactive".into(),
        "before_agent_start" => {
            let mut options = event["options"].clone();
            if options["selectedTools"].is_null() {
                options["selectedTools"] = json!(DEFAULT_TOOLS);
            }
            options["sections"] = json!({});
            event["systemPromptOptions"] = options;
        }
        _ => {}
    }
    event.as_object().unwrap().clone()
}

#[test]
fn recorded_cases() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    run(
        "extensions",
        "extension-composition.json",
        "cases",
        |case| {
            let seen = Mutex::new(Vec::new());
            let scripts = case["handlers"].as_array().unwrap();
            let handlers: Vec<Recorded<'_>> = scripts
                .iter()
                .enumerate()
                .map(|(idx, script)| Recorded {
                    name: format!("ext{}", idx + 1),
                    script,
                    seen: &seen,
                })
                .collect();
            let handlers: Vec<&dyn Handler> =
                handlers.iter().map(|it| it as &dyn Handler).collect();
            let name = case["event"].as_str().unwrap();
            let composed = runtime.block_on(dispatch(name, event_of(case), &handlers));
            let result = match name {
                "tool_call" if composed.blocked.is_none() => {
                    json!({"result": composed.result, "inputAfter": composed.event["input"]})
                }
                "before_agent_start" => json!({
                    "messages": composed.result["messages"],
                    "forceSystemPrompt": composed.result["systemPrompt"],
                    "selectedTools": composed.event["systemPromptOptions"]["selectedTools"],
                    "sections": composed.event["systemPromptOptions"]["sections"],
                }),
                _ => composed.result,
            };
            let seen = seen.into_inner();
            let errors: Vec<&str> = composed
                .errors
                .iter()
                .map(|it| it.extension.as_str())
                .collect();
            let mut got =
                json!({"result": result, "handlersCalled": seen.len(), "errorsFrom": errors});
            if composed.blocked.is_some() {
                got["threw"] = true.into();
            }
            if case["expected"]["seen"].is_array() {
                got["seen"] = seen.into();
            }
            same(&got, &case["expected"])
        },
    );
}
