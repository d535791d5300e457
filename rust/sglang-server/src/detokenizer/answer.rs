//! One answer: turns steps from the scheduler into chunks for the client.
//!
//! Invariants: a token that stopped the generation is counted, but is in neither the ids nor the
//! text (unless the request has `no_stop_trim`). A stop string ends the answer, whether the
//! scheduler or this module finds it first.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    decoder::{DecodeOptions, Decoder, decode_one},
    stop::{StopFinder, Stops},
};
use crate::{
    error::RequestError,
    message::{
        Chunk, Extras, FinishReason, GenerateRequest, Matched, Step,
        response::{TextLogprob, TokenLogprob},
    },
    tokenizer::{TextTokenizer, TokenizeError},
};

/// The options of a request that affect its text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// How tokens become text.
    pub decode: DecodeOptions,
    /// Whether the stop string or stop token stays in the answer.
    pub no_stop_trim: bool,
    /// Stop strings.
    pub stops: Stops,
    /// Whether log-probabilities include the text of their tokens.
    pub text_in_logprobs: bool,
}

impl Options {
    /// The options of `request`.
    #[must_use]
    pub(crate) fn of(request: &GenerateRequest) -> Self {
        let sampling = &request.sampling;
        Self {
            decode: DecodeOptions {
                skip_special_tokens: sampling.skip_special_tokens,
                spaces_between_special_tokens: sampling.spaces_between_special_tokens,
            },
            no_stop_trim: sampling.no_stop_trim,
            stops: Stops::new(&sampling.stop_strs),
            text_in_logprobs: request.return_text_in_logprobs,
        }
    }
}

/// The state of an answer that is being generated.
pub(super) struct Answer {
    tokenizer: Option<Arc<dyn TextTokenizer>>,
    /// `None` without a tokenizer, and after the last step.
    text: Option<Text>,
    no_stop_trim: bool,
    text_in_logprobs: bool,
    completion_tokens: u32,
}

struct Text {
    decoder: Decoder,
    stop: StopFinder,
}

/// The result of a step: a chunk, and whether the scheduler must abort the request.
pub(super) struct StepResult {
    pub(super) chunk: Chunk,
    pub(super) abort: bool,
}

impl Answer {
    pub(super) fn new(tokenizer: Option<&Arc<dyn TextTokenizer>>, options: Options) -> Self {
        Self {
            text: tokenizer.map(|tokenizer| Text {
                decoder: Decoder::new(Arc::clone(tokenizer), options.decode),
                stop: StopFinder::new(options.stops, options.no_stop_trim),
            }),
            tokenizer: tokenizer.cloned(),
            no_stop_trim: options.no_stop_trim,
            text_in_logprobs: options.text_in_logprobs,
            completion_tokens: 0,
        }
    }

    /// Processes one step.
    pub(super) fn step(&mut self, step: Step) -> Result<StepResult, RequestError> {
        let mut finish = step.finish;
        if let Some(error) = finish.as_ref().and_then(aborted) {
            return Err(error);
        }
        let mut output_ids = step.output_ids;
        let tokens = u32::try_from(output_ids.len()).unwrap_or(u32::MAX);
        self.completion_tokens = self.completion_tokens.saturating_add(tokens);
        let matched = finish.as_ref().and_then(FinishReason::matched);
        if let Some(Matched::Token(token)) = matched
            && !self.no_stop_trim
            && output_ids
                .last()
                .is_some_and(|&last| i64::from(last) == token)
        {
            output_ids.pop();
        }
        let (text, stopped) = self.text(&output_ids, finish.is_some(), matched.as_ref())?;
        let abort = finish.is_none() && stopped.is_some();
        if let Some(stop) = stopped
            && finish
                .as_ref()
                .is_none_or(|finish| !takes_precedence(finish))
        {
            finish = Some(stopped_by(stop));
        }
        let extras = step.extras.map(|extras| self.extras(*extras)).transpose();
        Ok(StepResult {
            chunk: Chunk {
                text,
                output_ids,
                completion_tokens: self.completion_tokens,
                prompt_tokens: step.prompt_tokens,
                finish,
                extras: extras.map_err(detokenize)?.map(Box::new),
            },
            abort,
        })
    }

    /// The text of `ids`, which are the complete sequence.
    pub(super) fn decode_all(&mut self, ids: &[i32]) -> Result<String, RequestError> {
        let Some(mut text) = self.text.take() else {
            return Err(RequestError::invalid(
                "this server has no tokenizer (`skip_tokenizer_init`), so it cannot turn tokens into text",
            ));
        };
        let mut whole = text.decoder.push(ids);
        whole.push_str(&text.decoder.finish().map_err(detokenize)?);
        Ok(whole)
    }

    /// The text of a step, and the stop string that was found in the answer.
    fn text(
        &mut self,
        ids: &[i32],
        last: bool,
        matched: Option<&Matched>,
    ) -> Result<(String, Option<String>), RequestError> {
        let Some(mut text) = self.text.take() else {
            return Ok((String::new(), None));
        };
        let more = text.decoder.push(ids);
        if last {
            let end = text.decoder.finish().map_err(detokenize)?;
            let matched = match matched {
                Some(Matched::Text(stop)) => Some(stop.as_str()),
                _ => None,
            };
            let rest = text.stop.finish(more + &end, matched);
            let stopped = text.stop.found().map(str::to_owned);
            return Ok((rest, stopped));
        }
        let certain = text.stop.push(more);
        let stopped = text.stop.found().map(str::to_owned);
        self.text = Some(text);
        Ok((certain, stopped))
    }

    fn extras(&self, extras: Extras<TokenLogprob>) -> Result<Extras<TextLogprob>, TokenizeError> {
        let tokenizer = self.tokenizer.as_ref().filter(|_| self.text_in_logprobs);
        let one = |token: TokenLogprob| -> Result<TextLogprob, TokenizeError> {
            Ok(TextLogprob {
                // JSON cannot express NaN or infinity.
                logprob: token.logprob.is_finite().then_some(token.logprob),
                id: token.id,
                text: tokenizer
                    .map(|tokenizer| decode_one(tokenizer, token.id))
                    .transpose()?,
            })
        };
        let row = |tokens: Vec<TokenLogprob>| -> Result<Vec<TextLogprob>, TokenizeError> {
            tokens.into_iter().map(one).collect()
        };
        let rows = |rows: Vec<Vec<TokenLogprob>>| -> Result<Vec<_>, TokenizeError> {
            rows.into_iter().map(row).collect()
        };
        Ok(Extras {
            output: row(extras.output)?,
            input: row(extras.input)?,
            output_top: rows(extras.output_top)?,
            input_top: rows(extras.input_top)?,
            output_ids: rows(extras.output_ids)?,
            input_ids: rows(extras.input_ids)?,
            hidden: extras.hidden,
        })
    }
}

/// Whether the scheduler's reason takes precedence over a stop string found here in the last step:
/// it names a stop string itself, or aborted the generation.
fn takes_precedence(finish: &FinishReason) -> bool {
    finish.kind() == "abort" || matches!(finish.matched(), Some(Matched::Text(_)))
}

/// The error, if the scheduler aborted the generation with an HTTP status.
fn aborted(finish: &FinishReason) -> Option<RequestError> {
    Some(RequestError::Aborted {
        status: finish.abort_status()?,
        message: finish
            .text("message")
            .unwrap_or("aborted by the scheduler")
            .to_owned(),
        err_type: finish.text("err_type").map(str::to_owned),
    })
}

/// The finish reason for a stop string that the scheduler has not found.
fn stopped_by(stop: String) -> FinishReason {
    let reason = [
        ("type", Value::from("stop")),
        ("matched", Value::from(stop)),
    ];
    let reason = reason
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    FinishReason(reason.collect::<Map<_, _>>())
}

fn detokenize(error: TokenizeError) -> RequestError {
    RequestError::Detokenize(error.0)
}
