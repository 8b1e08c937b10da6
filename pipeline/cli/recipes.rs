//! `potable recipes`.

use anyhow::Result;

use super::Answer;
use super::args::{RecipesArgs, RecipesCommand};
use super::output::Output;
use crate::recipe::{BUILT_IN, RecipeError, RecipeFile};

/// Lists or prints recipes.
///
/// # Errors
/// A recipe that is not known.
pub fn run(args: RecipesArgs, output: &Output) -> Result<Answer> {
    match args.command {
        RecipesCommand::List => output.data(&list())?,
        RecipesCommand::Show { name } => {
            let found = BUILT_IN.iter().find(|(key, _)| *key == name);
            let (_, text) = found.ok_or_else(|| RecipeError::NotFound {
                name,
                built_in: BUILT_IN.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(", "),
            })?;
            output.data(text)?;
        }
        RecipesCommand::Schema => output.data(&schema()?)?,
    }
    Ok(Answer::Yes)
}

/// The JSON Schema of recipe files.
///
/// # Errors
/// None in practice; the serialiser's words.
pub fn schema() -> Result<String> {
    let schema = schemars::schema_for!(RecipeFile);
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// Names of the built-in recipes with the first comment line of each.
pub fn list() -> String {
    BUILT_IN
        .iter()
        .map(|(name, text)| {
            let about = text.lines().next().unwrap_or_default().trim_start_matches("# ");
            format!("{name:<22} {about}\n")
        })
        .collect()
}
