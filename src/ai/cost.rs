//! What an answer costs: rates per million tokens, tiers by prompt size, the one-hour part of cache writes.

use serde_json::Value;

use super::message::{Cost, Usage};
use super::model::ModelCost;

/// Rates that apply to one request.
struct Rates {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

/// Computes the cost of `usage` at the prices of a model.
pub fn cost(prices: &ModelCost, usage: &Usage) -> Cost {
    let rates = rates(prices, usage.input + usage.cache_read + usage.cache_write);
    let long = usage.cache_write_1h.unwrap_or(0).min(usage.cache_write);
    let short = usage.cache_write - long;
    let part = |rate: f64, tokens: u64| rate / 1e6 * tokens as f64;
    let (input, output) = (
        part(rates.input, usage.input),
        part(rates.output, usage.output),
    );
    let cache_read = part(rates.cache_read, usage.cache_read);
    let cache_write = part(rates.cache_write, short) + part(rates.input * 2.0, long);
    Cost {
        input,
        output,
        cache_read,
        cache_write,
        total: input + output + cache_read + cache_write,
        ..Cost::default()
    }
}

/// Multiplies every part, as a service tier does.
pub fn scale(cost: &mut Cost, factor: f64) {
    for part in [
        &mut cost.input,
        &mut cost.output,
        &mut cost.cache_read,
        &mut cost.cache_write,
        &mut cost.total,
    ] {
        *part *= factor;
    }
}

/// Picks the tier with the highest bound strictly below the prompt size; it applies to the whole request.
fn rates(prices: &ModelCost, prompt: u64) -> Rates {
    let tiers = prices.tiers.as_ref().and_then(Value::as_array);
    let bound = |tier: &Value| tier.get("inputTokensAbove").and_then(Value::as_f64);
    let tier = tiers
        .into_iter()
        .flatten()
        .filter(|tier| bound(tier).is_some_and(|above| above < prompt as f64))
        .max_by(|a, b| {
            bound(a)
                .partial_cmp(&bound(b))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
    let rate = |key: &str, plain: f64| {
        tier.and_then(|tier| tier.get(key))
            .and_then(Value::as_f64)
            .unwrap_or(plain)
    };
    Rates {
        input: rate("input", prices.input),
        output: rate("output", prices.output),
        cache_read: rate("cacheRead", prices.cache_read),
        cache_write: rate("cacheWrite", prices.cache_write),
    }
}
