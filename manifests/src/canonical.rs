//! Canonical JSON in the manner of RFC 8785 (JCS): one text for one value.
//!
//! Keys are sorted by UTF-16 code units, there is no white space, strings use the shortest escapes
//! of the RFC. Numbers are whole numbers only, written in full: where the RFC would round a number
//! above 2^53 to a double, we keep every digit, and a float is an error.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value};

/// A value that has no canonical JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// A number that is not a whole number of 64 bits.
    #[error("number `{number}` at `{pointer}` is not a whole number of 64 bits")]
    Number {
        /// JSON pointer (RFC 6901) to the number.
        pointer: String,
        /// The number as JSON writes it.
        number: String,
    },
    /// A type that does not serialise to JSON, such as a map whose keys are not text.
    #[error("value does not serialise to JSON: {reason}")]
    Serialise {
        /// What serde said.
        reason: String,
    },
}

/// The canonical JSON of `value`.
///
/// # Errors
/// [`CanonicalError::Number`] if any number in it is a float.
pub fn canonical_json(value: &Value) -> Result<String, CanonicalError> {
    let mut out = String::new();
    write_value(&mut out, value, &mut String::new())?;
    Ok(out)
}

/// `value` as pretty JSON: keys in canonical order, two spaces of indent, a newline at the end.
///
/// # Errors
/// [`CanonicalError::Number`] if any number in it is a float.
pub fn pretty_json(value: &Value) -> Result<String, CanonicalError> {
    canonical_json(value)?;
    let mut text = serde_json::to_string_pretty(&sorted(value)).map_err(serialise_error)?;
    text.push('\n');
    Ok(text)
}

/// Any serialisable type as a JSON value.
///
/// # Errors
/// [`CanonicalError::Serialise`] if the type is not JSON.
pub fn to_value<T: Serialize>(value: &T) -> Result<Value, CanonicalError> {
    serde_json::to_value(value).map_err(serialise_error)
}

/// Replaces every float in `value` by its shortest decimal text: `0.005` becomes `"0.005"`.
///
/// A resolved recipe holds shares and weights; in a manifest they are text, so that no
/// implementation has to agree with another on how floats are printed.
pub fn floats_as_text(value: Value) -> Value {
    match value {
        Value::Number(number) if number.as_u64().is_none() && number.as_i64().is_none() => {
            Value::String(number.to_string())
        }
        Value::Array(items) => items.into_iter().map(floats_as_text).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, floats_as_text(value)));
            Value::Object(fields.collect())
        }
        other => other,
    }
}

/// `value` with the keys of every object in canonical order.
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(fields) => Value::Object(
            in_order(fields).into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect(),
        ),
        other => other.clone(),
    }
}

fn write_value(out: &mut String, value: &Value, at: &mut String) -> Result<(), CanonicalError> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => write_number(out, number, at)?,
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                nested(at, &index.to_string(), |at| write_value(out, item, at))?;
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (index, (key, value)) in in_order(fields).into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(out, key);
                out.push(':');
                nested(at, key, |at| write_value(out, value, at))?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn write_number(out: &mut String, number: &serde_json::Number, at: &str) -> Result<(), CanonicalError> {
    let written = match (number.as_u64(), number.as_i64()) {
        (Some(whole), _) => write!(out, "{whole}"),
        (None, Some(whole)) => write!(out, "{whole}"),
        (None, None) => {
            let (pointer, number) = (at.to_owned(), number.to_string());
            return Err(CanonicalError::Number { pointer, number });
        }
    };
    written.map_err(|error| CanonicalError::Serialise { reason: error.to_string() })
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Runs `inner` with `step` added to the JSON pointer `at`, and takes it off again.
fn nested<T>(at: &mut String, step: &str, inner: impl FnOnce(&mut String) -> T) -> T {
    let length = at.len();
    at.push('/');
    at.push_str(&step.replace('~', "~0").replace('/', "~1"));
    let result = inner(at);
    at.truncate(length);
    result
}

fn in_order(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = fields.iter().collect();
    entries.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    entries
}

fn serialise_error(error: serde_json::Error) -> CanonicalError {
    CanonicalError::Serialise { reason: error.to_string() }
}
