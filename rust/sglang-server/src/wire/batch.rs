//! A batch frame: one decode step of several requests.
//!
//! A batch is a header, and the data after it: numbers of 4 bytes. The header has columns with one
//! element per request. Most batches have only the four core columns. Twelve more columns give the
//! number of log-probabilities and hidden states, per request and per position.
//!
//! Invariant: the data have exactly the length that the header implies.

use serde_json::{Map, Value};

use super::decode::{MalformedFrame, decoded_front};
use crate::message::{Extras, FinishReason, Step, response::TokenLogprob};

/// Number of columns without extras, and with extras.
const CORE: u32 = 4;
const WITH_EXTRAS: u32 = 16;

/// Decodes the body of a batch: request ids, each with its step.
pub(super) fn read(body: &[u8]) -> Result<Vec<(String, Step)>, MalformedFrame> {
    let Some((length, rest)) = body.split_first_chunk() else {
        return Err(MalformedFrame::new(
            "the frame ends before the header length",
        ));
    };
    let length = u32::from_le_bytes(*length) as usize;
    let Some((mut header, data)) = rest.split_at_checked(length) else {
        let available = rest.len();
        let reason = format!("the header is truncated: {available} of {length} bytes");
        return Err(MalformedFrame::new(reason));
    };
    let columns = rmp::decode::read_array_len(&mut header)
        .map_err(|_| MalformedFrame::new("the header is not an array"))?;
    if columns == 0 {
        return Err(MalformedFrame::new("the header has no columns"));
    }
    let rids: Vec<String> = decoded_front(&mut header)?;
    let steps = Header::read(columns, rids.len(), header).and_then(|header| header.steps(data));
    match steps {
        Ok(steps) => Ok(rids.into_iter().zip(steps).collect()),
        Err(error) => Err(MalformedFrame { rids, ..error }),
    }
}

/// The columns after the column of request ids.
struct Header {
    finish: Vec<Option<Map<String, Value>>>,
    prompt_tokens: Vec<u32>,
    tokens: Vec<u32>,
    extras: Option<ExtraLens>,
}

/// Number of extras of each kind, per request.
struct ExtraLens {
    output: Vec<u32>,
    input: Vec<u32>,
    /// The top log-probabilities of the output and of the prompt, then the log-probabilities of the
    /// requested token ids in the output and in the prompt.
    ragged: [RaggedLens; 4],
    hidden: RaggedLens,
}

/// Number of positions per request, and number of elements per position.
struct RaggedLens {
    positions: Vec<u32>,
    elements: Vec<u32>,
}

impl Header {
    fn read(columns: u32, requests: usize, mut bytes: &[u8]) -> Result<Self, MalformedFrame> {
        if columns != CORE && columns != WITH_EXTRAS {
            let reason =
                format!("the header has {columns} columns instead of {CORE} or {WITH_EXTRAS}");
            return Err(MalformedFrame::new(reason));
        }
        let header = Self {
            finish: decoded_front(&mut bytes)?,
            prompt_tokens: decoded_front(&mut bytes)?,
            tokens: decoded_front(&mut bytes)?,
            extras: (columns == WITH_EXTRAS)
                .then(|| ExtraLens::read(requests, &mut bytes))
                .transpose()?,
        };
        let lens = [
            header.finish.len(),
            header.prompt_tokens.len(),
            header.tokens.len(),
        ];
        if lens != [requests; 3] {
            let reason = format!("the columns have {lens:?} elements for {requests} request(s)");
            return Err(MalformedFrame::new(reason));
        }
        if !bytes.is_empty() {
            return Err(MalformedFrame::new(
                "the header has bytes after its columns",
            ));
        }
        Ok(header)
    }

    /// Length of the data in bytes.
    fn data_len(&self) -> u64 {
        let extras = self.extras.as_ref().map_or(0, ExtraLens::numbers);
        4 * (sum(&self.tokens) + extras)
    }

    fn steps(self, data: &[u8]) -> Result<Vec<Step>, MalformedFrame> {
        let expected = self.data_len();
        if expected != data.len() as u64 {
            let got = data.len();
            let reason = format!("the header implies {expected} bytes of data, not {got}");
            return Err(MalformedFrame::new(reason));
        }
        let mut data = Numbers(data);
        let tokens = chunks(&self.tokens, data.ints(sum(&self.tokens)));
        let extras = match self.extras {
            Some(lens) => lens.extras(self.tokens.len(), &mut data),
            None => vec![None; self.tokens.len()],
        };
        let steps = tokens
            .into_iter()
            .zip(self.finish)
            .zip(self.prompt_tokens)
            .zip(extras)
            .map(|(((output_ids, finish), prompt_tokens), extras)| Step {
                output_ids,
                finish: finish.map(FinishReason),
                prompt_tokens,
                extras,
            });
        Ok(steps.collect())
    }
}

impl ExtraLens {
    fn read(requests: usize, bytes: &mut &[u8]) -> Result<Self, MalformedFrame> {
        let output = lens_column(requests, bytes)?;
        let input = lens_column(requests, bytes)?;
        let mut ragged = || RaggedLens::read(requests, bytes);
        Ok(Self {
            output,
            input,
            ragged: [ragged()?, ragged()?, ragged()?, ragged()?],
            hidden: ragged()?,
        })
    }

    /// How many numbers the data have. A log-probability takes two: a value and a token id.
    fn numbers(&self) -> u64 {
        let ragged: u64 = self.ragged.iter().map(|lens| sum(&lens.elements)).sum();
        2 * (sum(&self.output) + sum(&self.input) + ragged) + sum(&self.hidden.elements)
    }

    /// The extras of each request; `None` for a request without any.
    fn extras(
        self,
        requests: usize,
        data: &mut Numbers<'_>,
    ) -> Vec<Option<Box<Extras<TokenLogprob>>>> {
        let mut output = chunks(&self.output, data.logprobs(sum(&self.output))).into_iter();
        let mut input = chunks(&self.input, data.logprobs(sum(&self.input))).into_iter();
        let mut ragged = self.ragged.map(|lens| {
            let logprobs = data.logprobs(sum(&lens.elements));
            lens.by_request(logprobs).into_iter()
        });
        let hidden = data.floats(sum(&self.hidden.elements));
        let mut hidden = self.hidden.by_request(hidden).into_iter();
        let mut extras = || {
            let [output_top, input_top, output_ids, input_ids] = ragged
                .each_mut()
                .map(|lists| lists.next().unwrap_or_default());
            let extras = Extras {
                output: output.next().unwrap_or_default(),
                input: input.next().unwrap_or_default(),
                output_top,
                input_top,
                output_ids,
                input_ids,
                hidden: hidden.next().unwrap_or_default(),
            };
            (extras != Extras::default()).then(|| Box::new(extras))
        };
        (0..requests).map(|_| extras()).collect()
    }
}

impl RaggedLens {
    fn read(requests: usize, bytes: &mut &[u8]) -> Result<Self, MalformedFrame> {
        let positions = lens_column(requests, bytes)?;
        let elements: Vec<u32> = decoded_front(bytes)?;
        if sum(&positions) != elements.len() as u64 {
            let (positions, lengths) = (sum(&positions), elements.len());
            let reason = format!("{positions} positions have {lengths} lengths");
            return Err(MalformedFrame::new(reason));
        }
        Ok(Self {
            positions,
            elements,
        })
    }

    fn by_request<T>(&self, values: Vec<T>) -> Vec<Vec<Vec<T>>> {
        chunks(&self.positions, chunks(&self.elements, values))
    }
}

/// Decodes a column with one length per request. An empty column means 0 for every request.
fn lens_column(requests: usize, bytes: &mut &[u8]) -> Result<Vec<u32>, MalformedFrame> {
    let lens: Vec<u32> = decoded_front(bytes)?;
    match lens.len() {
        0 => Ok(vec![0; requests]),
        len if len == requests => Ok(lens),
        len => {
            let reason = format!("a column of extras has {len} elements for {requests} request(s)");
            Err(MalformedFrame::new(reason))
        }
    }
}

fn sum(lens: &[u32]) -> u64 {
    lens.iter().copied().map(u64::from).sum()
}

/// Splits `items` into chunks of the lengths `lens`, whose sum must be the number of items.
fn chunks<T>(lens: &[u32], items: Vec<T>) -> Vec<Vec<T>> {
    let mut items = items.into_iter();
    let chunk = |&len: &u32| items.by_ref().take(len as usize).collect();
    lens.iter().map(chunk).collect()
}

/// The rest of the data. Columns are taken from it in order; its length was checked before.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn column<T>(&mut self, count: u64, number: impl Fn([u8; 4]) -> T) -> Vec<T> {
        let (column, rest) = self.0.split_at(4 * count as usize);
        self.0 = rest;
        column
            .as_chunks()
            .0
            .iter()
            .map(|bytes| number(*bytes))
            .collect()
    }

    fn ints(&mut self, count: u64) -> Vec<i32> {
        self.column(count, i32::from_le_bytes)
    }

    fn floats(&mut self, count: u64) -> Vec<f32> {
        self.column(count, f32::from_le_bytes)
    }

    /// Takes a column of values and a column of token ids.
    fn logprobs(&mut self, count: u64) -> Vec<TokenLogprob> {
        let values = self.floats(count);
        let pair = |(logprob, id)| TokenLogprob { logprob, id };
        values.into_iter().zip(self.ints(count)).map(pair).collect()
    }
}
