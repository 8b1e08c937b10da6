//! From what the user wrote to what runs: `RecipeFile` → `Recipe`.

pub mod card;
mod dedup;
pub mod error;
pub mod file;
pub mod join;
pub mod lock;
pub mod models;
pub mod pins;
mod policy;
pub mod resolve;
pub mod sources;
pub mod supply;
pub mod traps;

pub use card::Card;
pub use error::RecipeError;
pub use file::RecipeFile;
pub use pins::Want;
pub use resolve::{Recipe, ResolvedPhase, ResolvedSource};
pub use supply::Supply;

/// The built-in recipes by name.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("demo", include_str!("../recipes/demo.toml")),
    ("think-sft-240k", include_str!("../recipes/think-sft-240k.toml")),
    ("think-sft-mix", include_str!("../recipes/think-sft-mix.toml")),
    ("recovery-text-qwen3.5", include_str!("../recipes/recovery-text-qwen3.5.toml")),
    ("bridge-long", include_str!("../recipes/bridge-long.toml")),
    ("adapt-then-sft", include_str!("../recipes/adapt-then-sft.toml")),
];

/// Files of the built-in demo, by the name that its recipe gives them after `embedded:`.
pub const EMBEDDED: &[(&str, &[u8])] = &[
    ("demo/chat.jsonl", include_bytes!("../recipes/demo/chat.jsonl")),
    ("demo/reasoning.jsonl", include_bytes!("../recipes/demo/reasoning.jsonl")),
    ("demo/stratos.json", include_bytes!("../recipes/demo/stratos.json")),
    ("demo/generations.jsonl", include_bytes!("../recipes/demo/generations.jsonl")),
    ("demo/code.csv", include_bytes!("../recipes/demo/code.csv")),
    ("demo/text.jsonl", include_bytes!("../recipes/demo/text.jsonl")),
    ("demo/benchmark.toml", include_bytes!("../recipes/demo/benchmark.toml")),
    ("demo/benchmark.jsonl", include_bytes!("../recipes/demo/benchmark.jsonl")),
    (
        "think-sft-mix/opencodereasoning-heldout.toml",
        include_bytes!("../recipes/think-sft-mix/opencodereasoning-heldout.toml"),
    ),
];

/// The bytes of an embedded file.
pub fn embedded(name: &str) -> Option<&'static [u8]> {
    EMBEDDED.iter().find(|(key, _)| *key == name).map(|(_, bytes)| *bytes)
}
