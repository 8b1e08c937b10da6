//! Every data set that a test prepares is verified from its bytes and audited against its own
//! blocklist: what a run leaves behind must hold, whatever the test looks at.

use std::path::Path;

use potable::audit::{Audit, decoder_for};
use potable::recipe::Recipe;
use potable::recipe::supply::Supply;
use potable::run::prep::blocklist;
use potable::verify::open::{Opened, open};
use potable::verify::progress::ByteProgress;
use potable::verify::verify;

/// Verifies `out`, and audits each phase that has a blocklist.
pub fn prove(out: &Path, recipe: &Path) {
    let progress = ByteProgress::default();
    let checked = verify(out, &progress).unwrap();
    let problems: Vec<String> =
        checked.iter().flat_map(|one| &one.problems).map(ToString::to_string).collect();
    assert!(problems.is_empty(), "not verified:\n{}", problems.join("\n"));
    // A test may have changed the recipe since: then there is nothing to audit against.
    let Ok(recipe) = Recipe::load(&recipe.to_string_lossy()) else { return };
    let folders = match open(out).unwrap() {
        Opened::DataSet(manifest) => vec![(out.to_path_buf(), *manifest)],
        Opened::Phases(index, manifests) => {
            index.phases.iter().map(|entry| out.join(&entry.phase)).zip(manifests).collect()
        }
    };
    for (dir, manifest) in folders {
        let Some(phase) = recipe.phases.iter().find(|phase| phase.name == manifest.phase) else { continue };
        let Ok(Some(blocklist)) = blocklist(phase, &recipe.base, &Supply::default()) else { continue };
        if manifest.decontamination.blocklist_digest.as_ref().map(|d| d.as_str()) != Some(&blocklist.digest())
        {
            continue;
        }
        let decoder = decoder_for(&dir, &manifest, None).unwrap();
        let strict = manifest.decontamination.strict;
        let audit =
            Audit { dir: &dir, manifest: &manifest, decoder: &decoder, blocklists: &[blocklist], strict };
        let mut found = Vec::new();
        let counts = audit.run(&progress, &mut |verdict| found.push(verdict)).unwrap();
        let drops: Vec<_> = found.iter().filter(|verdict| verdict.drops).collect();
        assert!(drops.is_empty(), "benchmark items in the shards: {drops:?}");
        let samples: u64 = manifest.tokens.per_source.values().map(|source| source.samples).sum();
        assert_eq!(counts.read.samples, samples, "samples audited");
        assert_eq!(counts.read.differing, Vec::<String>::new());
    }
}
