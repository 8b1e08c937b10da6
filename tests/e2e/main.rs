//! End-to-end tests: the real binary on real files, and the stages on worked cases.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

/// The shards checked against blocklists again: own ones and later ones, on every format.
mod audit;
/// Input, recipes and output folders that cannot be used: exit status 2, place, cause and way out.
mod bad_input;
/// Blocklists: built, looked at, checked against rows.
mod blocklists;
mod blocklists_fixtures;
/// Rows in the schema of a card. No tests.
mod card_rows;
/// Pinned text of the command line: the cases in tests/cmd.
mod cmd;
/// Generated conversations and strings.
#[path = "../fuzz/conversations.rs"]
mod conversations;
/// Cards of known corpora, and their traps.
mod corpora;
/// The built-in demo and the commands around it.
mod demo;
/// Same recipe, same bytes: whatever the threads, the cut, the order of units, a kill on the way.
mod determinism;
/// Disks that fill up.
mod disk;
/// Rows that are left out on purpose: counted by reason, and listed.
mod dropped_rows;
/// Exports of manifests, and the one-screen view.
mod export;
/// File formats and compressions: the same rows give the same tokens.
mod formats;
/// Rendering, ids and masks against worked cases.
mod golden;
/// Temp folders, recipes, the binary, and data sets read back. No tests.
mod harness;
/// Runs that stand still at a place of a test's choice. No tests.
mod held;
/// The Hub client against a stub: what it asks for, what it accepts, what it leaves in the cache.
mod hub;
/// Answers of a Hub that cannot be used, and other trouble on the way.
mod hub_bad_input;
/// A Hub in the process of the tests. No tests.
mod hub_prep;
mod hub_stub;
/// Rows whose text stands in another corpus.
mod joins;
/// The launcher for Slurm, with a stand-in of it.
mod launchers;
/// Which part of a text is trained on, worked out from the text.
mod loss_mask;
/// What of a row's conversation is printed, checked, or counted as lost.
mod lost_text;
/// What changed between two runs, and how much it matters.
mod manifest_diff;
/// Mixtures: shares met to the row, rows taken again, more asked for than there is.
mod mixtures;
/// Near duplicates: which rows go, which stays, and what is said of it.
mod near;
/// Sources and blocklists in object stores.
#[cfg(feature = "object-store")]
mod objects;
/// What a data set promises: balanced ledgers, no token lost, packs, length classes, held-out rows.
mod packing;
/// Real Parquet files of many writers.
mod parquet_corpus;
/// Several phases in one recipe.
mod phases;
/// Every data set that a test prepares is verified and audited. No tests.
mod prove;
/// The built-in recipes for known systems, against a Hub that holds small repositories of the real layout.
mod recipes;
/// Native formats against the models' own templates; laws of ids and masks.
mod rendering;
/// The report for a browser.
mod report;
/// What a second run in the same folder re-uses, replaces or refuses.
mod reruns;
/// An object store in the process of the tests. No tests.
#[cfg(feature = "object-store")]
mod s3_stub;
/// Caps, weights, subsets of files, duplicates.
mod sampling;
/// Shapes of rows, and `where`.
mod shapes;
/// Every shard format, written and read back.
mod shards;
/// `potable show`.
mod show;
/// The steps of a run one by one, on shared folders.
mod steps;
/// Folders and buckets as stores: promises, faults, what a wrong setting is told.
#[cfg(feature = "object-store")]
mod store;
/// The models' own templates.
#[path = "../fuzz/templates.rs"]
mod templates;
/// Chat templates, tokenizers and options of rendering, by the binary.
mod tokens;
/// Folders that are not what their manifest says.
mod verify;
