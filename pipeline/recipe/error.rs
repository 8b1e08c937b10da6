//! What can be wrong with a recipe.

use std::path::PathBuf;

use crate::source::SourceError;
use crate::source::adapt::MappingError;

/// An error of a recipe.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// Neither a file nor the name of a built-in recipe.
    #[error("there is no recipe `{name}`: neither a file nor a built-in one")]
    NotFound {
        /// As given.
        name: String,
        /// The built-in ones.
        built_in: String,
    },
    /// A file that cannot be read.
    #[error("cannot read recipe `{path}`", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A file that is no recipe: unknown key, wrong type, broken TOML.
    #[error("{path}: {reason}")]
    Parse {
        /// The file.
        path: String,
        /// Line, caret and what was expected.
        reason: String,
    },
    /// A value that cannot be used.
    #[error("{place}: {problem}")]
    Value {
        /// Section and key.
        place: String,
        /// What is wrong.
        problem: String,
        /// The way out.
        way_out: Option<String>,
    },
    /// A corpus that is not known.
    #[error("source `{source_name}`: there is no corpus `{corpus}`")]
    UnknownCorpus {
        /// The source.
        source_name: String,
        /// As given.
        corpus: String,
        /// What is close, if anything.
        close: Option<String>,
    },
    /// A mapping that cannot be used.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// Files that cannot be found or read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl RecipeError {
    /// A value that cannot be used.
    pub fn value(place: impl Into<String>, problem: impl Into<String>) -> Self {
        RecipeError::Value { place: place.into(), problem: problem.into(), way_out: None }
    }

    /// A value that cannot be used, and the way out.
    pub fn value_hint(
        place: impl Into<String>,
        problem: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        RecipeError::Value { place: place.into(), problem: problem.into(), way_out: Some(way_out.into()) }
    }

    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            RecipeError::NotFound { built_in, .. } => Some(format!("built-in recipes: {built_in}")),
            RecipeError::Value { way_out, .. } => way_out.clone(),
            RecipeError::UnknownCorpus { close, .. } => Some(match close {
                Some(close) => format!("did you mean `{close}`? `potable corpora list` shows all"),
                None => "`potable corpora list` shows the known ones; other data needs `path`".to_owned(),
            }),
            RecipeError::Mapping(MappingError::Undetected { .. }) => {
                Some("say under `[source.mapping]` what a row is: `shape = \"messages\"`, `\"columns\"` or `\"text\"`".to_owned())
            }
            RecipeError::Mapping(_) => Some("see docs/recipes.md for the keys of each shape".to_owned()),
            RecipeError::Source(error) => error.hint(),
            RecipeError::Parse { .. } => {
                Some("docs/recipes.md has every key; `potable recipes schema` prints the JSON Schema".to_owned())
            }
            RecipeError::Read { .. } => None,
        }
    }
}
