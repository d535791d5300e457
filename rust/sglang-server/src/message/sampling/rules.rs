//! Ranges of parameters, their normal form, and checks that depend on the server.

use std::fmt::Debug;

use super::SamplingParams;
use crate::error::RequestError;

/// The `top_k` that means all tokens. The scheduler cannot represent much larger numbers.
const ALL_TOKENS: i64 = 1 << 30;
/// Temperatures below this one mean greedy decoding.
const GREEDY_BELOW: f64 = 1e-6;
/// Maximum number of answers to one prompt.
const MAX_ANSWERS: i64 = 128;
/// Maximum number of stop strings.
const MAX_STOPS: usize = 32;
/// Maximum length of a stop string in bytes.
const MAX_STOP_LEN: usize = 256;

impl SamplingParams {
    /// Checks every range that does not depend on the server. Accepts parameters before and
    /// after normalisation.
    ///
    /// # Errors
    ///
    /// Names the first parameter that is out of range; `at` is the path of the object.
    pub fn verify(&self, at: &str) -> Result<(), RequestError> {
        let rule = Rules { at };
        rule.check_numbers(self)?;
        rule.check_lengths(self)?;
        rule.check_stops(&self.stop_strs)?;
        rule.check_grammars(self)
    }

    /// Converts the parameters to the form that the scheduler expects. Idempotent.
    pub fn normalize(&mut self) {
        let longest = self.stop_strs.iter().map(String::len).max();
        self.stop_str_max_len = longest.unwrap_or(0) as i64;
        self.stop_token_ids.take_if(|ids| ids.is_empty());
        self.logit_bias.take_if(|biases| biases.is_empty());
        if self.temperature < GREEDY_BELOW {
            self.temperature = 1.0;
            self.top_k = 1;
        }
        if self.top_k == -1 || self.top_k > ALL_TOKENS {
            self.top_k = ALL_TOKENS;
        }
    }

    /// Checks that `logit_bias` names only tokens of the model.
    ///
    /// # Errors
    ///
    /// Names the first id that is not below `vocab_size`.
    pub fn check_vocab(&self, vocab_size: i64) -> Result<(), RequestError> {
        let biases = self.logit_bias.iter().flatten();
        match biases.map(|bias| bias.0).find(|id| *id >= vocab_size) {
            None => Ok(()),
            Some(id) => Err(RequestError::field(
                "sampling_params.logit_bias",
                format!(
                    "`sampling_params.logit_bias` names token {id}, but the model has {vocab_size} tokens"
                ),
            )),
        }
    }

    /// Checks that no parameter needs a tokenizer, for a server that was started without one.
    ///
    /// # Errors
    ///
    /// Names the parameter that needs a tokenizer.
    pub fn check_without_tokenizer(&self) -> Result<(), RequestError> {
        let needs = [
            ("sampling_params.stop", !self.stop_strs.is_empty()),
            ("sampling_params.min_new_tokens", self.min_new_tokens > 0),
        ];
        match needs.into_iter().find(|(_, asked)| *asked) {
            None => Ok(()),
            Some((path, _)) => Err(RequestError::field(
                path,
                format!("`{path}` needs a tokenizer, and this server was started without one"),
            )),
        }
    }
}

/// Checks parameters of the object at path `at`.
struct Rules<'a> {
    at: &'a str,
}

impl Rules<'_> {
    fn check_numbers(&self, params: &SamplingParams) -> Result<(), RequestError> {
        let p = params;
        #[rustfmt::skip]
        let floats = [
            ("temperature",        p.temperature,        p.temperature >= 0.0,                        "at least 0"),
            ("top_p",              p.top_p,              p.top_p > 0.0 && p.top_p <= 1.0,             "above 0 and at most 1"),
            ("min_p",              p.min_p,              (0.0..=1.0).contains(&p.min_p),              "from 0 to 1"),
            ("frequency_penalty",  p.frequency_penalty,  (-2.0..=2.0).contains(&p.frequency_penalty), "from -2 to 2"),
            ("presence_penalty",   p.presence_penalty,   (-2.0..=2.0).contains(&p.presence_penalty),  "from -2 to 2"),
            ("repetition_penalty", p.repetition_penalty, p.repetition_penalty > 0.0 && p.repetition_penalty <= 2.0, "above 0 and at most 2"),
        ];
        for (name, value, fits, range) in floats {
            self.range(name, value, fits && value.is_finite(), range)?;
        }
        self.range(
            "top_k",
            p.top_k,
            p.top_k >= 1 || p.top_k == -1,
            "at least 1, or -1 for all tokens",
        )?;
        self.range("n", p.n, (1..=MAX_ANSWERS).contains(&p.n), "from 1 to 128")?;
        let interval = p.stream_interval.unwrap_or(1);
        self.range("stream_interval", interval, interval >= 1, "at least 1")?;
        for (id, bias) in p.logit_bias.iter().flatten() {
            let fits = *id >= 0 && bias.is_finite();
            self.range(
                "logit_bias",
                (id, bias),
                fits,
                "a map from token ids to finite numbers",
            )?;
        }
        Ok(())
    }

    fn check_lengths(&self, params: &SamplingParams) -> Result<(), RequestError> {
        let min = params.min_new_tokens;
        self.range("min_new_tokens", min, min >= 0, "at least 0")?;
        let Some(max) = params.max_new_tokens else {
            return Ok(());
        };
        self.range(
            "max_new_tokens",
            max,
            max >= 0,
            "at least 0, or null for no limit",
        )?;
        let range = format!("at most `max_new_tokens`, which is {max}");
        self.range("min_new_tokens", min, min <= max, &range)
    }

    fn check_stops(&self, stops: &[String]) -> Result<(), RequestError> {
        if stops.len() > MAX_STOPS {
            let text = format!(
                "has {} strings; at most {MAX_STOPS} are allowed",
                stops.len()
            );
            return self.refuse("stop", &text);
        }
        for stop in stops {
            if stop.is_empty() {
                return self.refuse("stop", "has an empty string, which would stop at once");
            }
            if stop.len() > MAX_STOP_LEN {
                let text = format!(
                    "has a string of {} bytes; at most {MAX_STOP_LEN} are allowed",
                    stop.len()
                );
                return self.refuse("stop", &text);
            }
        }
        Ok(())
    }

    fn check_grammars(&self, params: &SamplingParams) -> Result<(), RequestError> {
        let grammars = [
            ("json_schema", &params.json_schema),
            ("regex", &params.regex),
            ("ebnf", &params.ebnf),
        ];
        let mut given = grammars.iter().filter(|(_, grammar)| grammar.is_some());
        let (Some((first, _)), Some((second, _))) = (given.next(), given.next()) else {
            return Ok(());
        };
        let text = format!(
            "cannot be combined with `{}`; send one of them",
            self.path(first)
        );
        self.refuse(second, &text)
    }

    /// Fails with the range of `name` unless `value` fits.
    fn range(
        &self,
        name: &str,
        value: impl Debug,
        fits: bool,
        range: &str,
    ) -> Result<(), RequestError> {
        if fits {
            return Ok(());
        }
        self.refuse(name, &format!("must be {range}, not {value:?}"))
    }

    fn refuse(&self, name: &str, rule: &str) -> Result<(), RequestError> {
        let path = self.path(name);
        let message = format!("`{path}` {rule}");
        Err(RequestError::field(path, message))
    }

    fn path(&self, name: &str) -> String {
        match self.at {
            "" => name.to_owned(),
            at => format!("{at}.{name}"),
        }
    }
}
