//! Why a generation ended.
//!
//! Invariant: the scheduler's map reaches the client unchanged, even if its `type` is unknown here.

use serde_json::{Map, Value};

/// The scheduler's map. Its `type` determines the meaning of the other fields.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishReason(pub Map<String, Value>);

/// The stop condition that a `stop` matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matched {
    /// A token.
    Token(i64),
    /// A stop string.
    Text(String),
}

impl FinishReason {
    /// The `type`: `stop`, `length`, `abort`, or another value that the scheduler defines.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.0.get("type").and_then(Value::as_str).unwrap_or("")
    }

    /// The stop condition that matched. Token 0 counts as no match, as in Python, where 0 is
    /// false.
    #[must_use]
    pub fn matched(&self) -> Option<Matched> {
        match self.0.get("matched")? {
            Value::String(text) => Some(Matched::Text(text.clone())),
            Value::Number(id) => id.as_i64().filter(|id| *id != 0).map(Matched::Token),
            _ => None,
        }
    }

    /// The HTTP status of an `abort` that has one.
    #[must_use]
    pub fn abort_status(&self) -> Option<u16> {
        let status = self.0.get("status_code").and_then(Value::as_u64);
        let status = status.filter(|_| self.kind() == "abort")?;
        Some(u16::try_from(status).unwrap_or(500))
    }

    /// A text field of the map.
    #[must_use]
    pub fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field).and_then(Value::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{FinishReason, Matched};

    fn reason(value: &Value) -> FinishReason {
        FinishReason(value.as_object().unwrap().clone())
    }

    #[test]
    fn accessors_read_the_map() {
        let text = |text: &str| Some(Matched::Text(text.into()));
        #[rustfmt::skip]
        let cases = [
            (json!({"type": "length", "length": 8}),                             "length", None,                    None),
            (json!({"type": "stop", "matched": 151_645}),                        "stop",   Some(Matched::Token(151_645)), None),
            (json!({"type": "stop", "matched": "\n\n"}),                         "stop",   text("\n\n"),            None),
            (json!({"type": "stop", "matched": 0}),                              "stop",   None,                    None),
            (json!({"type": "stop", "matched": null}),                           "stop",   None,                    None),
            (json!({"type": "stop"}),                                            "stop",   None,                    None),
            (json!({"type": "abort", "message": "no", "status_code": 400}),      "abort",  None,                    Some(400)),
            (json!({"type": "abort", "message": "no", "status_code": 1 << 20}),  "abort",  None,                    Some(500)),
            (json!({"type": "abort", "message": "no"}),                          "abort",  None,                    None),
            (json!({"type": "stop", "status_code": 400}),                        "stop",   None,                    None),
            (json!({"type": "future kind"}),                                     "future kind", None,               None),
            (json!({}),                                                          "",       None,                    None),
        ];
        for (value, kind, matched, status) in cases {
            let reason = reason(&value);
            assert_eq!(kind, reason.kind(), "{value}");
            assert_eq!(matched, reason.matched(), "{value}");
            assert_eq!(status, reason.abort_status(), "{value}");
        }
        let abort = reason(&json!({"type": "abort", "message": "no"}));
        assert_eq!(Some("no"), abort.text("message"));
        assert_eq!(None, abort.text("err_type"));
    }
}
