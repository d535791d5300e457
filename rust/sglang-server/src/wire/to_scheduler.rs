//! Frames to the scheduler: positional arrays whose first element is the kind.
//!
//! Invariant: the fields have the order of the Python structs. Fields that this frontend does not
//! use carry their defaults.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    ids::Rid,
    message::{GenerateRequest, SamplingParams},
};

/// `TokenizedGenerateReqInput`.
#[derive(Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an element of the frame"
)]
struct Generate<'a> {
    tag: &'static str,
    rid: &'a str,
    http_worker_ipc: (),
    input_text: Option<&'a str>,
    /// Sent next to the header, not in it.
    input_ids: (),
    input_embeds: (),
    mm_inputs: (),
    token_type_ids: (),
    sampling_params: Sampling<'a>,
    return_logprob: bool,
    logprob_start_len: i64,
    top_logprobs_num: i64,
    token_ids_logprob: Option<&'a [i32]>,
    stream: bool,
    return_sampling_mask: bool,
    return_flat_raw_top_logprobs: bool,
    return_hidden_states: bool,
    return_routed_experts: bool,
    routed_experts_start_len: u8,
    return_indexer_topk: bool,
    session_id: (),
    session_params: (),
    lora_id: (),
    custom_logit_processor: (),
    positional_embed_overrides: (),
    bootstrap_host: Option<&'a str>,
    bootstrap_port: Option<i64>,
    bootstrap_room: Option<i64>,
    bootstrap_pair_key: Option<&'a str>,
    decode_tp_size: Option<i64>,
    routed_dp_rank: Option<i64>,
    disagg_prefill_dp_rank: Option<i64>,
}

/// `SamplingParams`.
#[derive(Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "each is an element of the frame and has its Python name"
)]
struct Sampling<'a> {
    max_new_tokens: Option<i64>,
    /// Normalised into `stop_strs`.
    stop: (),
    stop_token_ids: Option<&'a [i64]>,
    /// Not accepted from clients.
    stop_regex: (),
    temperature: f64,
    top_p: f64,
    top_k: i64,
    min_p: f64,
    frequency_penalty: f64,
    presence_penalty: f64,
    repetition_penalty: f64,
    min_new_tokens: i64,
    n: i64,
    json_schema: Option<&'a str>,
    regex: Option<&'a str>,
    ebnf: Option<&'a str>,
    structural_tag: Option<&'a str>,
    ignore_eos: bool,
    skip_special_tokens: bool,
    spaces_between_special_tokens: bool,
    no_stop_trim: bool,
    stream_interval: Option<i64>,
    /// Python expects the ids as strings, as in JSON.
    logit_bias: Option<BTreeMap<String, f64>>,
    sampling_seed: Option<i64>,
    custom_params: Option<&'a Map<String, Value>>,
    stop_strs: &'a [String],
    stop_regex_strs: [&'a str; 0],
    stop_str_max_len: i64,
    stop_regex_max_len: u8,
    /// Tells the scheduler to skip its own normalization.
    is_normalized: bool,
}

impl<'a> Sampling<'a> {
    fn new(params: &'a SamplingParams) -> Self {
        let biases = |bias: &Vec<(i64, f64)>| {
            let text = |&(id, bias): &(i64, f64)| (id.to_string(), bias);
            bias.iter().map(text).collect()
        };
        Self {
            max_new_tokens: params.max_new_tokens,
            stop: (),
            stop_token_ids: params.stop_token_ids.as_deref(),
            stop_regex: (),
            temperature: params.temperature,
            top_p: params.top_p,
            top_k: params.top_k,
            min_p: params.min_p,
            frequency_penalty: params.frequency_penalty,
            presence_penalty: params.presence_penalty,
            repetition_penalty: params.repetition_penalty,
            min_new_tokens: params.min_new_tokens,
            n: params.n,
            json_schema: params.json_schema.as_deref(),
            regex: params.regex.as_deref(),
            ebnf: params.ebnf.as_deref(),
            structural_tag: params.structural_tag.as_deref(),
            ignore_eos: params.ignore_eos,
            skip_special_tokens: params.skip_special_tokens,
            spaces_between_special_tokens: params.spaces_between_special_tokens,
            no_stop_trim: params.no_stop_trim,
            stream_interval: params.stream_interval,
            logit_bias: params.logit_bias.as_ref().map(biases),
            sampling_seed: params.sampling_seed,
            custom_params: params.custom_params.as_ref(),
            stop_strs: &params.stop_strs,
            stop_regex_strs: [],
            stop_str_max_len: params.stop_str_max_len,
            stop_regex_max_len: 0,
            is_normalized: true,
        }
    }
}

/// Encodes the header of a generation. `input_text` is the text of the prompt, if the client sent
/// text. The token ids are sent next to the header.
#[must_use]
pub(crate) fn generate(request: &GenerateRequest, input_text: Option<&str>) -> Vec<u8> {
    let bootstrap = &request.bootstrap;
    encoded(&Generate {
        tag: "TokenizedGenerateReqInput",
        rid: request.rid.as_str(),
        http_worker_ipc: (),
        input_text,
        input_ids: (),
        input_embeds: (),
        mm_inputs: (),
        token_type_ids: (),
        sampling_params: Sampling::new(&request.sampling),
        return_logprob: request.return_logprob,
        logprob_start_len: request.logprob_start_len,
        top_logprobs_num: request.top_logprobs_num,
        token_ids_logprob: request.token_ids_logprob.as_deref(),
        stream: request.stream,
        return_sampling_mask: false,
        return_flat_raw_top_logprobs: false,
        return_hidden_states: request.return_hidden_states,
        return_routed_experts: false,
        routed_experts_start_len: 0,
        return_indexer_topk: false,
        session_id: (),
        session_params: (),
        lora_id: (),
        custom_logit_processor: (),
        positional_embed_overrides: (),
        bootstrap_host: bootstrap.host.as_deref(),
        bootstrap_port: bootstrap.port,
        bootstrap_room: bootstrap.room,
        bootstrap_pair_key: bootstrap.pair_key.as_deref(),
        decode_tp_size: bootstrap.decode_tp_size,
        routed_dp_rank: request.routed_dp_rank,
        disagg_prefill_dp_rank: request.disagg_prefill_dp_rank,
    })
}

/// Encodes the request to abort `rid`.
#[must_use]
pub(crate) fn abort(rid: &Rid) -> Vec<u8> {
    encoded(&("AbortReq", rid.as_str(), (), false, (), ()))
}

/// Encodes the request for the scheduler's state. The control result for `rid` contains the state.
#[must_use]
pub(crate) fn internal_state(rid: &Rid) -> Vec<u8> {
    encoded(&("GetInternalStateReq", rid.as_str(), ()))
}

/// Encodes the request to flush the cache. The control result for `rid` answers it.
#[must_use]
pub(crate) fn flush_cache(rid: &Rid) -> Vec<u8> {
    encoded(&("FlushCacheReq", rid.as_str(), ()))
}

fn encoded(message: &impl Serialize) -> Vec<u8> {
    rmp_serde::to_vec(message).expect("writing numbers and strings to a `Vec` does not fail")
}
