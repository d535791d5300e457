//! The JSON of a generation that `/generate` sends at the end, or after each step.
//!
//! A cumulative stream repeats all output in every frame. Serializing all of it for each frame
//! would take time quadratic in the length of the output. So each step is serialized once and
//! appended, and a frame is a copy of the serialized pieces.
//!
//! Invariant: a frame is the JSON of one object made of all steps so far.

use std::{fmt::Write as _, time::Duration};

use serde::Serialize;

use crate::message::{Chunk, Extras, FinishReason, GenerateRequest, response::TextLogprob};

/// One generation: the JSON of its steps so far.
#[derive(Debug)]
pub(crate) struct Frames {
    id: String,
    index: Option<usize>,
    wants: Wants,
    /// Whether a frame has all output so far, or only the output since the previous frame.
    cumulative: bool,
    pieces: Pieces,
    prompt_tokens: u32,
    completion_tokens: u32,
    finish: Option<FinishReason>,
}

/// The extras that the request asked for. Their keys are present even where they are empty.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each can be requested independently"
)]
struct Wants {
    logprobs: bool,
    top: bool,
    ids: bool,
    hidden: bool,
}

/// The contents of JSON arrays, and of one JSON string, without their delimiters.
#[derive(Debug, Default)]
struct Pieces {
    text: String,
    output_ids: String,
    output: String,
    input: String,
    output_top: String,
    input_top: String,
    output_at_ids: String,
    input_at_ids: String,
    hidden: String,
}

impl Frames {
    pub(crate) fn new(request: &GenerateRequest, index: Option<usize>, cumulative: bool) -> Self {
        let logprobs = request.return_logprob;
        Self {
            id: json(request.rid.client_facing()),
            index,
            wants: Wants {
                logprobs,
                top: logprobs && request.top_logprobs_num > 0,
                ids: logprobs && request.token_ids_logprob.is_some(),
                hidden: request.return_hidden_states,
            },
            cumulative,
            pieces: Pieces::default(),
            prompt_tokens: 0,
            completion_tokens: 0,
            finish: None,
        }
    }

    /// Appends the next step.
    pub(crate) fn push(&mut self, chunk: Chunk) {
        if !self.cumulative {
            self.pieces = Pieces::default();
        }
        let escaped = json(&chunk.text);
        self.pieces.text.push_str(&escaped[1..escaped.len() - 1]);
        extend(&mut self.pieces.output_ids, &chunk.output_ids);
        if let Some(extras) = &chunk.extras {
            self.pieces.extend(extras);
        }
        self.prompt_tokens = chunk.prompt_tokens;
        self.completion_tokens = chunk.completion_tokens;
        self.finish = chunk.finish;
    }

    /// The JSON object. The last one contains the time that the request took.
    pub(crate) fn frame(&self, latency: Duration) -> String {
        let pieces = &self.pieces;
        let mut out = String::with_capacity(pieces.len() + 256);
        let _ = write!(out, "{{\"text\":\"{}\"", pieces.text);
        if !pieces.output_ids.is_empty() {
            let _ = write!(out, ",\"output_ids\":[{}]", pieces.output_ids);
        }
        let _ = write!(
            out,
            ",\"meta_info\":{{\"id\":{},\"prompt_tokens\":{},\"completion_tokens\":{},\"finish_reason\":{}",
            self.id,
            self.prompt_tokens,
            self.completion_tokens,
            json(&self.finish.as_ref().map(|reason| &reason.0)),
        );
        if self.finish.is_some() {
            let _ = write!(out, ",\"e2e_latency\":{}", json(&latency.as_secs_f64()));
        }
        self.write_extras(&mut out);
        out.push('}');
        if let Some(index) = self.index {
            let _ = write!(out, ",\"index\":{index}");
        }
        out.push('}');
        out
    }

    fn write_extras(&self, out: &mut String) {
        let Wants {
            logprobs,
            top,
            ids,
            hidden,
        } = self.wants;
        let pieces = &self.pieces;
        let arrays = [
            (logprobs, "output_token_logprobs", &pieces.output),
            (logprobs, "input_token_logprobs", &pieces.input),
            (top, "output_top_logprobs", &pieces.output_top),
            (top, "input_top_logprobs", &pieces.input_top),
            (ids, "output_token_ids_logprobs", &pieces.output_at_ids),
            (ids, "input_token_ids_logprobs", &pieces.input_at_ids),
            (hidden, "hidden_states", &pieces.hidden),
        ];
        for (wanted, name, piece) in arrays {
            if wanted {
                let _ = write!(out, ",\"{name}\":[{piece}]");
            }
        }
    }
}

impl Pieces {
    fn len(&self) -> usize {
        let extras = [
            &self.output,
            &self.input,
            &self.output_top,
            &self.input_top,
            &self.output_at_ids,
            &self.input_at_ids,
            &self.hidden,
        ];
        let extras: usize = extras.iter().map(|piece| piece.len()).sum();
        self.text.len() + self.output_ids.len() + extras
    }

    fn extend(&mut self, extras: &Extras<TextLogprob>) {
        extend(&mut self.output, extras.output.iter().map(Entry::new));
        extend(&mut self.input, extras.input.iter().map(Entry::new));
        extend(
            &mut self.output_top,
            extras.output_top.iter().map(|entries| position(entries)),
        );
        extend(
            &mut self.input_top,
            extras.input_top.iter().map(|entries| position(entries)),
        );
        extend(
            &mut self.output_at_ids,
            extras.output_ids.iter().map(|entries| position(entries)),
        );
        extend(
            &mut self.input_at_ids,
            extras.input_ids.iter().map(|entries| position(entries)),
        );
        extend(&mut self.hidden, &extras.hidden);
    }
}

/// `[logprob | null, token id, text | null]`. NaN and infinities are null.
#[derive(Serialize)]
struct Entry<'a>(Option<f32>, i32, Option<&'a str>);

impl<'a> Entry<'a> {
    fn new(entry: &'a TextLogprob) -> Self {
        let logprob = entry.logprob.filter(|value| value.is_finite());
        Self(logprob, entry.id, entry.text.as_deref())
    }
}

/// The entries of a position; null if there are none.
fn position(entries: &[TextLogprob]) -> Option<Vec<Entry<'_>>> {
    (!entries.is_empty()).then(|| entries.iter().map(Entry::new).collect())
}

/// Appends `items` to `array`, the contents of a JSON array.
fn extend<T: Serialize>(array: &mut String, items: impl IntoIterator<Item = T>) {
    for item in items {
        if !array.is_empty() {
            array.push(',');
        }
        array.push_str(&json(&item));
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("strings and numbers can be serialized")
}

#[cfg(test)]
mod tests;
