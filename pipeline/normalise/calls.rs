//! Tools and calls of tools as the templates print them: as JSON (Qwen3) or as XML (Qwen3.5, 3.6).

use crate::run::reason::DropReason;
use crate::source::Cell;
use crate::source::adapt::ToolCall;
use crate::source::python_json::to_python_json;

/// How scalars of XML calls read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalars {
    /// As Python's `str`: `True`, `None`.
    Python,
    /// As JSON: `true`, `null`.
    Json,
}

/// A call as JSON; the arguments are the row's own text or what `json.dumps` makes of them.
pub(super) fn push_json(out: &mut String, call: &ToolCall) {
    out.push_str("<tool_call>\n{\"name\": \"");
    out.push_str(&call.name);
    out.push_str("\", \"arguments\": ");
    out.push_str(&call.arguments);
    out.push_str("}\n</tool_call>");
}

/// A call as XML, a parameter an argument.
///
/// # Errors
/// Arguments that are no JSON object: the template has no way to print them.
pub(super) fn push_xml(out: &mut String, call: &ToolCall, scalars: Scalars) -> Result<(), DropReason> {
    let parsed = serde_json::from_str::<Cell>(&call.arguments);
    let Ok(Cell::Struct(fields)) = parsed else { return Err(DropReason::NormaliseRefused) };
    out.push_str("<tool_call>\n<function=");
    out.push_str(&call.name);
    out.push_str(">\n");
    for (name, value) in unique(fields) {
        out.push_str("<parameter=");
        out.push_str(&name);
        out.push_str(">\n");
        out.push_str(&argument(&value, scalars));
        out.push_str("\n</parameter>\n");
    }
    out.push_str("</function>\n</tool_call>");
    Ok(())
}

/// Of equal keys the last value, in the place of the first, as Python's dictionaries.
fn unique(fields: Vec<(String, Cell)>) -> Vec<(String, Cell)> {
    let mut kept: Vec<(String, Cell)> = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        match kept.iter_mut().find(|(key, _)| *key == name) {
            Some(entry) => entry.1 = value,
            None => kept.push((name, value)),
        }
    }
    kept
}

fn argument(value: &Cell, scalars: Scalars) -> String {
    match (value, scalars) {
        (Cell::Text(text), _) => text.clone(),
        (Cell::Null, Scalars::Python) => "None".to_owned(),
        (Cell::Bool(true), Scalars::Python) => "True".to_owned(),
        (Cell::Bool(false), Scalars::Python) => "False".to_owned(),
        _ => to_python_json(value),
    }
}

/// Text of the Qwen3 templates before the tools.
pub(super) const JSON_TOOLS_BEFORE: &str = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>";
/// Text of the Qwen3 templates after the tools.
pub(super) const JSON_TOOLS_AFTER: &str = "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";
/// Text of the Qwen3.5 templates before the tools.
pub(super) const XML_TOOLS_BEFORE: &str = "# Tools\n\nYou have access to the following functions:\n\n<tools>";
/// Text of the Qwen3.5 templates after the tools.
pub(super) const XML_TOOLS_AFTER: &str = "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after\n- If there is no function call available, answer the question like normal with your current knowledge and do not tell the user about function calls\n</IMPORTANT>";

#[cfg(test)]
mod tests {
    use super::*;

    fn xml(arguments: &str, scalars: Scalars) -> Result<String, DropReason> {
        let call = ToolCall { name: "f".to_owned(), arguments: arguments.to_owned(), id: None };
        let mut out = String::new();
        push_xml(&mut out, &call, scalars).map(|()| out)
    }

    #[test]
    fn arguments_that_are_no_object_are_refused() {
        for arguments in ["", "[1]", "\"a\"", "null", "{"] {
            assert_eq!(xml(arguments, Scalars::Json), Err(DropReason::NormaliseRefused), "{arguments}");
        }
    }

    #[test]
    fn scalars_read_as_python_or_as_json() {
        let arguments = r#"{"a": true, "b": null, "c": 2.0, "a": "x", "d": [true]}"#;
        let python = xml(arguments, Scalars::Python).unwrap();
        let json = xml(arguments, Scalars::Json).unwrap();
        assert_eq!(
            json,
            python.replace("\nNone\n", "\nnull\n"),
            "the second `a` wins, so no boolean stands alone"
        );
        assert!(python.contains("<parameter=a>\nx\n</parameter>\n<parameter=b>\nNone\n"), "{python}");
        assert!(python.contains("\n[true]\n") && python.contains("\n2.0\n"), "{python}");
    }
}
