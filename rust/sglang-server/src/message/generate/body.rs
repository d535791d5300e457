//! The fields of a body, before they are split by prompt.

use std::{borrow::Cow, cell::Cell, mem};

use serde::de::MapAccess;
use serde_json::{Map, Value};

use super::{
    column::{Column, OneOrMany},
    ids::Ids,
};
use crate::{
    error::RequestError,
    message::json::{At, Discard, FromScalar, Optional, OptionalObject, Scalar, Shape, read},
};

/// Memory limit for all `sampling_params` of one call, in bytes.
const MAX_SAMPLING_BYTES: usize = 64 << 20;

/// The body of `POST /generate`. A field that is null counts as absent. Unknown fields are
/// ignored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerateBody {
    pub(super) rid: Column<String>,
    pub(super) text: Column<String>,
    pub(super) input_ids: Column<Vec<i32>>,
    pub(super) sampling_params: Column<Map<String, Value>>,
    pub(super) stream: bool,
    pub(super) return_logprob: Column<bool>,
    pub(super) logprob_start_len: Column<i64>,
    pub(super) top_logprobs_num: Column<i64>,
    pub(super) token_ids_logprob: Column<Vec<i32>>,
    pub(super) return_text_in_logprobs: bool,
    pub(super) return_hidden_states: Column<bool>,
    pub(super) bootstrap_host: Column<String>,
    pub(super) bootstrap_port: Column<i64>,
    pub(super) bootstrap_room: Column<i64>,
    pub(super) bootstrap_pair_key: Column<String>,
    pub(super) decode_tp_size: Column<i64>,
    pub(super) routed_dp_rank: Option<i64>,
    pub(super) disagg_prefill_dp_rank: Option<i64>,
    /// Sampling parameters that apply if the request does not set them.
    pub(super) preferred_sampling: Map<String, Value>,
}

/// The [`Shape`] of the whole body.
struct Body;

/// Every field that has a meaning. Each may occur at most once in a body.
pub(super) const FIELDS: [&str; 22] = [
    "rid",
    "text",
    "input_ids",
    "sampling_params",
    "stream",
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "token_ids_logprob",
    "return_text_in_logprobs",
    "return_hidden_states",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "bootstrap_pair_key",
    "decode_tp_size",
    "routed_dp_rank",
    "disagg_prefill_dp_rank",
    "image_data",
    "video_data",
    "audio_data",
    "mm_hashes",
];

impl GenerateBody {
    /// Reads the body of a request.
    ///
    /// # Errors
    ///
    /// If the body is not a JSON object, has a known field twice, or has a value of the wrong
    /// type. The message names the place, for example `input_ids[0][1]`.
    pub fn from_json(body: &[u8]) -> Result<Self, RequestError> {
        read(body, Body)
    }

    /// Whether the client wants every step as it arrives, or only the complete answer.
    #[must_use]
    pub fn stream(&self) -> bool {
        self.stream
    }

    /// Sets default sampling parameters from the server's launch options. They apply if the
    /// request omits a parameter or sets it to null. Exception: `max_new_tokens: null` in the
    /// request means no limit.
    pub fn apply_preferred_sampling(&mut self, preferred: &Map<String, Value>) {
        self.preferred_sampling.clone_from(preferred);
    }

    /// Reads the value of `field`.
    fn set<'de, A>(&mut self, field: &str, at: At, body: &mut A) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
    {
        let ids = at.expect(Ids);
        let budget = Cell::new(MAX_SAMPLING_BYTES);
        let sampling = at.expect(OneOrMany(OptionalObject { budget: &budget }));
        match field {
            "rid" => self.rid = column(at, body)?,
            "text" => self.text = column(at, body)?,
            "input_ids" => self.input_ids = body.next_value_seed(ids)?,
            "sampling_params" => self.sampling_params = body.next_value_seed(sampling)?,
            "stream" => self.stream = single(at, body)?.unwrap_or(false),
            "return_logprob" => self.return_logprob = column(at, body)?,
            "logprob_start_len" => self.logprob_start_len = column(at, body)?,
            "top_logprobs_num" => self.top_logprobs_num = column(at, body)?,
            "token_ids_logprob" => self.token_ids_logprob = body.next_value_seed(ids)?,
            "return_text_in_logprobs" => {
                self.return_text_in_logprobs = single(at, body)?.unwrap_or(false);
            }
            "return_hidden_states" => self.return_hidden_states = column(at, body)?,
            "bootstrap_host" => self.bootstrap_host = column(at, body)?,
            "bootstrap_port" => self.bootstrap_port = column(at, body)?,
            "bootstrap_room" => self.bootstrap_room = column(at, body)?,
            "bootstrap_pair_key" => self.bootstrap_pair_key = column(at, body)?,
            "decode_tp_size" => self.decode_tp_size = column(at, body)?,
            "routed_dp_rank" => self.routed_dp_rank = single(at, body)?,
            "disagg_prefill_dp_rank" => self.disagg_prefill_dp_rank = single(at, body)?,
            // Unknown fields, and media: only text models are served so far, and they ignore
            // media. `image_data`, `video_data`, `audio_data` and `mm_hashes` become columns
            // once a multimodal model is served.
            _ => body.next_value_seed(at.expect(Discard))?,
        }
        Ok(())
    }
}

impl<'de> Shape<'de> for Body {
    type Value = GenerateBody;

    fn expected() -> Cow<'static, str> {
        "a JSON object".into()
    }

    fn scalar(self, scalar: Scalar<'de>) -> Result<GenerateBody, Scalar<'de>> {
        Err(scalar)
    }

    fn object<A: MapAccess<'de>>(self, at: At, mut body: A) -> Result<GenerateBody, A::Error> {
        let mut columns = GenerateBody::default();
        let mut seen = [false; FIELDS.len()];
        while let Some(key) = body.next_key::<String>()? {
            let at = at.key(&key);
            let field = FIELDS.iter().position(|field| *field == key);
            if field.is_some_and(|field| mem::replace(&mut seen[field], true)) {
                return Err(at.refuse("is given twice"));
            }
            columns.set(&key, at, &mut body)?;
        }
        Ok(columns)
    }
}

/// Reads one value for all prompts, or a list of values.
fn column<'de, T, A>(at: At, body: &mut A) -> Result<Column<T>, A::Error>
where
    T: FromScalar,
    A: MapAccess<'de>,
{
    body.next_value_seed(at.expect(OneOrMany(Optional::new())))
}

/// Reads one value for the whole call.
fn single<'de, T, A>(at: At, body: &mut A) -> Result<Option<T>, A::Error>
where
    T: FromScalar,
    A: MapAccess<'de>,
{
    body.next_value_seed(at.expect(Optional::new()))
}
