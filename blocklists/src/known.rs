//! The known benchmarks: one definition a benchmark, and suites of them (`benchmarks/`).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::benchmark::{BenchmarkDefinition, DefinitionError};

include!(concat!(env!("OUT_DIR"), "/definitions.rs"));

const SUITES: &str = include_str!("../benchmarks/suites.toml");

/// Benchmarks that are used together.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// What for, in a line.
    pub about: String,
    /// Names of the definitions, in the order in which they are read.
    pub benchmarks: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SuitesFile {
    suite: BTreeMap<String, Suite>,
}

/// The definition of this name.
///
/// # Errors
/// A definition of this crate that does not parse (its tests parse all of them).
pub fn definition(name: &str) -> Result<Option<BenchmarkDefinition>, DefinitionError> {
    match FILES.iter().find(|(key, _)| *key == name) {
        Some((key, text)) => BenchmarkDefinition::parse(text, &format!("{key}.toml")).map(Some),
        None => Ok(None),
    }
}

/// All definitions, by name.
///
/// # Errors
/// As [`definition`].
pub fn definitions() -> Result<Vec<BenchmarkDefinition>, DefinitionError> {
    FILES.iter().map(|(name, text)| BenchmarkDefinition::parse(text, &format!("{name}.toml"))).collect()
}

/// The suites, by name.
///
/// # Errors
/// A file of this crate that does not parse.
pub fn suites() -> Result<BTreeMap<String, Suite>, DefinitionError> {
    toml::from_str::<SuitesFile>(SUITES).map(|file| file.suite).map_err(|source| DefinitionError::Syntax {
        file: "suites.toml".to_owned(),
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_parses_and_is_named_after_its_file() {
        for ((name, _), definition) in FILES.iter().zip(definitions().expect("they parse")) {
            assert_eq!(*name, definition.name);
        }
    }

    #[test]
    fn suites_name_known_benchmarks_and_all_names_every_one() {
        let suites = suites().expect("it parses");
        for (name, suite) in &suites {
            for member in &suite.benchmarks {
                assert!(definition(member).expect("it parses").is_some(), "{name}: {member}");
            }
        }
        let mut all = suites["all"].benchmarks.clone();
        all.sort();
        let known: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(all, known);
    }
}
