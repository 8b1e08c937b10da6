//! Rows that hold prompt and answer in columns of their own.

use super::conversation::{Conversation, Message, Role};
use super::mapping::{ChoiceValue, ColumnPath, ColumnsMapping, Tags};
use super::{Outcome, take, wrong_type};
use crate::run::reason::DropReason;
use crate::source::cell::Cell;

/// Reads prompt, reasoning and answer of a row.
///
/// # Errors
/// A column of the wrong type.
pub fn adapt(cells: &mut [Cell], mapping: &ColumnsMapping) -> Result<Outcome<Conversation>, String> {
    let mut parts = Vec::new();
    for path in &mapping.prompt {
        match take(cells, path) {
            Cell::Text(text) if text.trim().is_empty() => {}
            Cell::Text(text) => parts.push(text),
            Cell::Null => {}
            other => return Err(wrong_type(path, "text", &other)),
        }
    }
    if parts.is_empty() {
        return Ok(Outcome::Drop(DropReason::SourceEmptyRow));
    }
    let mut answer = match response(cells, mapping)? {
        Outcome::Keep(text) => text,
        Outcome::Drop(reason) => return Ok(Outcome::Drop(reason)),
    };
    for (open, close) in &mapping.remove {
        answer = cut_spans(&answer, open, close);
    }
    let mut message = Message::new(Role::Assistant, answer);
    if let Some(path) = &mapping.reasoning {
        message.reasoning = match take(cells, path) {
            Cell::Text(text) => Some(text),
            Cell::Null => None,
            other => return Err(wrong_type(path, "text", &other)),
        };
    }
    if let Some(mark) = &mapping.split_at {
        let text = message.text().to_owned();
        let Some((before, after)) = text.rsplit_once(mark.as_str()) else {
            return Ok(Outcome::Drop(DropReason::SourceNoTags));
        };
        message.reasoning = Some(before.trim().to_owned());
        message.content = Some(after.trim().to_owned());
    }
    let prompt = Message::new(Role::User, parts.join("\n\n"));
    Ok(Outcome::Keep(Conversation { messages: vec![prompt, message], tools: Vec::new() }))
}

/// Splits an assistant's text at its marks; `false` if one of them is missing. Text outside of the marks
/// and marks that stand there again would be lost, and mark the message.
pub fn apply_tags(message: &mut Message, tags: &Tags) -> bool {
    let text = message.text();
    let Some((before, reasoning, rest)) = between(text, &tags.reasoning) else { return false };
    let Some((middle, answer, after)) = between(rest, &tags.answer) else { return false };
    let lossy = [before, middle, after].iter().any(|outside| !outside.trim().is_empty());
    let (reasoning, answer) = (reasoning.trim().to_owned(), answer.trim().to_owned());
    message.lossy |= lossy;
    message.reasoning = Some(reasoning);
    message.content = Some(answer);
    true
}

/// What stands before, between and after a pair of marks.
fn between<'a>(text: &'a str, marks: &(String, String)) -> Option<(&'a str, &'a str, &'a str)> {
    let (before, rest) = text.split_once(marks.0.as_str())?;
    let (inner, after) = rest.split_once(marks.1.as_str())?;
    Some((before, inner, after))
}

fn response(cells: &mut [Cell], mapping: &ColumnsMapping) -> Result<Outcome<String>, String> {
    let path = &mapping.response;
    let cell = match take(cells, path) {
        Cell::Text(text) if mapping.json_response && !text.trim().is_empty() => {
            serde_json::from_str::<Cell>(&text)
                .map_err(|_| format!("column `{}` is text, but not JSON", path.name))?
        }
        other => other,
    };
    match cell {
        Cell::Null => Ok(Outcome::Drop(DropReason::SourceNoResponse)),
        // Whether an answer is empty is judged where reasoning and answer are known: normalise.
        Cell::Text(text) => Ok(Outcome::Keep(text)),
        Cell::List(answers) => choose(cells, mapping, answers),
        other => Err(wrong_type(path, "text or a list of texts", &other)),
    }
}

/// Takes the first answer that passes its checks; the first one where there are none.
fn choose(
    cells: &mut [Cell],
    mapping: &ColumnsMapping,
    answers: Vec<Cell>,
) -> Result<Outcome<String>, String> {
    let unchecked = mapping.choose_all.is_empty() && mapping.choose_any.is_empty();
    let none = if unchecked && mapping.choose_equal.is_empty() {
        DropReason::SourceNoResponse
    } else {
        DropReason::SourceNoChoice
    };
    let all = lists(cells, &mapping.choose_all)?;
    let any = lists(cells, &mapping.choose_any)?;
    let (equal, values): (Vec<_>, Vec<_>) = mapping.choose_equal.iter().cloned().unzip();
    let equal = lists(cells, &equal)?;
    let is_true = |list: &Vec<Cell>, i: usize| list.get(i) == Some(&Cell::Bool(true));
    let has = |list: &Vec<Cell>, value: &ChoiceValue, i: usize| match (list.get(i), value) {
        (Some(Cell::Int(found)), ChoiceValue::Int(wanted)) => found == wanted,
        (Some(Cell::Text(found)), ChoiceValue::Text(wanted)) => found == wanted,
        _ => false,
    };
    for (i, answer) in answers.into_iter().enumerate() {
        let passes = all.iter().all(|list| is_true(list, i))
            && (any.is_empty() || any.iter().any(|list| is_true(list, i)))
            && equal.iter().zip(&values).all(|(list, value)| has(list, value, i));
        match answer {
            Cell::Text(text) if passes => return Ok(Outcome::Keep(text)),
            Cell::Text(_) | Cell::Null => {}
            other => return Err(wrong_type(&mapping.response, "a list of texts", &other)),
        }
    }
    Ok(Outcome::Drop(none))
}

/// Parallel lists; one that is null as a whole holds nothing that is true.
fn lists(cells: &mut [Cell], paths: &[ColumnPath]) -> Result<Vec<Vec<Cell>>, String> {
    paths
        .iter()
        .map(|path| match take(cells, path) {
            Cell::List(items) => Ok(items),
            Cell::Null => Ok(Vec::new()),
            other => Err(wrong_type(path, "a list", &other)),
        })
        .collect()
}

/// A text without the spans between two marks, the marks among them.
pub(super) fn cut_spans(text: &str, open: &str, close: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(open) {
        let Some((_, tail)) = after.split_once(close) else { break };
        out.push_str(before);
        rest = tail;
    }
    out.push_str(rest);
    out
}
