//! Whether one blocklist is another one with more benchmarks.

use crate::format::{Background, BlocklistError};
use crate::index::Blocklist;

impl Blocklist {
    /// Fails unless this blocklist was built as `old` was (n, normaliser, sample of clean text), and
    /// holds its benchmarks as they were: definition, revision and files.
    ///
    /// # Errors
    /// [`BlocklistError::Changed`] for the first difference, with what it was and what it is.
    pub fn check_extends(&self, old: &Self) -> Result<(), BlocklistError> {
        let (new, was) = (self.header(), old.header());
        let changed = |what: String, built: String, now: String| match built == now {
            true => Ok(()),
            false => Err(BlocklistError::Changed { blocklist: old.name().to_owned(), what, built, now }),
        };
        changed("n".to_owned(), was.ngram.to_string(), new.ngram.to_string())?;
        changed("normaliser".to_owned(), was.normaliser.clone(), new.normaliser.clone())?;
        let sample = |background: &Option<Background>| {
            background
                .as_ref()
                .map_or("none".to_owned(), |b| format!("{} texts, least {}, {}", b.rows, b.least, b.digest))
        };
        changed("background".to_owned(), sample(&was.background), sample(&new.background))?;
        for entry in &was.benchmarks {
            let (name, meta) = (&entry.meta.name, &entry.meta);
            let Some(other) = new.benchmarks.iter().find(|other| other.meta.name == *name) else {
                let what = format!("benchmark `{name}`");
                return changed(what, "there".to_owned(), "not there".to_owned());
            };
            let facts = meta.facts().into_iter().zip(other.meta.facts());
            for ((what, built), (_, now)) in facts {
                changed(format!("{what} of benchmark `{name}`"), built, now)?;
            }
        }
        Ok(())
    }
}
