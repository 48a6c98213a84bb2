//! Recorded vectors of the pure functions.

use std::collections::BTreeMap;

use pi_nvim::ai::config_value::ConfigValue;
use pi_nvim::ai::json::{PartialArgs, final_args};
use pi_nvim::ai::model::ModelCost;
use pi_nvim::ai::proxy::ProxyRules;
use pi_nvim::ai::{
    AssistantMessage, Model, StopReason, ThinkingLevel, Usage, cost, ids, limits, models_json,
    overflow, retry, schema,
};
use serde_json::{Value, json};

use super::support::env;
use crate::conformance::{Outcome, Tally, data_dir};

fn unit(name: &str) -> Value {
    let path = data_dir().join("providers/units").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Runs `check` over one list of a file.
fn run(file: &str, list: &str, check: impl Fn(&Value, &Value) -> Result<(), String>) {
    let data = unit(file);
    let mut tally = Tally::new(&format!("providers/units/{file}#{list}"));
    for (at, case) in data[list].as_array().unwrap().iter().enumerate() {
        let outcome = match check(case, &data) {
            Ok(()) => Outcome::Pass,
            Err(why) if why == "differs" => Outcome::Differs,
            Err(why) => Outcome::Fail(format!("{case}\n{why}")),
        };
        tally.case(&at.to_string(), outcome);
    }
    tally.finish();
}

fn same(expected: &Value, actual: &Value) -> Result<(), String> {
    if expected == actual {
        Ok(())
    } else {
        Err(format!("expected {expected}\ngot      {actual}"))
    }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn short_hash() {
    run("short-hash.json", "cases", |case, _| {
        same(
            &case["hash"],
            &ids::short_hash(case["input"].as_str().unwrap()).into(),
        )
    });
}

#[test]
fn partial_json() {
    run("partial-json.json", "cases", |case, _| {
        let text = case["text"].as_str().unwrap();
        let mut whole = PartialArgs::default();
        whole.push(text);
        let mut single = PartialArgs::default();
        text.chars()
            .for_each(|c| single.push(c.encode_utf8(&mut [0; 4])));
        same(whole.value(), single.value())?;
        same(&case["preview"], whole.value())
    });
}

#[test]
fn final_arguments() {
    run("final-args.json", "cases", |case, _| {
        let text = case["text"].as_str().unwrap();
        let (arguments, error) = match final_args(text) {
            Ok(map) => (Value::Object(map), None),
            Err(why) => (json!({}), Some(why)),
        };
        same(&case["arguments"], &arguments)?;
        same(&case["error"], &error.is_some().into())?;
        let tail = format!("\n\nReceived arguments:\n{text}");
        let ends = error.is_none_or(|why| why.ends_with(&tail) && !why.starts_with('\n'));
        if ends {
            Ok(())
        } else {
            Err("the error does not repeat the text".into())
        }
    });
}

#[test]
fn costs() {
    run("cost.json", "cases", |case, data| {
        let prices: ModelCost = serde_json::from_value(data["cost"].clone()).unwrap();
        let usage: Usage = serde_json::from_value(case["usage"].clone()).unwrap();
        let cost = serde_json::to_value(cost::cost(&prices, &usage)).unwrap();
        for key in ["input", "output", "cacheRead", "cacheWrite", "total"] {
            let (want, have) = (
                case["cost"][key].as_f64().unwrap(),
                cost[key].as_f64().unwrap(),
            );
            if !near(want, have) {
                return Err(format!("{key}: expected {want}, got {have}"));
            }
        }
        Ok(())
    });
}

fn failed(case: &Value) -> AssistantMessage {
    AssistantMessage {
        provider: case["provider"].as_str().unwrap_or_default().to_owned(),
        stop_reason: StopReason::Error,
        error_message: case["errorMessage"].as_str().map(str::to_owned),
        ..AssistantMessage::default()
    }
}

#[test]
fn error_classification() {
    run("error-classification.json", "cases", |case, _| {
        let message = failed(case);
        same(
            &case["overflow"],
            &overflow::is_overflow(&message, 0).into(),
        )?;
        same(&case["retryable"], &retry::is_retryable(&message, 0).into())
    });
}

#[test]
fn silent_overflow() {
    run("error-classification.json", "silent", |case, _| {
        let count = |key: &str| case[key].as_u64().unwrap_or(0);
        let message = AssistantMessage {
            stop_reason: serde_json::from_value(case["stopReason"].clone()).unwrap(),
            usage: Usage {
                input: count("input"),
                output: count("output"),
                cache_read: count("cacheRead"),
                ..Usage::default()
            },
            ..AssistantMessage::default()
        };
        same(
            &case["overflow"],
            &overflow::is_overflow(&message, count("contextWindow")).into(),
        )
    });
}

#[test]
fn retry_delays() {
    run("retry-delay.json", "cases", |case, _| {
        let plain = retry::RetryPolicy::default();
        let policy = retry::RetryPolicy {
            base_delay_ms: case["baseDelayMs"].as_u64().unwrap(),
            max_delay_ms: case["maxAgentDelayMs"]
                .as_u64()
                .unwrap_or(plain.max_delay_ms),
        };
        let delay = retry::delay(policy, case["attempt"].as_u64().unwrap() as u32, None);
        same(&case["delayMs"], &(delay.as_millis() as u64).into())
    });
}

#[test]
fn max_tokens() {
    run("max-tokens.json", "cases", |case, _| {
        let count = |key: &str| case[key].as_u64().unwrap();
        let estimate = limits::tokens_of_chars(count("chars") as usize);
        same(&case["estimated"], &estimate.into())?;
        same(
            &case["maxTokens"],
            &limits::max_tokens(count("contextWindow"), count("cap"), estimate).into(),
        )
    });
}

#[test]
fn thinking_budgets() {
    run("max-tokens.json", "thinkingBudget", |case, _| {
        let level = ThinkingLevel::parse(case["level"].as_str().unwrap()).unwrap();
        let budget = limits::level_budget(level, None);
        let (max, budget) = limits::thinking_room(
            case["modelMax"].as_u64().unwrap(),
            case["base"].as_u64(),
            budget,
        );
        same(&case["maxTokens"], &max.into())?;
        same(&case["thinkingBudget"], &budget.into())
    });
}

#[test]
fn thinking_levels() {
    run("thinking-levels.json", "cases", |case, _| {
        let model = Model {
            reasoning: case["reasoning"].as_bool().unwrap(),
            thinking_level_map: case["thinkingLevelMap"].as_object().cloned(),
            ..Model::default()
        };
        let supported: Vec<&str> = model
            .supported_levels()
            .into_iter()
            .map(ThinkingLevel::as_str)
            .collect();
        same(&case["supported"], &json!(supported))?;
        let clamped: BTreeMap<&str, &str> = ThinkingLevel::ALL
            .into_iter()
            .map(|level| (level.as_str(), model.clamp_level(level).as_str()))
            .collect();
        same(&case["clamp"], &json!(clamped))
    });
}

#[test]
fn strict_schemas() {
    run("strict-schema.json", "cases", |case, _| {
        same(
            &case["strict"],
            &schema::strict(&case["schema"]).unwrap_or(Value::Null),
        )
    });
}

#[test]
fn proxies() {
    run("proxy.json", "cases", |case, _| {
        let variables = &case["env"];
        let lookup = |name: &str| variables[name].as_str().map(str::to_owned);
        let url = reqwest_url(case["url"].as_str().unwrap());
        let found = match ProxyRules::read(&lookup, None).proxy_for(&url) {
            Ok(Some(proxy)) => proxy.as_str().into(),
            Ok(None) => Value::Null,
            Err(_) => "error".into(),
        };
        // Servers on this machine never go through a proxy.
        if url.host_str() == Some("localhost")
            && found.is_null()
            && variables.get("NO_PROXY").is_none()
        {
            return Err("differs".into());
        }
        same(&case["proxy"], &found)
    });
}

fn reqwest_url(text: &str) -> pi_nvim::ai::http::Url {
    text.parse().unwrap()
}

#[tokio::test]
async fn config_values() {
    let data = unit("config-value.json");
    let mut tally = Tally::new("providers/units/config-value.json#cases");
    let pairs = [("PT_A", "alpha"), ("PT_B", "beta"), ("PT_EMPTY", "")];
    let overlay: Vec<(String, String)> = pairs
        .iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect();
    for (at, case) in data["cases"].as_array().unwrap().iter().enumerate() {
        let value = ConfigValue::parse(case["value"].as_str().unwrap());
        let resolved = value.resolve(&env(&pairs), &overlay).await.ok();
        let have = json!({
            "value": case["value"], "command": matches!(value, ConfigValue::Command(_)),
            "envNames": value.variables(), "resolved": resolved,
        });
        let outcome = same(case, &have).map_or_else(Outcome::Fail, |()| Outcome::Pass);
        tally.case(&at.to_string(), outcome);
    }
    tally.finish();
}

#[test]
fn models_json_merge() {
    run("models-json-merge.json", "cases", |case, data| {
        let builtin: Vec<Model> = match case["builtin"].as_bool().unwrap() {
            true => serde_json::from_value(data["builtin"].clone()).unwrap(),
            false => Vec::new(),
        };
        match models_json::apply_entry("p", builtin, &case["entry"]) {
            Ok(models) => same(&case["models"], &serde_json::to_value(models).unwrap()),
            Err(_) if case["error"] == true => Ok(()),
            Err(why) => Err(why),
        }
    });
}

#[test]
fn commands_do_not_run_when_asked_whether_they_are_configured() {
    let value = ConfigValue::parse("!touch /nonexistent/should-not-run; exit 1");
    assert!(value.is_configured(&env(&[])));
}
