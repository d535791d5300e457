//! `/model_info` and `/server_info`.
//!
//! Invariant: of the scheduler's state, a response shows only the fields on an allow-list, because
//! other fields may hold secrets.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde_json::{Map, Value, json};

use super::control::control_result;
use crate::{error::RequestError, frontend::Frontend, wire};

/// The fields of the scheduler's state that are shown.
const SHOWN: [&str; 5] = [
    "last_gen_throughput",
    "memory_usage",
    "effective_max_running_requests_per_dp",
    "avg_spec_accept_length",
    "step_time_dict",
];

pub(crate) async fn model_info(State(frontend): State<Arc<Frontend>>) -> Json<Value> {
    let args = &frontend.args;
    Json(json!({
        "model_path": args.model_path,
        "served_model_name": args.served_model_name,
        "tokenizer_path": args.tokenizer_path,
        "is_generation": true,
        "preferred_sampling_params": args.preferred_sampling_params,
        "weight_version": args.weight_version,
        "load_format": args.load_format,
        "reasoning_parser": args.reasoning_parser,
        "tool_call_parser": args.tool_call_parser,
    }))
}

pub(crate) async fn server_info(
    State(frontend): State<Arc<Frontend>>,
) -> Result<Json<Value>, RequestError> {
    let state = control_result(frontend.control(wire::internal_state)?).await?;
    let args = &frontend.args;
    Ok(Json(json!({
        "model_path": args.model_path,
        "served_model_name": args.served_model_name,
        "tokenizer_path": args.tokenizer_path,
        "max_context_length": args.model_config.context_len,
        "max_total_num_tokens": args.max_total_num_tokens,
        "version": args.version,
        "internal_states": [shown(state)],
    })))
}

fn shown(state: Map<String, Value>) -> Map<String, Value> {
    let shown = |(key, _): &(String, Value)| SHOWN.contains(&key.as_str());
    state.into_iter().filter(shown).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::shown;

    #[test]
    fn only_fields_of_the_allow_list_are_shown() {
        let state = json!({
            "last_gen_throughput": 1.5,
            "step_time_dict": {"1": [0.5]},
            "api_key": "secret",
            "server_args": {"admin_api_key": "secret"},
            "memory_usage": null,
        });
        let Value::Object(state) = state else {
            unreachable!("`state` is an object")
        };
        let expected = json!({"last_gen_throughput": 1.5, "step_time_dict": {"1": [0.5]}, "memory_usage": null});
        assert_eq!(expected, Value::Object(shown(state)));
    }
}
