//! `potable explain`: why a row is not in a data set.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::Answer;
use super::args::ExplainArgs;
use super::output::Output;
use crate::run::RunError;
use crate::source::cell::Cell;
use crate::source::files;
use crate::source::reader::{ReadRequest, Sampler, open_reader};

/// Prints the evidence of a dropped row.
///
/// # Errors
/// A folder without `dropped/`, a row that is not listed there.
pub fn run(args: &ExplainArgs, output: &Output) -> Result<Answer> {
    let Some(found) = find(&args.dir, &args.row_id)? else {
        return Err(RunError::OutputFolder {
            path: args.dir.clone(),
            problem: format!("no dropped row has the id `{}`", args.row_id),
            way_out: "ids stand in dropped/part-*.parquet, column `row_id`; rows that `where`, a cap or a duplicate left out are counts only".to_owned(),
        }
        .into());
    };
    output.data(&found)?;
    Ok(Answer::Yes)
}

fn find(dir: &Path, row_id: &str) -> Result<Option<String>> {
    let names = ["row_id", "stage", "reason", "evidence"].map(str::to_owned);
    let parts = files::find("dropped", &["dropped/*.parquet".to_owned()], dir, None)?;
    for part in parts {
        let whole = ReadRequest::whole(Sampler::all(0), 1 << 20);
        let request = ReadRequest { columns: names.to_vec(), ..whole };
        let mut reader = open_reader(&part, "dropped", &request)?;
        while let Some(chunk) = reader.next_chunk()? {
            for index in 0..chunk.batch.len() {
                let cells = chunk.batch.decode(index, &names).unwrap_or_default();
                if cells.first().and_then(Cell::text) == Some(row_id) {
                    let text = |at: usize| cells.get(at).and_then(Cell::text).unwrap_or_default();
                    return Ok(Some(format!("{row_id}\n{} ({})\n{}", text(2), text(1), evidence(text(3)))));
                }
            }
        }
    }
    Ok(None)
}

/// Matches as lines; any other evidence as it is.
fn evidence(text: &str) -> String {
    let Ok(Value::Array(matches)) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    let line = |found: &Value| {
        let word = |key: &str| {
            found.get(key).map_or(String::new(), |v| v.as_str().map_or(v.to_string(), str::to_owned))
        };
        let share = found.get("coverage_ppm").and_then(Value::as_u64).unwrap_or_default() / 10_000;
        let excerpt = word("excerpt");
        let excerpt = if excerpt.is_empty() {
            "(text of a sensitive benchmark is not shown)".to_owned()
        } else {
            excerpt
        };
        format!(
            "\n{} {}: {}, {share} % of the item, {}; message {}, bytes {}..{}\n{excerpt}",
            word("benchmark"),
            word("item"),
            word("rule"),
            word("action"),
            word("message"),
            word("start"),
            word("end")
        )
    };
    matches.iter().map(line).collect::<Vec<_>>().join("\n")
}
