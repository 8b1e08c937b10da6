//! How findings are gathered: field by field, list by name, JSON leaf by leaf.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Finding, Thresholds, Weight};
use crate::canonical;
use crate::digest::Digest;

/// Findings so far, and the area that the next ones belong to.
pub(super) struct Collector {
    area: &'static str,
    pub(super) thresholds: Thresholds,
    findings: Vec<Finding>,
}

/// One name on both sides; at least one side is there.
pub(super) struct Pair<'a, T> {
    /// The name in backticks; a second entry of the same name is told apart.
    pub(super) name: String,
    pub(super) old: Option<&'a T>,
    pub(super) new: Option<&'a T>,
}

/// A value as a finding shows it; `None` if there is no value.
pub(super) trait Shown {
    fn shown(&self) -> Option<String>;
}

impl Shown for str {
    fn shown(&self) -> Option<String> {
        Some(self.to_owned())
    }
}

impl Shown for String {
    fn shown(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl Shown for Digest {
    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Shown for u64 {
    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Shown for usize {
    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Shown for bool {
    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl<T: Shown> Shown for Option<T> {
    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(Shown::shown)
    }
}

impl Collector {
    pub(super) fn new(thresholds: Thresholds) -> Self {
        Collector { area: "", thresholds, findings: Vec::new() }
    }

    pub(super) fn area(&mut self, area: &'static str) {
        self.area = area;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.findings
    }

    /// Adds a finding if the two values differ.
    pub(super) fn field<T: Shown + PartialEq + ?Sized>(
        &mut self,
        weight: Weight,
        what: impl Into<String>,
        (old, new): (&T, &T),
    ) {
        if old != new {
            self.push(weight, what, (old.shown(), new.shown()));
        }
    }

    /// Adds a finding.
    pub(super) fn push(
        &mut self,
        weight: Weight,
        what: impl Into<String>,
        (old, new): (Option<String>, Option<String>),
    ) {
        let (area, what) = (self.area.to_owned(), what.into());
        self.findings.push(Finding { weight, phase: None, area, what, old, new, allowed: None });
    }

    /// Adds a finding if two counts differ: material if they differ by more than `threshold` (parts
    /// per million of the larger one), else informational.
    pub(super) fn count(&mut self, threshold: u64, what: impl Into<String>, (old, new): (&u64, &u64)) {
        let weight = if exceeds(threshold, *old, *new) { Weight::Material } else { Weight::Informational };
        self.field(weight, what, (old, new));
    }

    /// Adds a finding if the names that both lists hold stand in another order.
    pub(super) fn order<T>(
        &mut self,
        (weight, what): (Weight, &str),
        (old, new): (&[T], &[T]),
        name: fn(&T) -> &str,
    ) {
        let names = |items: &[T]| items.iter().map(|item| name(item).to_owned()).collect();
        let (old, new): (Vec<String>, Vec<String>) = (names(old), names(new));
        let known = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
        let (in_old, in_new) = (known(&old), known(&new));
        let old = old.iter().filter(|name| in_new.contains(*name));
        let new = new.iter().filter(|name| in_old.contains(*name));
        let moved = old.zip(new).enumerate().find(|(_, (old, new))| old != new);
        if let Some((index, (old, new))) = moved {
            let place = |name: &str| Some(format!("{} at place {}", quote(name), index + 1));
            self.push(weight, what, (place(old), place(new)));
        }
    }

    /// Adds a finding of weight [`Weight::Material`] for each leaf of JSON that differs.
    /// `what` is followed by the JSON pointer; list items that all have a `name` go by it.
    pub(super) fn json(&mut self, what: &str, (old, new): (Option<&Value>, Option<&Value>)) {
        self.json_at(what, "", (old, new));
    }

    fn json_at(&mut self, what: &str, at: &str, (old, new): (Option<&Value>, Option<&Value>)) {
        match (old, new) {
            (old, new) if old == new => {}
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                for key in union(old, new) {
                    let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                    self.json_at(what, &at, (old.get(key), new.get(key)));
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => self.json_list(what, at, (old, new)),
            (old, new) => {
                let what = if at.is_empty() { what.to_owned() } else { format!("{what} {}", quote(at)) };
                self.push(Weight::Material, what, (old.map(json_text), new.map(json_text)));
            }
        }
    }

    fn json_list(&mut self, what: &str, at: &str, (old, new): (&[Value], &[Value])) {
        if !all_named(old) || !all_named(new) {
            for index in 0..old.len().max(new.len()) {
                let at = format!("{at}/{index}");
                self.json_at(what, &at, (old.get(index), new.get(index)));
            }
            return;
        }
        for pair in pairs((old, new), name_of) {
            let at = format!("{at}/{}", pair.name.trim_matches('`'));
            self.json_at(what, &at, (pair.old, pair.new));
        }
        let what = format!("order of {what} {}", quote(at));
        self.order((Weight::Informational, &what), (old, new), name_of);
    }
}

/// Whether two counts differ by more than `threshold` parts per million of the larger one.
pub(super) fn exceeds(threshold: u64, old: u64, new: u64) -> bool {
    u128::from(old.abs_diff(new)) * 1_000_000 > u128::from(threshold) * u128::from(old.max(new))
}

/// `name` in backticks, on one line, whatever it holds.
pub(super) fn quote(name: &str) -> String {
    let name = if name.is_empty() { "(empty)" } else { name };
    format!("`{}`", visible(name).replace('`', "'"))
}

/// `text` with control characters and invisible marks (also those that turn the direction of
/// text) as escapes, so that a value cannot forge lines of a report.
pub(crate) fn visible(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// The two lists by name, in the order of names.
pub(super) fn pairs<'a, T>((old, new): (&'a [T], &'a [T]), name: fn(&T) -> &str) -> Vec<Pair<'a, T>> {
    let (old, new) = (by_name(old, name), by_name(new, name));
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let pair = |key: &(&str, usize)| Pair {
        name: match key {
            (name, 1) => quote(name),
            (name, nth) => quote(&format!("{name} #{nth}")),
        },
        old: old.get(key).copied(),
        new: new.get(key).copied(),
    };
    keys.into_iter().map(pair).collect()
}

/// The two maps by key, in the order of keys.
pub(super) fn map_pairs<'a, T>(
    (old, new): (&'a BTreeMap<String, T>, &'a BTreeMap<String, T>),
) -> Vec<Pair<'a, T>> {
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let pair = |key: &String| Pair { name: quote(key), old: old.get(key), new: new.get(key) };
    keys.into_iter().map(pair).collect()
}

fn by_name<T>(items: &[T], name: fn(&T) -> &str) -> BTreeMap<(&str, usize), &T> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut named = BTreeMap::new();
    for item in items {
        let nth = seen.entry(name(item)).or_default();
        *nth += 1;
        named.insert((name(item), *nth), item);
    }
    named
}

/// Whether every item of the list is an object with a `name` of its own.
fn all_named(items: &[Value]) -> bool {
    let mut names = BTreeSet::new();
    let name = |item: &Value| item.get("name").and_then(Value::as_str).map(str::to_owned);
    items.iter().all(|item| name(item).is_some_and(|name| names.insert(name)))
}

fn name_of(item: &Value) -> &str {
    item.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn union<'a>(old: &'a Map<String, Value>, new: &'a Map<String, Value>) -> BTreeSet<&'a String> {
    old.keys().chain(new.keys()).collect()
}

fn json_text(value: &Value) -> String {
    canonical::canonical_json(value).unwrap_or_else(|_| value.to_string())
}
