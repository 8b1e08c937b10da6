//! JSON text as Python's `json.dumps(value, ensure_ascii=False)` writes it, which is what the
//! `tojson` filter of Hugging Face chat templates gives: separators `", "` and `": "`, keys in
//! insertion order, Python float text.

use std::fmt::Write as _;

use super::cell::Cell;

/// Writes `cell` as Python would.
pub fn to_python_json(cell: &Cell) -> String {
    let mut out = String::new();
    write_cell(&mut out, cell);
    out
}

/// Python's `repr` of a float: shortest digits, exponent below 1e-4 and from 1e16 on, `NaN` and
/// `Infinity` as `json.dumps` spells them.
pub fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

fn write_cell(out: &mut String, cell: &Cell) {
    match cell {
        Cell::Null => out.push_str("null"),
        Cell::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Cell::Int(value) => write_display(out, value),
        Cell::UInt(value) => write_display(out, value),
        Cell::Float(value) => out.push_str(&python_float(*value)),
        Cell::Text(text) => push_text(out, text),
        // JSON has no binary; hex is what a reader can make something of.
        Cell::Bytes(bytes) => {
            out.push('"');
            bytes.iter().for_each(|byte| write_display(out, format_args!("{byte:02x}")));
            out.push('"');
        }
        Cell::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_cell(out, item);
            }
            out.push(']');
        }
        Cell::Struct(fields) => {
            out.push('{');
            for (i, (key, value)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                push_text(out, key);
                out.push_str(": ");
                write_cell(out, value);
            }
            out.push('}');
        }
    }
}

fn write_display(out: &mut String, value: impl std::fmt::Display) {
    // Writing to a String cannot fail.
    let _infallible = write!(out, "{value}");
}

/// Writes `text` as a JSON string.
pub fn push_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 => write_display(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_read_as_python_writes_them() {
        for (value, text) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
        ] {
            assert_eq!(python_float(value), text);
        }
    }

    #[test]
    fn text_is_escaped_as_python_does_without_ensure_ascii() {
        let cell = Cell::List(vec![Cell::Text("a\"\\\n\u{1}é<b>".into()), Cell::Null]);
        assert_eq!(to_python_json(&cell), "[\"a\\\"\\\\\\n\\u0001é<b>\", null]");
    }
}
