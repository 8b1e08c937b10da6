use potable_manifests::Weight::{self, Blocking, Informational, Material};
use potable_manifests::{
    DecontaminationMode, Digest, Finding, Index, IndexedPhase, JoinedInput, Manifest, ManifestDiff, Phases,
    Policy, Thresholds, Verified, VersionStep, diff, diff_phases, diff_with,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::generate::{manifest, sealed, v1};

/// The diff from the committed manifest to a changed one.
fn changed(change: impl FnOnce(&mut Manifest)) -> ManifestDiff {
    let mut new = v1();
    change(&mut new);
    diff(&v1(), &sealed(new))
}

/// The weights of `change` and of the change back, by `what`.
fn weights(what: &str, change: impl FnOnce(&mut Manifest)) -> (Weight, Weight) {
    let mut new = v1();
    change(&mut new);
    let new = sealed(new);
    let weight = |diff: &ManifestDiff| {
        let mut found = diff.findings.iter().filter(|finding| finding.what == what);
        let finding = found.next().unwrap_or_else(|| panic!("no `{what}` in {}", diff.to_text()));
        finding.weight
    };
    (weight(&diff(&v1(), &new)), weight(&diff(&new, &v1())))
}

fn swapped(diff: &ManifestDiff) -> Vec<Finding> {
    let swap = |finding: &Finding| {
        let (old, new) = (finding.new.clone(), finding.old.clone());
        Finding { weight: Informational, old, new, ..finding.clone() }
    };
    diff.findings.iter().map(swap).collect()
}

fn weightless(diff: &ManifestDiff) -> Vec<Finding> {
    let plain = |finding: &Finding| Finding { weight: Informational, ..finding.clone() };
    diff.findings.iter().map(plain).collect()
}

#[test]
fn weaker_guarantees_block() {
    let one_way = (Blocking, Material);
    let left = weights("benchmark `gsm8k`", |m| drop(m.decontamination.benchmarks.remove(0)));
    assert_eq!(left, one_way);
    let grew = weights("words in a gram", |m| m.decontamination.ngram = 14);
    assert_eq!(grew, one_way);
    let strict = weights("strict", |m| m.decontamination.strict = true);
    assert_eq!(strict, (Material, Blocking));
    let none = weights("mode", |m| m.decontamination.mode = DecontaminationMode::None);
    assert_eq!(none, one_way);
    let eval = weights("evaluation split of source `tulu`", |m| m.inputs[0].eval_split = true);
    assert_eq!(eval, one_way);
    let unpinned = weights("revision of source `tulu`", |m| m.inputs[0].revision = None);
    assert_eq!(unpinned, one_way);
    let benchmark = "revision of benchmark `gsm8k`";
    let unpinned = weights(benchmark, |m| m.decontamination.benchmarks[0].revision = None);
    assert_eq!(unpinned, one_way);
    let exposed = weights("sensitivity of benchmark `gpqa`", |m| {
        m.decontamination.benchmarks[1].sensitive = false;
    });
    assert_eq!(exposed, one_way);
    let emptied = weights("items protected by n-grams of benchmark `gsm8k`", |m| {
        let benchmark = &mut m.decontamination.benchmarks[0];
        (benchmark.protected_ngram, benchmark.protected_short) = (0, 0);
    });
    assert_eq!(emptied, one_way);
}

#[test]
fn looser_control_text_blocks() {
    let policy = |to: Option<&str>| {
        weights("policy `control_text`", |m| match to {
            Some(to) => drop(m.normalise.insert("control_text".to_owned(), to.to_owned())),
            None => drop(m.normalise.remove("control_text")),
        })
    };
    for looser in [Some("text"), Some("keep"), Some("new"), None] {
        assert_eq!(policy(looser), (Blocking, Material));
    }
    let history = weights("policy `history`", |m| drop(m.normalise.remove("history")));
    assert_eq!(history, (Material, Material));
}

#[test]
fn another_tokeniser_template_or_licence_blocks_both_ways() {
    let both = (Blocking, Blocking);
    let vocabulary = |m: &mut Manifest| m.tokeniser.vocabulary_digest = Digest::of(b"x");
    assert_eq!(weights("vocabulary digest", vocabulary), both);
    let template = |m: &mut Manifest| m.tokeniser.template_digest = Digest::of(b"x");
    assert_eq!(weights("template digest", template), both);
    let licence = |m: &mut Manifest| m.inputs[0].licence = Some("cc-by-nc-4.0".to_owned());
    assert_eq!(weights("licence of source `tulu`", licence), both);
}

#[test]
fn a_new_source_blocks_if_it_is_an_evaluation_split_or_unpinned() {
    let add = |change: fn(&mut potable_manifests::InputSource)| {
        weights("source `more`", |m| {
            let mut source = m.inputs[0].clone();
            source.name = "more".to_owned();
            change(&mut source);
            m.inputs.push(source);
        })
    };
    assert_eq!(add(|_| {}), (Material, Material));
    assert_eq!(add(|source| source.eval_split = true), (Blocking, Material));
    assert_eq!(add(|source| source.revision = None), (Blocking, Material));
}

#[test]
fn a_revision_that_became_a_local_file_blocks() {
    let copy = |m: &mut Manifest| (m.inputs[0].revision, m.inputs[0].local) = (None, true);
    assert_eq!(weights("revision of source `tulu`", copy), (Blocking, Material));
    let own = |m: &mut Manifest| {
        (m.inputs[0].revision, m.inputs[0].local, m.inputs[0].corpus) = (None, true, None);
    };
    assert_eq!(weights("revision of source `tulu`", own), (Blocking, Material));
}

#[test]
fn a_branch_is_no_pin() {
    let branch = |m: &mut Manifest| m.inputs[0].revision = Some("main".to_owned());
    assert_eq!(weights("revision of source `tulu`", branch), (Blocking, Material));
    let branch = |m: &mut Manifest| m.decontamination.benchmarks[0].revision = Some("main".to_owned());
    assert_eq!(weights("revision of benchmark `gsm8k`", branch), (Blocking, Material));
}

#[test]
fn a_split_that_is_not_for_training_blocks() {
    for split in ["test", "validation", "dev", "test_sft", "Validation-2", "eval.v1"] {
        let to = |m: &mut Manifest| m.inputs[0].split = Some(split.to_owned());
        assert_eq!(weights("split of source `tulu`", to), (Blocking, Material), "{split}");
    }
    let to = |m: &mut Manifest| m.inputs[0].split = Some("train_sft".to_owned());
    assert_eq!(weights("split of source `tulu`", to), (Material, Material));
}

#[test]
fn a_new_source_that_is_not_for_commercial_use_blocks() {
    for licence in ["cc-by-nc-4.0", "CC BY-NC-SA 3.0", "other, non-commercial", "research-only"] {
        let add = |m: &mut Manifest| {
            let mut source = m.inputs[0].clone();
            (source.name, source.licence) = ("more".to_owned(), Some(licence.to_owned()));
            m.inputs.push(source);
        };
        assert_eq!(weights("source `more`", add), (Blocking, Material), "{licence}");
    }
}

#[test]
fn fewer_protected_items_block() {
    let fewer = |m: &mut Manifest| m.decontamination.benchmarks[0].protected_ngram -= 1;
    let what = "items protected by n-grams of benchmark `gsm8k`";
    assert_eq!(weights(what, fewer), (Blocking, Material));
}

#[test]
fn counts_within_the_thresholds_are_informational() {
    let rows = |read: u64| {
        let mut old = v1();
        old.rows.get_mut("tulu").expect("a source").read = 1000;
        let mut new = old.clone();
        new.rows.get_mut("tulu").expect("a source").read = read;
        let diff = diff(&sealed(old), &sealed(new));
        let found = diff.findings.into_iter().find(|f| f.what == "rows read of source `tulu`");
        found.expect("a finding").weight
    };
    assert_eq!(
        [rows(1005), rows(1011), rows(990), rows(980)],
        [Informational, Material, Informational, Material]
    );
    let policy = Policy::from_toml("[thresholds]\nrows = 0.5\n").expect("a policy");
    let mut new = v1();
    new.rows.get_mut("tulu").expect("a source").read += 2;
    let wide = diff_with(&v1(), &sealed(new), &policy.thresholds);
    let weight = |what: &str| wide.findings.iter().find(|f| f.what == what).map(|f| f.weight);
    assert_eq!(weight("rows read of source `tulu`"), Some(Informational));
}

#[test]
fn a_policy_allows_changes_with_a_reason() {
    let policy = Policy::from_toml(
        "[[allow]]\nwhat = \"licence of source *\"\narea = \"inputs\"\nnew = \"mit\"\nreason = \"asked the authors\"\n",
    )
    .expect("a policy");
    let with = |licence: &str| {
        let mut diff = changed(|m| m.inputs[0].licence = Some(licence.to_owned()));
        diff.allow(&policy);
        diff
    };
    let allowed = with("mit");
    assert_eq!((allowed.max_weight(), allowed.counts().allowed), (None, 1));
    assert!(allowed.to_text().contains("\n1 allowed\n"), "{}", allowed.to_text());
    assert!(
        allowed.to_text().contains("odc-by -> mit (blocking; asked the authors)"),
        "{}",
        allowed.to_text()
    );
    assert!(allowed.to_markdown().contains("| blocking, allowed | inputs |"), "{}", allowed.to_markdown());
    assert!(allowed.to_json().expect("no floats").contains("\"allowed\": \"asked the authors\""));
    assert_eq!(with("cc-by-nc-4.0").max_weight(), Some(Blocking));
}

#[test]
fn a_policy_with_faults_is_refused() {
    let message = |text: &str| Policy::from_toml(text).expect_err("refused").to_string();
    assert!(message("[treshold]\n").contains("unknown field `treshold`, expected `thresholds` or `allow`"));
    assert!(message("[thresholds]\nrow = 0.1\n").contains("unknown field `row`"));
    assert!(message("[[allow]]\nwhat = \"x\"\n").contains("missing field `reason`"));
    assert_eq!(message("[thresholds]\nrows = 5\n"), "threshold `rows` is `5`, not a share from 0 to 1");
    let blank = "[[allow]]\nwhat = \"x\"\nreason = \" \"\n";
    assert_eq!(message(blank), "`[[allow]]` of `x` gives no reason");
}

#[test]
fn versions_step_as_far_as_the_data_does() {
    let step = |change: fn(&mut Manifest)| changed(change).step;
    assert_eq!(diff(&v1(), &v1()).step, VersionStep::None);
    assert_eq!(step(|m| m.run.potable_version = "9".to_owned()), VersionStep::Patch);
    assert_eq!(step(|m| m.shards.reverse()), VersionStep::Patch);
    assert_eq!(step(|m| m.inputs[0].licence = None), VersionStep::Patch);
    let more = |m: &mut Manifest| {
        let mut shard = m.shards[0].clone();
        shard.content_digest = Digest::of(b"x");
        m.shards.push(shard);
    };
    assert_eq!(step(more), VersionStep::Minor);
    assert_eq!(step(|m| drop(m.shards.pop())), VersionStep::Major);
    assert_eq!(step(|m| m.shards[0].content_digest = Digest::of(b"x")), VersionStep::Major);
}

fn phase(name: &str, change: impl FnOnce(&mut Manifest)) -> Manifest {
    let mut manifest = v1();
    manifest.phase = Some(name.to_owned());
    change(&mut manifest);
    sealed(manifest)
}

fn index(manifests: &[Manifest]) -> Index {
    let phases = manifests.iter().map(|m| IndexedPhase {
        phase: m.phase.clone().expect("a phase"),
        manifest_digest: m.manifest_digest.clone(),
    });
    Index::new("x", phases.collect())
}

fn between(old: &[Manifest], new: &[Manifest]) -> ManifestDiff {
    let (a, b) = (index(old), index(new));
    let (old, new) = (Phases { index: &a, manifests: old }, Phases { index: &b, manifests: new });
    diff_phases(old, new, &Thresholds::default()).expect("no floats")
}

#[test]
fn phases_are_compared_by_name() {
    let (a, b) = (phase("a", |_| {}), phase("b", |_| {}));
    let both = [a.clone(), b.clone()];
    assert!(between(&both, &both).is_empty());
    let other = phase("b", |m| m.decontamination.ngram = 20);
    let diff = between(&both, &[a.clone(), other.clone()]);
    assert_eq!(diff.max_weight(), Some(Blocking));
    assert!(diff.findings.iter().all(|finding| finding.phase.as_deref() == Some("b")), "{}", diff.to_text());
    assert!(
        diff.to_text().contains("\nphase `b`, decontamination\n  blocking       words in a gram: 13 -> 20\n")
    );
    let back = between(&[a.clone(), other], &both);
    assert_eq!(swapped(&back), weightless(&diff));
    let added = between(&both[..1], &both);
    assert_eq!((added.findings[0].what.as_str(), added.step), ("phase `b`", VersionStep::Minor));
    assert_eq!(between(&both, &both[..1]).step, VersionStep::Major);
    let turned = between(&both, &[b, a.clone()]);
    assert_eq!((turned.max_weight(), turned.step), (Some(Informational), VersionStep::Patch));
    let unchecked = phase("c", |m| m.decontamination.mode = DecontaminationMode::None);
    assert_eq!(between(&both[..1], &[a, unchecked]).max_weight(), Some(Blocking));
}

#[test]
fn an_added_phase_blocks_if_it_is_looser_than_the_others() {
    let old = [phase("a", |_| {})];
    let looser: [fn(&mut Manifest); 6] = [
        |m| m.decontamination.ngram = 50,
        |m| m.decontamination.benchmarks.clear(),
        |m| m.inputs[0].eval_split = true,
        |m| m.inputs[0].split = Some("train+test".to_owned()),
        |m| m.inputs[0].revision = Some("main".to_owned()),
        |m| m.inputs[0].licence = Some("cc-by-nc-4.0".to_owned()),
    ];
    for change in looser {
        let diff = between(&old, &[phase("a", |_| {}), phase("b", change)]);
        assert_eq!(diff.max_weight(), Some(Blocking), "{}", diff.to_text());
    }
}

fn join(change: impl FnOnce(&mut JoinedInput)) -> JoinedInput {
    let mut join = JoinedInput {
        name: "o/other".to_owned(),
        corpus: Some("o/other".to_owned()),
        revision: Some("0123456789".repeat(4)),
        config: None,
        split: Some("train".to_owned()),
        licence: Some("mit".to_owned()),
        local: false,
        rows: 7,
        files: Vec::new(),
    };
    change(&mut join);
    join
}

#[test]
fn joined_corpora_are_weighed_as_sources_are() {
    let what = "join `o/other` of source `tulu`";
    let worse: [fn(&mut JoinedInput); 3] = [
        |join| join.revision = Some("main".to_owned()),
        |join| join.split = Some("test".to_owned()),
        |join| join.licence = Some("cc-by-nc-sa-4.0".to_owned()),
    ];
    assert_eq!(weights(what, |m| m.inputs[0].joins.push(join(|_| {}))), (Material, Material));
    for change in worse {
        assert_eq!(weights(what, |m| m.inputs[0].joins.push(join(change))).0, Blocking);
        let with = |change: fn(&mut JoinedInput)| {
            sealed({
                let mut manifest = v1();
                manifest.inputs[0].joins.push(join(change));
                manifest
            })
        };
        assert_eq!(diff(&with(|_| {}), &with(change)).max_weight(), Some(Blocking));
    }
}

#[test]
fn other_rows_under_the_name_of_a_benchmark_block() {
    let name = v1().decontamination.benchmarks[0].name.clone();
    let repo = |m: &mut Manifest| m.decontamination.benchmarks[0].repo = Some("o/other".to_owned());
    assert_eq!(weights(&format!("repository of benchmark `{name}`"), repo), (Blocking, Blocking));
    let split = |m: &mut Manifest| m.decontamination.benchmarks[0].split = Some("train".to_owned());
    assert_eq!(weights(&format!("split of benchmark `{name}`"), split), (Blocking, Blocking));
}

#[test]
fn no_finding_has_the_same_value_twice() {
    let diff = changed(|m| drop(m.rows.remove("tulu")));
    assert!(diff.findings.iter().all(|finding| finding.old != finding.new), "{}", diff.to_text());
}

#[test]
fn shards_are_counted_by_split() {
    let fewer = |m: &mut Manifest| drop(m.shards.pop());
    assert_eq!(weights("validation shards", fewer), (Material, Material));
    let diff = changed(fewer);
    assert!(diff.findings.iter().all(|finding| finding.what != "train shards"));
}

#[test]
fn causes_stand_before_effects() {
    let diff = changed(|m| {
        m.tokens.total = 119;
        m.shards.pop();
        m.rows.clear();
        m.inputs[0].licence = None;
        m.recipe.seed = 2;
        m.run.potable_version = "9".to_owned();
        m.decontamination.benchmarks.clear();
    });
    let mut areas: Vec<_> = diff.findings.iter().map(|finding| finding.area.as_str()).collect();
    areas.dedup();
    assert_eq!(areas, ["recipe", "inputs", "benchmarks", "rows", "tokens", "shards", "run"]);
}

#[test]
fn names_settings_and_shares_are_material() {
    let both = (Material, Material);
    assert_eq!(weights("name", |m| m.name.push('x')), both);
    assert_eq!(weights("phase", |m| m.phase = None), both);
    let length = |m: &mut Manifest| m.recipe.settings["pack"]["length"] = json!(128);
    assert_eq!(weights("setting `/pack/length`", length), both);
    let named = |m: &mut Manifest| m.recipe.settings["source"][0]["weight"] = json!("1");
    assert_eq!(weights("setting `/source/tulu/weight`", named), both);
    let share = |m: &mut Manifest| m.tokens.total = 140;
    assert_eq!(weights("share of source `tulu`", share), both);
    let order = |m: &mut Manifest| m.inputs.reverse();
    assert_eq!(weights("order of sources", order), (Informational, Informational));
    let reason = "rows dropped of source `tulu` for `decontaminate.ngram`";
    let dropped = |m: &mut Manifest| {
        m.rows.get_mut("tulu").expect("a source").dropped.clear();
    };
    assert_eq!(weights(reason, dropped), both);
}

#[test]
fn what_leaves_the_data_alone_is_informational() {
    let diff = changed(|m| {
        m.run.potable_version = "9".to_owned();
        m.run.file_sha256.values_mut().for_each(|file| file.size += 1);
        m.run.other_digests.clear();
        m.shards.reverse();
        m.tokeniser.engine = "fastokens 9".to_owned();
        m.inputs[0].files[1].verified = Verified::Whole;
    });
    assert_eq!(diff.max_weight(), Some(Informational));
    assert_eq!(diff.counts().informational, 7);
    let verified = "file `data/train-00001.parquet` of source `tulu`";
    let whole = |m: &mut Manifest| m.inputs[0].files[1].verified = Verified::Whole;
    assert_eq!(weights(verified, whole), (Informational, Material));
}

#[test]
fn times_and_machines_are_no_difference() {
    let diff = changed(|m| {
        (m.run.host, m.run.started, m.run.duration_ms) = (None, None, None);
        m.run.threads = 64;
    });
    assert!(diff.is_empty());
    assert_eq!(diff.max_weight(), None);
}

/// All one-leaf changes of `value`: a number one up, a word another, an item or a key less.
fn mutants(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![json!(1)],
        Value::Bool(flag) => vec![json!(!flag)],
        Value::Number(number) => vec![number.as_u64().map_or(json!(1), |n| json!(n ^ 1))],
        Value::String(text) => {
            let words = ["none", "blocklist", "whole", "ranges", "train", "validation"];
            let words = words.into_iter().filter(|word| word != text).map(|word| json!(word));
            let other = json!(Digest::of(text.as_bytes()).as_str());
            words.chain([other]).collect()
        }
        Value::Array(items) => {
            let mut mutants: Vec<_> = (0..items.len()).map(|index| without(items, index)).collect();
            for (index, item) in items.iter().enumerate() {
                for mutant in self::mutants(item) {
                    let mut items = items.clone();
                    items[index] = mutant;
                    mutants.push(Value::Array(items));
                }
            }
            mutants
        }
        Value::Object(fields) => {
            let mut mutants = Vec::new();
            for (key, field) in fields {
                let mut fewer = fields.clone();
                fewer.remove(key);
                mutants.push(Value::Object(fewer));
                for mutant in self::mutants(field) {
                    let mut fields = fields.clone();
                    fields.insert(key.clone(), mutant);
                    mutants.push(Value::Object(fields));
                }
            }
            mutants
        }
    }
}

fn without(items: &[Value], index: usize) -> Value {
    let kept = items.iter().enumerate().filter(|(at, _)| *at != index);
    kept.map(|(_, item)| item.clone()).collect()
}

#[test]
fn no_change_of_a_leaf_escapes() {
    let old = v1();
    let mut covered = serde_json::to_value(&old).expect("JSON");
    let fields = covered.as_object_mut().expect("an object");
    let run = fields.remove("run").expect("a run block");
    fields.remove("manifest_digest");
    let mut seen = 0;
    for mut mutant in mutants(&covered) {
        mutant["run"] = run.clone();
        mutant["manifest_digest"] = json!(old.manifest_digest);
        let Ok(new) = serde_json::from_value::<Manifest>(mutant) else {
            continue;
        };
        seen += 1;
        let (forth, back) = (diff(&old, &new), diff(&new, &old));
        let own = |finding: &Finding| finding.area != "determinism";
        assert!(
            forth.findings.iter().any(own),
            "no finding for {}",
            serde_json::to_string(&new).expect("JSON")
        );
        assert_eq!(swapped(&back), weightless(&forth));
    }
    assert!(seen > 300, "only {seen} changes were tried");
}

#[test]
fn text_has_a_verdict_areas_and_differences() {
    let diff = changed(|m| {
        m.inputs[0].licence = None;
        m.recipe.seed = 2;
        m.rows.get_mut("tulu").expect("a source").read = 5_162_084;
    });
    let text = diff.to_text();
    assert!(text.contains("\n1 blocking, 3 material\n"), "{text}");
    assert!(
        text.contains("\n\ninputs\n  blocking       licence of source `tulu`: odc-by -> absent\n"),
        "{text}"
    );
    assert!(text.contains("rows read of source `tulu`: 6 -> 5,162,084 (+5,162,078)\n"), "{text}");
}

#[test]
fn long_runs_are_cut_in_text_only() {
    let many = |m: &mut Manifest| {
        let shard = m.shards[0].clone();
        m.recipe.seed = 2;
        m.shards = (0..3000)
            .map(|n| {
                let mut shard = shard.clone();
                shard.path = format!("shards/part-{n:05}-000.parquet");
                shard.content_digest = Digest::of(shard.path.as_bytes());
                shard
            })
            .collect();
    };
    let diff = changed(many);
    let text = diff.to_text();
    assert!(text.lines().count() < 40, "{text}");
    assert!(text.contains("… and 2,981 more of this kind"), "{text}");
    let json: Value = serde_json::from_str(&diff.to_json().expect("no floats")).expect("JSON");
    assert_eq!(json["findings"].as_array().map(Vec::len), Some(diff.findings.len()));
    let markdown = diff.to_markdown();
    assert!(markdown.chars().count() < 65_536);
    assert!(markdown.contains("more; `--format json` has them all"));
    assert!(markdown.ends_with("</details>\n"));
}

#[test]
fn json_has_the_counts() {
    let diff = changed(|m| m.decontamination.ngram = 20);
    let json: Value = serde_json::from_str(&diff.to_json().expect("no floats")).expect("JSON");
    assert_eq!(json["schema"], "potable-diff-1");
    assert_eq!(json["max_weight"], "blocking");
    assert_eq!(json["counts"], json!({"blocking": 1, "material": 0, "informational": 0}));
    let finding = json!({"weight": "blocking", "area": "decontamination", "what": "words in a gram", "old": "13", "new": "20"});
    assert_eq!(json["findings"], json!([finding]));
}

#[test]
fn markdown_is_one_table_that_no_value_breaks() {
    let markdown = changed(|m| {
        m.inputs[0].licence = Some("a|b`c\n| forged | <b> @you".to_owned());
        m.normalise.insert("x`|\ny".to_owned(), String::new());
    })
    .to_markdown();
    let table: Vec<_> = markdown.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(table.len(), 4, "{markdown}");
    assert!(table.iter().all(|line| line.matches('|').count() == 6), "{markdown}");
    assert!(table[2].contains("`` a¦b`c\\n¦ forged ¦ <b> @you ``"), "{markdown}");
    assert!(markdown.contains("<details>\n<summary>All 2 findings in full</summary>\n\n- "));
}

#[test]
fn equal_manifests_say_so() {
    let diff = diff(&v1(), &v1());
    assert!(diff.to_text().ends_with("\nno differences\n"));
    assert!(diff.to_markdown().contains("no differences"));
    assert!(diff.to_json().expect("no floats").contains("\"max_weight\": null"));
}

proptest! {
    #[test]
    fn a_manifest_does_not_differ_from_itself(manifest in manifest()) {
        prop_assert!(diff(&manifest, &manifest).is_empty());
    }

    #[test]
    fn the_way_back_has_the_same_findings((old, new) in (manifest(), manifest())) {
        let (forth, back) = (diff(&old, &new), diff(&new, &old));
        prop_assert_eq!(swapped(&back), weightless(&forth));
        prop_assert!(forth.findings.iter().all(|finding| finding.old != finding.new));
        prop_assert!(!forth.is_empty() || old.manifest_digest == new.manifest_digest);
    }

    #[test]
    fn reports_are_one_line_a_finding((old, new) in (manifest(), manifest())) {
        let diff = diff(&old, &new);
        let mut areas: Vec<_> = diff.findings.iter().map(|finding| &finding.area).collect();
        areas.dedup();
        let cut = diff.to_text().lines().filter(|line| line.contains(" more of this kind")).count();
        if cut == 0 {
            let step = usize::from(!diff.is_empty());
            let lines = 2 + step + 2 * areas.len() + diff.findings.len();
            prop_assert_eq!(diff.to_text().lines().count(), lines);
        }
        let markdown = diff.to_markdown();
        prop_assert!(markdown.chars().count() < 65_536);
        let table = markdown.lines().filter(|line| line.starts_with('|'));
        prop_assert!(table.into_iter().all(|line| line.matches('|').count() == 6));
    }
}
