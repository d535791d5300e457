//! Small request bodies as typed values.
//!
//! `/generate` has its own reader, in `message/json`. Here serde's derived code reads the body,
//! and `serde_path_to_error`, which axum needs too, adds the path of the wrong value.

use serde::de::DeserializeOwned;

use crate::error::RequestError;

/// Maximum length of a message, in characters. serde's messages quote parts of the body.
const MAX_MESSAGE: usize = 300;

/// Parses `body`, which must be one JSON value. Unknown keys are ignored.
///
/// # Errors
///
/// When it is not valid JSON or does not have the form of `T`.
pub(crate) fn from_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, RequestError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        refused(Some(path).filter(|path| path != "."), error.inner())
    })?;
    json.end().map_err(|error| refused(None, &error))?;
    Ok(value)
}

fn refused(path: Option<String>, error: &serde_json::Error) -> RequestError {
    let cut = |message: String| message.chars().take(MAX_MESSAGE).collect::<String>();
    if !error.is_data() {
        let (line, column) = (error.line(), error.column());
        let message = format!("the body is not valid JSON (line {line} column {column})");
        return RequestError::invalid(message);
    }
    match path {
        Some(path) => RequestError::field(cut(path.clone()), cut(format!("`{path}`: {error}"))),
        None => RequestError::invalid(cut(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::{MAX_MESSAGE, from_body};

    #[derive(Debug, Deserialize)]
    struct Body {
        tokens: Vec<i64>,
    }

    #[test]
    fn errors_name_the_wrong_value() {
        #[rustfmt::skip]
        let cases = [
            ("{",                     "the body is not valid JSON (line 1 column 1)"),
            ("{\"tokens\": []} x",    "the body is not valid JSON (line 1 column 16)"),
            ("{}",                    "missing field `tokens` at line 1 column 2"),
            ("[]",                    "invalid length 0, expected struct Body with 1 element at line 1 column 2"),
            ("{\"tokens\": 1}",       "`tokens`: invalid type: integer `1`, expected a sequence at line 1 column 12"),
            ("{\"tokens\": [1, \"\"]}", "`tokens[1]`: invalid type: string \"\", expected i64 at line 1 column 17"),
        ];
        for (body, message) in cases {
            let error = from_body::<Body>(body.as_bytes()).unwrap_err();
            assert_eq!(
                format!("invalid request: {message}"),
                error.to_string(),
                "{body}"
            );
        }
        let ok: Body = from_body(b"{\"tokens\": [7], \"other\": 1} ").unwrap();
        assert_eq!(vec![7], ok.tokens);
    }

    #[test]
    fn long_values_are_cut() {
        let body = format!("{{\"tokens\": [\"{}\"]}}", "x".repeat(10_000));
        let error = from_body::<Body>(body.as_bytes()).unwrap_err();
        assert!(error.to_string().len() <= "invalid request: ".len() + MAX_MESSAGE);
    }
}
