//! A batch of decoded tokens: a header of columns, in which each request has a place, and
//! behind it the numbers of all columns, 4 bytes each.
//!
//! Most batches have the four columns that every request needs. The other twelve say how
//! many log-probabilities and hidden states there are, per request and per position.
//!
//! Invariant: the data are exactly as long as the header implies.

use serde_json::{Map, Value};

use super::decode::{MalformedFrame, decoded_front};
use crate::message::{Extras, FinishReason, Step, response::TokenLogprob};

/// Columns that every batch has, and those of a batch with extras.
const CORE: u32 = 4;
const WITH_EXTRAS: u32 = 16;

/// Reads the body of a batch: its steps by request.
pub(super) fn read(body: &[u8]) -> Result<Vec<(String, Step)>, MalformedFrame> {
    let Some((length, rest)) = body.split_first_chunk() else {
        return Err(MalformedFrame::new(
            "it ends before the length of its header",
        ));
    };
    let length = u32::from_le_bytes(*length) as usize;
    let Some((mut header, data)) = rest.split_at_checked(length) else {
        let there = rest.len();
        let reason = format!("its header has {there} of {length} bytes");
        return Err(MalformedFrame::new(reason));
    };
    let columns = rmp::decode::read_array_len(&mut header)
        .map_err(|_| MalformedFrame::new("its header is no array"))?;
    if columns == 0 {
        return Err(MalformedFrame::new("its header has no columns"));
    }
    let rids: Vec<String> = decoded_front(&mut header)?;
    let steps = Header::read(columns, rids.len(), header).and_then(|header| header.steps(data));
    match steps {
        Ok(steps) => Ok(rids.into_iter().zip(steps).collect()),
        Err(error) => Err(MalformedFrame { rids, ..error }),
    }
}

/// The columns behind that of the names.
struct Header {
    finish: Vec<Option<Map<String, Value>>>,
    prompt_tokens: Vec<u32>,
    tokens: Vec<u32>,
    extras: Option<ExtraLens>,
}

/// How many numbers of each kind each request has.
struct ExtraLens {
    output: Vec<u32>,
    input: Vec<u32>,
    /// Likeliest tokens of the output and of the prompt, then the tokens asked for.
    ragged: [RaggedLens; 4],
    hidden: RaggedLens,
}

/// How many positions each request has, and how many numbers each position.
struct RaggedLens {
    positions: Vec<u32>,
    numbers: Vec<u32>,
}

impl Header {
    fn read(columns: u32, requests: usize, mut bytes: &[u8]) -> Result<Self, MalformedFrame> {
        if columns != CORE && columns != WITH_EXTRAS {
            let reason = format!("it has {columns} columns instead of {CORE} or {WITH_EXTRAS}");
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
            let reason = format!("its columns have {lens:?} places for {requests} request(s)");
            return Err(MalformedFrame::new(reason));
        }
        if !bytes.is_empty() {
            return Err(MalformedFrame::new(
                "bytes follow the columns of its header",
            ));
        }
        Ok(header)
    }

    /// Bytes of the data.
    fn data_len(&self) -> u64 {
        let extras = self.extras.as_ref().map_or(0, ExtraLens::numbers);
        4 * (sum(&self.tokens) + extras)
    }

    fn steps(self, data: &[u8]) -> Result<Vec<Step>, MalformedFrame> {
        let expected = self.data_len();
        if expected != data.len() as u64 {
            let got = data.len();
            let reason = format!("its header implies {expected} bytes of data, not {got}");
            return Err(MalformedFrame::new(reason));
        }
        let mut data = Numbers(data);
        let tokens = by_request(&self.tokens, data.ints(sum(&self.tokens)));
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

    /// Numbers in the data; a log-probability is two.
    fn numbers(&self) -> u64 {
        let ragged: u64 = self.ragged.iter().map(|lens| sum(&lens.numbers)).sum();
        2 * (sum(&self.output) + sum(&self.input) + ragged) + sum(&self.hidden.numbers)
    }

    /// Those of each request, which has none if there are no numbers.
    fn extras(
        self,
        requests: usize,
        data: &mut Numbers<'_>,
    ) -> Vec<Option<Box<Extras<TokenLogprob>>>> {
        let mut output = by_request(&self.output, data.logprobs(sum(&self.output))).into_iter();
        let mut input = by_request(&self.input, data.logprobs(sum(&self.input))).into_iter();
        let mut ragged = self.ragged.map(|lens| {
            let logprobs = data.logprobs(sum(&lens.numbers));
            lens.by_request(logprobs).into_iter()
        });
        let hidden = data.floats(sum(&self.hidden.numbers));
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
        let numbers: Vec<u32> = decoded_front(bytes)?;
        if sum(&positions) != numbers.len() as u64 {
            let (said, there) = (sum(&positions), numbers.len());
            let reason = format!("requests have {said} positions, and {there} have lengths");
            return Err(MalformedFrame::new(reason));
        }
        Ok(Self { positions, numbers })
    }

    fn by_request<T>(&self, numbers: Vec<T>) -> Vec<Vec<Vec<T>>> {
        by_request(&self.positions, by_request(&self.numbers, numbers))
    }
}

/// A length for each request; an empty column is none for anybody.
fn lens_column(requests: usize, bytes: &mut &[u8]) -> Result<Vec<u32>, MalformedFrame> {
    let lens: Vec<u32> = decoded_front(bytes)?;
    match lens.len() {
        0 => Ok(vec![0; requests]),
        len if len == requests => Ok(lens),
        len => {
            let reason = format!("a column of extras has {len} places for {requests} request(s)");
            Err(MalformedFrame::new(reason))
        }
    }
}

fn sum(lens: &[u32]) -> u64 {
    lens.iter().copied().map(u64::from).sum()
}

/// `items` in pieces of `lens`, which must make up all of them.
fn by_request<T>(lens: &[u32], items: Vec<T>) -> Vec<Vec<T>> {
    let mut items = items.into_iter();
    let piece = |&len: &u32| items.by_ref().take(len as usize).collect();
    lens.iter().map(piece).collect()
}

/// The data, from which columns are taken in order. Their length has been checked.
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

    /// A column of values, and one of their tokens.
    fn logprobs(&mut self, count: u64) -> Vec<TokenLogprob> {
        let values = self.floats(count);
        let pair = |(logprob, id)| TokenLogprob { logprob, id };
        values.into_iter().zip(self.ints(count)).map(pair).collect()
    }
}
