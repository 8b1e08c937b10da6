//! What a benchmark is: its definition file, its items, and what a blocklist records of it.

use std::fmt;

use potable_manifests::Digest;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// One definition file, `blocklists/benchmarks/*.toml` or a user's own. Unknown keys are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchmarkDefinition {
    /// Name by which recipes and reports call it: lower-case letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Title for people.
    #[serde(default)]
    pub title: Option<String>,
    /// Repository on the Hub, `owner/name`.
    #[serde(default)]
    pub repo: Option<String>,
    /// Commit or tag of `repo`.
    #[serde(default)]
    pub revision: Option<String>,
    /// Configuration (subset) of `repo`.
    #[serde(default)]
    pub config: Option<String>,
    /// Split of `repo`, as a rule `test`.
    #[serde(default)]
    pub split: Option<String>,
    /// Files: relative to the definition file, or to the root of `repo` if there is one.
    #[serde(default, deserialize_with = "one_or_more")]
    pub files: Vec<String>,
    /// Format of the files, if their names do not tell.
    #[serde(default)]
    pub format: Option<String>,
    /// SQL predicate over the columns: only rows where it is true are items. For rows of a corpus that are
    /// held out from training.
    #[serde(default, rename = "where")]
    pub where_: Option<String>,
    /// Whether rows with the same prompt and options are one item.
    #[serde(default)]
    pub distinct: bool,
    /// Column with the id of an item; without one, items are numbered.
    #[serde(default)]
    pub id: Option<String>,
    /// Columns that make the stem, in order; a string or a list.
    #[serde(deserialize_with = "one_or_more")]
    pub prompt: Vec<String>,
    /// Columns with the options of a multiple-choice item; a string (a column that holds a list)
    /// or a list of columns.
    #[serde(default, deserialize_with = "one_or_more")]
    pub options: Vec<String>,
    /// Cues of the harness that are cut from the end of a prompt, such as `Answer:`.
    #[serde(default, deserialize_with = "one_or_more")]
    pub strip: Vec<String>,
    /// Strings that the authors put into the test set to mark it; a row that holds one is dropped.
    #[serde(default, deserialize_with = "one_or_more")]
    pub canaries: Vec<String>,
    /// Column with a canary string of each item, beside those of `canaries`; see
    /// [`canary_of`](crate::canary_of) for what is looked for.
    #[serde(default)]
    pub canary_column: Option<String>,
    /// Licence of the test set.
    #[serde(default)]
    pub licence: Option<String>,
    /// Whether the Hub asks for an agreement first.
    #[serde(default)]
    pub gated: bool,
    /// Whether its text may never be written anywhere, excerpts included.
    #[serde(default)]
    pub sensitive: bool,
}

impl BenchmarkDefinition {
    /// Reads a definition from the TOML `text` of `file`, a name for messages.
    ///
    /// # Errors
    /// [`DefinitionError`] for text that is not TOML, an unknown or missing key, a value of a wrong
    /// type, a name with other characters than it may have, no prompt column, or no place to read
    /// items from.
    pub fn parse(text: &str, file: &str) -> Result<Self, DefinitionError> {
        let file = file.to_owned();
        let read: Self = match toml::from_str(text) {
            Ok(read) => read,
            Err(source) => {
                return Err(DefinitionError::Syntax { file, source: Box::new(source) });
            }
        };
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
        if read.name.is_empty() || !read.name.chars().all(fits) {
            return Err(DefinitionError::Name { file, name: read.name });
        }
        if read.prompt.iter().all(String::is_empty) {
            return Err(DefinitionError::NoPrompt { file });
        }
        if read.files.is_empty() && read.repo.is_none() {
            return Err(DefinitionError::NoPlace { file });
        }
        Ok(read)
    }

    /// `sha256:` and 64 hex digits, of what the definition says, as JSON with its keys in the order of this
    /// type. Spelling, order and comments of the file do not count, nor does the title.
    pub fn digest(&self) -> String {
        let untitled = Self { title: None, ..self.clone() };
        // strings, lists of them and truth values can always be written
        Digest::of(&serde_json::to_vec(&untitled).unwrap_or_default()).as_str().to_owned()
    }

    /// `prompt` without the cues of [`strip`](Self::strip) and white space at its end, however
    /// often they follow one another.
    pub fn without_cues<'a>(&self, prompt: &'a str) -> &'a str {
        let mut rest = prompt.trim_end();
        loop {
            let cues = self.strip.iter().map(|cue| cue.trim()).filter(|cue| !cue.is_empty());
            match cues.filter_map(|cue| rest.strip_suffix(cue)).min_by_key(|cut| cut.len()) {
                Some(cut) => rest = cut.trim_end(),
                None => return rest,
            }
        }
    }
}

/// What is wrong with a definition file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The text is not TOML of the right shape.
    #[error("{file}: is no benchmark definition")]
    Syntax {
        /// The file, as the caller named it.
        file: String,
        /// Line, column and cause.
        source: Box<toml::de::Error>,
    },
    /// The name cannot stand in reports and file names.
    #[error("{file}: `name` may hold a-z, 0-9, `-`, `_` and `.`, not `{name}`")]
    Name {
        /// The file, as the caller named it.
        file: String,
        /// The name found.
        name: String,
    },
    /// `prompt` names no column.
    #[error("{file}: `prompt` names no column")]
    NoPrompt {
        /// The file, as the caller named it.
        file: String,
    },
    /// Neither `repo` nor `files` is set.
    #[error("{file}: has neither `repo` nor `files`, so there is nothing to read items from")]
    NoPlace {
        /// The file, as the caller named it.
        file: String,
    },
}

/// One question of a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Id in the benchmark, for reports; no text of the item.
    pub id: String,
    /// The question as text.
    pub stem: String,
    /// The options of a multiple-choice question, without their letters; else empty.
    pub options: Vec<String>,
}

/// A file that items were read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Path in the repository, or relative to the definition file.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content, 64 hex digits.
    pub sha256: String,
}

/// What a blocklist records of a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchmarkMeta {
    /// Name, as in the definition.
    pub name: String,
    /// Repository on the Hub.
    pub repo: Option<String>,
    /// Commit that was read.
    pub revision: Option<String>,
    /// Configuration that was read.
    pub config: Option<String>,
    /// Split that was read.
    pub split: Option<String>,
    /// Licence of the test set.
    pub licence: Option<String>,
    /// Which rows of the files are items, if not all.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub where_: Option<String>,
    /// Whether its text may never be written anywhere.
    pub sensitive: bool,
    /// Files that were read.
    pub files: Vec<SourceFile>,
    /// Canary strings that drop a row; of a sensitive benchmark a blocklist names those without a GUID by
    /// their SHA-256, since a column of canaries may hold text of an item.
    pub canaries: Vec<String>,
    /// [`BenchmarkDefinition::digest`] of the definition that items were read by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
}

impl BenchmarkMeta {
    /// What must be the same for the items to be the same, and what a row is dropped for beside them, by
    /// name.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        let files = self.files.iter().map(|file| format!("{} {}", file.name, file.sha256));
        vec![
            ("definition", or_none(&self.definition)),
            ("repository", or_none(&self.repo)),
            ("revision", or_none(&self.revision)),
            ("files", files.collect::<Vec<_>>().join(", ")),
            ("canaries", self.canaries.join(", ")),
            ("mark", if self.sensitive { "sensitive" } else { "not sensitive" }.to_owned()),
        ]
    }
}

/// Reads `"a"` as `["a"]`; a visitor, so that a wrong type gives an error that says what is wanted.
fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_any(OneOrMore)
}

struct OneOrMore;

impl<'de> Visitor<'de> for OneOrMore {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of strings")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(vec![value.to_owned()])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = seq.next_element()? {
            all.push(one);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(text: &str) -> String {
        let error = BenchmarkDefinition::parse(text, "x.toml").expect_err("refused");
        match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        }
    }

    #[test]
    fn reads_a_string_or_a_list() {
        let text = "name = 'a'\nrepo = 'o/a'\nprompt = 'question'\noptions = ['A', 'B']\n";
        let read = BenchmarkDefinition::parse(text, "a.toml").expect("read");
        assert_eq!(read.prompt, ["question"]);
        assert_eq!(read.options, ["A", "B"]);
        assert!(!read.sensitive && read.strip.is_empty());
    }

    #[test]
    fn refuses_unknown_and_missing_keys() {
        assert!(fails("name = 'a'\nprompt = 'q'\nfile = 'x'").contains("unknown field `file`"));
        assert!(fails("name = 'a'\nfiles = 'x'").contains("missing field `prompt`"));
        assert!(fails("name = 'a'\nprompt = 3\nfiles = 'x'").contains("a string or a list"));
    }

    #[test]
    fn refuses_a_name_that_is_none() {
        assert!(fails("name = 'A b'\nprompt = 'q'\nfiles = 'x'").contains("not `A b`"));
        assert!(fails("name = ''\nprompt = 'q'\nfiles = 'x'").contains("not ``"));
    }

    #[test]
    fn refuses_no_prompt_and_no_place() {
        assert_eq!(fails("name = 'a'\nprompt = []\nfiles = 'x'"), "x.toml: `prompt` names no column");
        assert!(fails("name = 'a'\nprompt = ''\nfiles = 'x'").contains("no column"));
        assert!(fails("name = 'a'\nprompt = 'q'").contains("neither `repo` nor `files`"));
        assert!(fails("name = 'a'\nprompt = 'q'\nfiles = []").contains("neither"));
    }

    #[test]
    fn cuts_cues_from_the_end() {
        let definition =
            BenchmarkDefinition { strip: vec!["Answer:".into(), "A:".into()], ..Default::default() };
        assert_eq!(definition.without_cues("Q: 1+1?\nAnswer: \nAnswer:"), "Q: 1+1?");
        assert_eq!(definition.without_cues("Answer: 3"), "Answer: 3");
    }
}
