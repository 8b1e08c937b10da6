//! A diff for a comment on a pull request.

use super::collect::visible;
use super::text;
use super::{Finding, ManifestDiff, Weight};

/// Hidden first line, by which a bot finds the comment that it wrote before.
const MARKER: &str = "<!-- potable manifest diff -->";

/// Rows of the table; the worst findings come first into it.
const ROWS: usize = 60;

/// Characters of a value in the table.
const CELL: usize = 32;

/// Characters of what differs in the table.
const WHAT: usize = 180;

/// Bytes of the whole comment; GitHub takes 65,536 characters.
const LIMIT: usize = 60_000;

pub(super) fn render(diff: &ManifestDiff) -> String {
    let (old, new) = (code(diff.old.short()), code(diff.new.short()));
    let mut out = format!("{MARKER}\n**Data manifest {old} → {new}: {}**\n", diff.verdict());
    if diff.is_empty() {
        return out;
    }
    out.push_str(&format!("\nSuggested version step: **{}**\n", diff.step.as_str()));
    out.push_str("\n| weight | area | what | old | new |\n|---|---|---|---|---|\n");
    for finding in worst(&diff.findings) {
        out.push_str(&row(finding));
    }
    let count = diff.findings.len();
    out.push_str(&format!("\n<details>\n<summary>All {count} findings in full</summary>\n\n"));
    for (index, finding) in diff.findings.iter().enumerate() {
        let item = item(finding);
        if out.len() + item.len() > LIMIT {
            let left = count - index;
            out.push_str(&format!("- … and {left} more; `--format json` has them all\n"));
            break;
        }
        out.push_str(&item);
    }
    out.push_str("\n</details>\n");
    out
}

/// The findings for the table: the worst if there are too many, in the order of the diff.
fn worst(findings: &[Finding]) -> Vec<&Finding> {
    let mut kept: Vec<_> = findings.iter().enumerate().collect();
    kept.sort_by_key(|(index, finding)| {
        (finding.allowed.is_some(), std::cmp::Reverse(finding.weight), *index)
    });
    kept.truncate(ROWS);
    kept.sort_by_key(|(index, _)| *index);
    kept.into_iter().map(|(_, finding)| finding).collect()
}

fn row(finding: &Finding) -> String {
    let (old, new) = text::change(finding);
    let weight = match (&finding.allowed, finding.weight) {
        (Some(_), weight) => format!("{}, allowed", weight.as_str()),
        (None, Weight::Blocking) => "**blocking**".to_owned(),
        (None, other) => other.as_str().to_owned(),
    };
    let cells = [&*weight, &text::heading(finding), &shortened(&finding.what, WHAT)].map(bar_free);
    let [old, new] = [old, new].map(|value| bar_free(&code(&shortened(&value, CELL))));
    format!("| {} | {old} | {new} |\n", cells.join(" | "))
}

fn item(finding: &Finding) -> String {
    let (old, new) = text::change(finding);
    let (weight, area, what) = (finding.weight.as_str(), text::heading(finding), &finding.what);
    let [old, new] = [old, new].map(|value| code(&value));
    let allowed =
        finding.allowed.as_ref().map(|reason| format!(" — allowed: {}", code(reason))).unwrap_or_default();
    format!("- {weight}, {area}, {what}: {old} → {new}{allowed}\n")
}

/// A code span that holds `value` as it is, also if that has backticks.
fn code(value: &str) -> String {
    let value = visible(value);
    let longest = value.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest + 1);
    let pad = if longest > 0 { " " } else { "" };
    format!("{fence}{pad}{value}{pad}{fence}")
}

/// A bar ends a cell even inside a code span, and escapes for it differ between renderers.
fn bar_free(cell: &str) -> String {
    cell.replace('|', "¦")
}

fn shortened(value: &str, limit: usize) -> String {
    if value.chars().count() <= limit {
        return value.to_owned();
    }
    let mut short: String = value.chars().take(limit - 1).collect();
    short.push('…');
    if short.matches('`').count() % 2 == 1 && value.matches('`').count().is_multiple_of(2) {
        short.push('`');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_spans_hold_anything() {
        assert_eq!(code("a"), "`a`");
        assert_eq!(code("a`b``c"), "``` a`b``c ```");
        assert_eq!(code("a\n| b"), "`a\\n| b`");
    }

    #[test]
    fn shortening_closes_a_name() {
        assert_eq!(shortened("source `abcdef`", 12), "source `abc…`");
        assert_eq!(shortened("abc", 3), "abc");
    }
}
