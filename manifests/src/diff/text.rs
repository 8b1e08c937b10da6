//! A diff for a terminal.

use super::collect::{quote, visible};
use super::{Finding, ManifestDiff, VersionStep};

/// How many findings of the same kind are shown before the rest is only counted.
const RUN: usize = 20;

/// Areas whose bare numbers are counts, shown in groups and with their difference.
const COUNTED: [&str; 5] = ["matches", "rows", "samples", "tokens", "shards"];

pub(super) fn render(diff: &ManifestDiff) -> String {
    let mut out = format!("{} -> {}\n{}\n", diff.old.short(), diff.new.short(), diff.verdict());
    if diff.step != VersionStep::None {
        out.push_str(&format!("version step: {}\n", diff.step.as_str()));
    }
    let mut area = String::new();
    let mut rest = diff.findings.as_slice();
    while let Some(first) = rest.first() {
        if heading(first) != area {
            area = heading(first);
            out.push_str(&format!("\n{area}\n"));
        }
        let alike = rest.iter().take_while(|finding| kind(finding) == kind(first)).count();
        let (run, after) = rest.split_at(alike);
        run.iter().take(RUN).for_each(|finding| out.push_str(&line(finding)));
        if alike > RUN {
            let more = group(&(alike - RUN).to_string());
            out.push_str(&format!("  {:<14} … and {more} more of this kind\n", ""));
        }
        rest = after;
    }
    out
}

/// `old -> new`; counts in groups of three, with the difference.
pub(super) fn change(finding: &Finding) -> (String, String) {
    let counted = COUNTED.contains(&finding.area.as_str());
    let shown = |value: &Option<String>| match value {
        None => "absent".to_owned(),
        Some(value) if value.is_empty() => "(empty)".to_owned(),
        Some(value) if counted && is_count(value) => group(value),
        Some(value) => visible(value),
    };
    let mut new = shown(&finding.new);
    if counted && let Some(delta) = delta(finding) {
        new.push_str(&format!(" ({delta})"));
    }
    (shown(&finding.old), new)
}

/// The area of a finding, with its phase.
pub(super) fn heading(finding: &Finding) -> String {
    match &finding.phase {
        None => finding.area.clone(),
        Some(phase) => format!("phase {}, {}", quote(phase), finding.area),
    }
}

fn line(finding: &Finding) -> String {
    let (old, new) = change(finding);
    let what = &finding.what;
    match &finding.allowed {
        None => format!("  {:<14} {what}: {old} -> {new}\n", finding.weight.as_str()),
        Some(reason) => {
            let weight = finding.weight.as_str();
            format!("  {:<14} {what}: {old} -> {new} ({weight}; {})\n", "allowed", visible(reason))
        }
    }
}

/// What two findings share if they differ only in the names that they hold.
fn kind(finding: &Finding) -> (super::Weight, bool, String, String) {
    let words: Vec<_> = finding.what.split('`').step_by(2).collect();
    (finding.weight, finding.allowed.is_some(), heading(finding), words.join("`"))
}

fn delta(finding: &Finding) -> Option<String> {
    let (old, new) = (finding.old.as_deref()?, finding.new.as_deref()?);
    let (old, new) = (old.parse::<u64>().ok()?, new.parse::<u64>().ok()?);
    let sign = if new < old { '-' } else { '+' };
    Some(format!("{sign}{}", group(&new.abs_diff(old).to_string())))
}

fn is_count(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_digit())
}

/// `1234567` as `1,234,567`.
fn group(digits: &str) -> String {
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        let grouped = ["1", "12", "123", "1234", "1234567"].map(group);
        assert_eq!(grouped, ["1", "12", "123", "1,234", "1,234,567"]);
    }
}
