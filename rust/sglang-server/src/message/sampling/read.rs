//! Reads sampling parameters from JSON.

use serde_json::{Map, Value};

use super::SamplingParams;
use crate::{
    error::RequestError,
    message::json::{FromScalar, Path, Scalar, mismatch},
};

impl SamplingParams {
    /// The client's parameters `fields`, verified and normalised. A parameter that is absent or
    /// null takes its value from `preferred` (the server's launch options), else the default.
    /// Exception: `max_new_tokens: null` means no limit.
    ///
    /// `at` is the path of the object in the body, for error messages; empty if the object is
    /// the body itself.
    ///
    /// # Errors
    ///
    /// If a name is unknown or is `stop_regex`, or a value has the wrong type or is out of range.
    pub fn from_json(
        fields: Map<String, Value>,
        preferred: &Map<String, Value>,
        at: &str,
    ) -> Result<Self, RequestError> {
        let body = Path::Body;
        let at_object = if at.is_empty() { body } else { body.key(at) };
        let mut fields = Fields {
            own: fields,
            preferred,
            at: &at_object,
        };
        let mut params = fields.params()?;
        fields.finish()?;
        params.verify(at)?;
        params.normalize();
        Ok(params)
    }
}

/// The fields that have not been read yet.
struct Fields<'a> {
    own: Map<String, Value>,
    preferred: &'a Map<String, Value>,
    at: &'a Path<'a>,
}

impl Fields<'_> {
    fn params(&mut self) -> Result<SamplingParams, RequestError> {
        let default = SamplingParams::default();
        Ok(SamplingParams {
            max_new_tokens: self.max_new_tokens(default.max_new_tokens)?,
            stop_token_ids: self.list("stop_token_ids")?,
            temperature: self.or("temperature", default.temperature)?,
            top_p: self.or("top_p", default.top_p)?,
            top_k: self.or("top_k", default.top_k)?,
            min_p: self.or("min_p", default.min_p)?,
            frequency_penalty: self.or("frequency_penalty", default.frequency_penalty)?,
            presence_penalty: self.or("presence_penalty", default.presence_penalty)?,
            repetition_penalty: self.or("repetition_penalty", default.repetition_penalty)?,
            min_new_tokens: self.or("min_new_tokens", default.min_new_tokens)?,
            n: self.or("n", default.n)?,
            json_schema: self.get("json_schema")?,
            regex: self.get("regex")?,
            ebnf: self.get("ebnf")?,
            structural_tag: self.get("structural_tag")?,
            ignore_eos: self.or("ignore_eos", default.ignore_eos)?,
            skip_special_tokens: self.or("skip_special_tokens", default.skip_special_tokens)?,
            spaces_between_special_tokens: self.or(
                "spaces_between_special_tokens",
                default.spaces_between_special_tokens,
            )?,
            no_stop_trim: self.or("no_stop_trim", default.no_stop_trim)?,
            stream_interval: self.get("stream_interval")?,
            logit_bias: self.logit_bias()?,
            sampling_seed: self.get("sampling_seed")?,
            custom_params: self.object("custom_params")?,
            stop_strs: self.stop()?,
            stop_str_max_len: default.stop_str_max_len,
        })
    }

    /// The request's value of `name`, else the preferred one. Null counts as absent.
    fn value(&mut self, name: &str) -> Option<Value> {
        let own = self.own.remove(name).filter(|value| !value.is_null());
        let preferred = || self.preferred.get(name).filter(|value| !value.is_null());
        own.or_else(|| preferred().cloned())
    }

    fn get<T: FromScalar>(&mut self, name: &str) -> Result<Option<T>, RequestError> {
        let path = self.at.key(name);
        self.value(name)
            .map(|value| typed(value, &path))
            .transpose()
    }

    fn or<T: FromScalar>(&mut self, name: &str, default: T) -> Result<T, RequestError> {
        Ok(self.get(name)?.unwrap_or(default))
    }

    /// `max_new_tokens`: the only parameter for which null is a value.
    fn max_new_tokens(&mut self, default: Option<i64>) -> Result<Option<i64>, RequestError> {
        let name = "max_new_tokens";
        let own = self.own.remove(name);
        match own.or_else(|| self.preferred.get(name).cloned()) {
            None => Ok(default),
            Some(Value::Null) => Ok(None),
            Some(value) => typed(value, &self.at.key(name)).map(Some),
        }
    }

    fn list<T: FromScalar>(&mut self, name: &str) -> Result<Option<Vec<T>>, RequestError> {
        let path = self.at.key(name);
        match self.value(name) {
            None => Ok(None),
            Some(Value::Array(values)) => elements(values, &path).map(Some),
            Some(other) => Err(mismatch(&path, "a list", &other.into())),
        }
    }

    fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, RequestError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(fields)),
            Some(other) => Err(mismatch(&self.at.key(name), "an object", &other.into())),
        }
    }

    /// `stop`: a string or a list of strings.
    fn stop(&mut self) -> Result<Vec<String>, RequestError> {
        let path = self.at.key("stop");
        match self.value("stop") {
            None => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(vec![text]),
            Some(Value::Array(texts)) => elements(texts, &path),
            Some(other) => Err(mismatch(
                &path,
                "a string or a list of strings",
                &other.into(),
            )),
        }
    }

    /// `logit_bias`: maps token ids (strings, as JSON keys must be) to numbers.
    fn logit_bias(&mut self) -> Result<Option<Vec<(i64, f64)>>, RequestError> {
        let path = self.at.key("logit_bias");
        let Some(biases) = self.object("logit_bias")? else {
            return Ok(None);
        };
        let bias = |(token, bias): (String, Value)| {
            let path = path.key(&token);
            let id = token_id(&token).ok_or_else(|| refuse(&path, "is not the id of a token"))?;
            Ok((id, typed(bias, &path)?))
        };
        biases
            .into_iter()
            .map(bias)
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// Fails if fields are left over.
    fn finish(mut self) -> Result<(), RequestError> {
        let regex = self.own.remove("stop_regex");
        let path = self.at.key("stop_regex");
        // The scheduler would match the pattern at every step; a costly pattern could stall it.
        if regex.is_some_and(|value| !is_null_or_empty(&value)) {
            return Err(refuse(&path, "is not supported; use `stop`"));
        }
        let Some(name) = self.own.keys().next() else {
            return Ok(());
        };
        Err(refuse(&self.at.key(name), "is not a sampling parameter"))
    }
}

fn refuse(path: &Path, rule: &str) -> RequestError {
    let path = path.shown();
    let message = format!("`{path}` {rule}");
    RequestError::field(path, message)
}

fn is_null_or_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// A token id in canonical form, so that no two keys mean the same token.
fn token_id(text: &str) -> Option<i64> {
    let id: i64 = text.parse().ok()?;
    (id >= 0 && id.to_string() == text).then_some(id)
}

fn elements<T: FromScalar>(values: Vec<Value>, list: &Path) -> Result<Vec<T>, RequestError> {
    let values = values.into_iter().enumerate();
    values
        .map(|(i, value)| typed(value, &list.index(i)))
        .collect()
}

fn typed<T: FromScalar>(value: Value, path: &Path) -> Result<T, RequestError> {
    T::from_scalar(Scalar::from(value)).map_err(|got| mismatch(path, T::EXPECTED, &got))
}
