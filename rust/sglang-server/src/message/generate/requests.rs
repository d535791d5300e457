//! Turns columns into requests.
//!
//! A prompt becomes one request per answer (`n`). The requests of a prompt are adjacent, and
//! prompts keep their order. All requests of a prompt share one client-facing rid, which differs
//! from that of every other prompt. Each request has its own internal rid, seed and bootstrap room.

use std::{collections::HashSet, iter, mem};

use serde_json::{Map, Value};

use super::{
    body::GenerateBody,
    column::{Column, Heap as _, Values},
    limits::{BatchLimit, CopyBudget},
    prompts::{client_rids, prompts},
};
use crate::{
    error::RequestError,
    ids::Rid,
    message::{GenerateRequest, Prompt, SamplingParams, request::Bootstrap},
};

/// The field that asks for several answers to one prompt.
const N_FIELD: &str = "sampling_params.n";

/// Estimated bytes in memory for each byte of JSON.
const MEMORY_PER_JSON_BYTE: usize = 8;

/// The sampling parameters of one prompt, and the bytes charged for a copy of them.
#[derive(Clone)]
struct Sampling {
    params: SamplingParams,
    charge: usize,
}

impl GenerateBody {
    /// The scheduler requests of this call, and whether the client gets a list of answers. It
    /// gets a list if the prompts are a list (even of one), or if a prompt has several answers.
    ///
    /// `requests.chunk_by(|a, b| a.rid.client_facing() == b.rid.client_facing())` groups the
    /// requests by prompt. The position in the whole list is the `index` of an answer.
    ///
    /// # Errors
    ///
    /// If the body has both or neither of `text` and `input_ids`, an empty prompt, a list whose
    /// length is not the number of prompts, or an invalid rid or sampling parameter. Also if it
    /// exceeds a limit of one call.
    pub fn into_requests(
        mut self,
        limit: BatchLimit,
    ) -> Result<(Vec<GenerateRequest>, bool), RequestError> {
        let text = mem::take(&mut self.text);
        let (prompts, is_list) = prompts(text, mem::take(&mut self.input_ids), limit)?;
        let count = prompts.len();
        let mut copies = CopyBudget::new();
        let sampling = mem::take(&mut self.sampling_params);
        let sampling = read_sampling(sampling, &self.preferred_sampling, count, &mut copies)?;
        let total = sampling.iter().map(|s| s.params.n as usize).sum::<usize>();
        if total > count {
            limit.check(N_FIELD, total)?;
            copies.pay(N_FIELD, size_of::<GenerateRequest>(), total - count)?;
        }
        let rids = client_rids(mem::take(&mut self.rid), count, is_list)?;
        let rooms = mem::take(&mut self.bootstrap_room);
        rooms.check_len("bootstrap_room", count)?;
        let mut options = Options::new(self, count, &mut copies)?;

        let mut requests = Vec::with_capacity(total);
        let rows = prompts.into_iter().zip(sampling).zip(rids);
        for (item, ((prompt, sampling), rid)) in rows.enumerate() {
            let first = requests.len();
            let charge = sampling.charge;
            let rid = rid.map_or_else(Rid::mint, |rid| Rid::from_client(&rid));
            let request = options.request(rid, prompt, sampling.params);
            add_answers(request, charge, &mut copies, &mut requests)?;
            for (choice, request) in requests[first..].iter_mut().enumerate() {
                request.bootstrap.room = room(&rooms, item, choice, first);
            }
        }
        if total > count {
            check_rooms(&requests)?;
        }
        Ok((requests, is_list || total > count))
    }
}

/// The sampling parameters of each prompt.
fn read_sampling(
    column: Column<Map<String, Value>>,
    preferred: &Map<String, Value>,
    prompts: usize,
    copies: &mut CopyBudget,
) -> Result<Vec<Sampling>, RequestError> {
    let at = "sampling_params";
    column.check_len(at, prompts)?;
    let preferred_len = json_len(preferred);
    let read = |fields: Map<String, Value>, at: &str| {
        let charge = MEMORY_PER_JSON_BYTE * (json_len(&fields) + preferred_len);
        let params = SamplingParams::from_json(fields, preferred, at)?;
        Ok(Sampling { params, charge })
    };
    let same = match column {
        Column::Absent => read(Map::new(), at)?,
        Column::One(fields) => read(fields, at)?,
        Column::Many(rows) => {
            let rows = rows.into_iter().map(Option::unwrap_or_default);
            let read = |(i, fields)| read(fields, &format!("{at}[{i}]"));
            return rows.enumerate().map(read).collect();
        }
    };
    if prompts > 1 {
        copies.pay(at, same.charge, prompts)?;
    }
    Ok(vec![same; prompts])
}

/// Length of the object as JSON, in bytes.
fn json_len(fields: &Map<String, Value>) -> usize {
    if fields.is_empty() {
        return 0;
    }
    let mut counter = ByteCounter(0);
    serde_json::to_writer(&mut counter, fields).expect("a tree of JSON can be written");
    counter.0
}

/// A writer that only counts bytes.
struct ByteCounter(usize);

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Adds one request for each answer (`n`) that `request` asks for.
fn add_answers(
    mut request: GenerateRequest,
    sampling: usize,
    copies: &mut CopyBudget,
    requests: &mut Vec<GenerateRequest>,
) -> Result<(), RequestError> {
    let count = mem::replace(&mut request.sampling.n, 1) as usize;
    if count > 1 {
        copies.pay(N_FIELD, heap_bytes(&request) + sampling, count - 1)?;
    }
    for (choice, mut request) in iter::repeat_n(request, count).enumerate() {
        if choice > 0 {
            request.rid = Rid::from_client(request.rid.client_facing());
        }
        let seed = &mut request.sampling.sampling_seed;
        *seed = seed.map(|seed| seed.wrapping_add(choice as i64));
        requests.push(request);
    }
    Ok(())
}

/// Heap memory of a request, without its sampling parameters.
fn heap_bytes(request: &GenerateRequest) -> usize {
    let prompt = match &request.prompt {
        Prompt::Text(text) => text.heap_bytes(),
        Prompt::Ids(ids) => ids.heap_bytes(),
    };
    let Bootstrap { host, pair_key, .. } = &request.bootstrap;
    let texts = [host, pair_key].into_iter().flatten();
    let ids = request.token_ids_logprob.as_ref();
    prompt + texts.map(String::heap_bytes).sum::<usize>() + ids.map_or(0, Vec::heap_bytes)
}

/// The bootstrap room of answer `choice` to prompt `item`. `first` is the index of
/// that prompt's first answer.
fn room(rooms: &Column<i64>, item: usize, choice: usize, first: usize) -> Option<i64> {
    match rooms {
        Column::Absent => None,
        Column::One(room) => Some(room.wrapping_add((first + choice) as i64)),
        Column::Many(rooms) => rooms[item].map(|room| room.wrapping_add(choice as i64)),
    }
}

/// Fails if two answers get the same bootstrap room: with `n` > 1, the rooms of two prompts must be
/// at least `n` apart.
fn check_rooms(requests: &[GenerateRequest]) -> Result<(), RequestError> {
    let mut rooms = HashSet::new();
    let mut taken = requests.iter().filter_map(|request| request.bootstrap.room);
    match taken.find(|room| !rooms.insert(*room)) {
        None => Ok(()),
        Some(room) => Err(RequestError::field(
            "bootstrap_room",
            format!(
                "`bootstrap_room` gives room {room} to two answers; rooms of prompts must be at least `n` apart"
            ),
        )),
    }
}

/// The options that all requests of a prompt share.
struct Options {
    stream: bool,
    return_logprob: Values<bool>,
    logprob_start_len: Values<i64>,
    top_logprobs_num: Values<i64>,
    token_ids_logprob: Values<Vec<i32>>,
    return_text_in_logprobs: bool,
    return_hidden_states: Values<bool>,
    bootstrap_host: Values<String>,
    bootstrap_port: Values<i64>,
    bootstrap_pair_key: Values<String>,
    decode_tp_size: Values<i64>,
    routed_dp_rank: Option<i64>,
    disagg_prefill_dp_rank: Option<i64>,
}

impl Options {
    fn new(
        body: GenerateBody,
        prompts: usize,
        copies: &mut CopyBudget,
    ) -> Result<Self, RequestError> {
        body.logprob_start_len.check_min("logprob_start_len", -1)?;
        body.top_logprobs_num.check_min("top_logprobs_num", 0)?;
        macro_rules! rows {
            ($field:ident) => {
                body.$field.rows(stringify!($field), prompts, copies)?
            };
        }
        Ok(Self {
            stream: body.stream,
            return_logprob: rows!(return_logprob),
            logprob_start_len: rows!(logprob_start_len),
            top_logprobs_num: rows!(top_logprobs_num),
            token_ids_logprob: rows!(token_ids_logprob),
            return_text_in_logprobs: body.return_text_in_logprobs,
            return_hidden_states: rows!(return_hidden_states),
            bootstrap_host: rows!(bootstrap_host),
            bootstrap_port: rows!(bootstrap_port),
            bootstrap_pair_key: rows!(bootstrap_pair_key),
            decode_tp_size: rows!(decode_tp_size),
            routed_dp_rank: body.routed_dp_rank,
            disagg_prefill_dp_rank: body.disagg_prefill_dp_rank,
        })
    }

    /// The request of the next prompt, without its bootstrap room.
    fn request(&mut self, rid: Rid, prompt: Prompt, sampling: SamplingParams) -> GenerateRequest {
        GenerateRequest {
            rid,
            prompt,
            sampling,
            stream: self.stream,
            return_logprob: self.return_logprob.row().unwrap_or(false),
            logprob_start_len: self.logprob_start_len.row().unwrap_or(-1),
            top_logprobs_num: self.top_logprobs_num.row().unwrap_or(0),
            token_ids_logprob: self.token_ids_logprob.row().filter(|ids| !ids.is_empty()),
            return_text_in_logprobs: self.return_text_in_logprobs,
            return_hidden_states: self.return_hidden_states.row().unwrap_or(false),
            bootstrap: Bootstrap {
                host: self.bootstrap_host.row(),
                port: self.bootstrap_port.row(),
                room: None,
                pair_key: self.bootstrap_pair_key.row(),
                decode_tp_size: self.decode_tp_size.row(),
            },
            routed_dp_rank: self.routed_dp_rank,
            disagg_prefill_dp_rank: self.disagg_prefill_dp_rank,
        }
    }
}
