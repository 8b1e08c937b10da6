//! Seal: the dropped rows, the lock, and last of all the manifest.

use std::collections::BTreeMap;

use potable_blocklists::{BenchmarkMeta, Blocklist, NORMALISER};
use potable_manifests::{
    BenchmarkRecord, Decontamination, DecontaminationMode, Digest, FileDigest, FileRecord, FillBucket,
    InputFile, InputSource, JoinedInput, LengthBucket, Manifest, RecipeRecord, RowLedger, RunBlock, SCHEMA,
    SampleLedger, SourceMatches, SourceTokens, TokenCounts, TokeniserRecord, Verified, canonical_json, ppm,
};

use super::error::RunError;
use super::folder::{OutputFolder, remove};
use super::joins::PlannedJoin;
use super::plan::{Plan, PlannedSource, mapping_value};
use super::reason::DropReason;
use super::reduce::PartitionResult;
use super::report::{self, Examples};
use super::rows::add_ledger;
use super::select::{SelectCounts, Selection};
use super::staged::{ChunkLedger, StagedDrop, StagedRows};
use crate::recipe::lock::LockedSource;
use crate::shard::dropped::{DroppedRow, DroppedWriter, Part};
use crate::shard::{PackExtremes, ShardFile, write_atomic, write_index};
use crate::source::RowId;
use crate::tokenise::Tokeniser;

/// What a seal is made from.
pub struct Sealing<'a> {
    /// Name of the data set.
    pub name: &'a str,
    /// The plan.
    pub plan: &'a Plan,
    /// The digest of everything that the output depends on.
    pub plan_digest: &'a Digest,
    /// The blocklist.
    pub blocklist: Option<&'a Blocklist>,
    /// The tokeniser.
    pub tokeniser: &'a Tokeniser,
    /// Name and digest of the template.
    pub template: (String, String),
    /// Staged files.
    pub files: &'a [&'a dyn StagedRows],
    /// What select said.
    pub selection: &'a Selection,
    /// What reduce wrote.
    pub results: &'a [PartitionResult],
    /// Digests of the ranges that were read, by source and file.
    pub ranges: &'a BTreeMap<(u32, u32), Digest>,
    /// Files beside the shards.
    pub beside: &'a [ShardFile],
    /// The output folder.
    pub folder: &'a OutputFolder,
    /// Circumstances, outside of every digest.
    pub run: RunBlock,
}

impl Sealing<'_> {
    /// Writes `dropped/`, the lock and the manifest.
    ///
    /// # Errors
    /// Ledgers that do not balance, a run that kept nothing, what the file system says.
    pub fn seal(mut self) -> Result<Manifest, RunError> {
        let ledgers = self.source_ledgers()?;
        let mut examples = self.examples();
        let (dropped_parts, dropped) = self.write_dropped(&mut examples)?;
        let rows = self.row_ledgers(&ledgers)?;
        let samples = self.sample_ledgers(&ledgers)?;
        if samples.values().all(|ledger| ledger.packed == 0) {
            return Err(nothing_kept(&rows));
        }
        let lock = self.write_lock()?;
        self.run.other_digests.insert("recipe.lock".to_owned(), lock);
        self.run.other_digests.insert("dropped".to_owned(), dropped);
        for (name, sha256, _) in dropped_parts {
            self.run.other_digests.insert(format!("dropped/{name}"), sha256);
        }
        self.run.other_digests.insert("plan".to_owned(), self.plan_digest.clone());
        let index = self.write_index()?;
        let files = self.results.iter().flat_map(|r| &r.shards).flat_map(|s| &s.1);
        for (path, sha256, size) in files.chain(&index).chain(self.beside) {
            let record = FileRecord { sha256: sha256.clone(), size: *size };
            self.run.file_sha256.insert(path.clone(), record);
        }
        let manifest = self.manifest(&ledgers, rows, samples)?;
        let failed = |e: potable_manifests::CanonicalError| RunError::Manifest { reason: e.to_string() };
        let manifest = manifest.seal().map_err(failed)?;
        let text = manifest.to_json().map_err(failed)?;
        let sum = format!("{}  manifest.json\n", potable_manifests::sha256_hex(text.as_bytes()));
        report::write(&self.folder.path, &manifest, &examples)?;
        write_atomic(&self.folder.path.join("manifest.json.sha256"), sum.as_bytes())?;
        write_atomic(&self.folder.path.join("manifest.json"), text.as_bytes())?;
        Ok(manifest)
    }

    /// What the format wants beside its shards.
    fn write_index(&self) -> Result<Vec<ShardFile>, RunError> {
        let shards: Vec<_> = self.results.iter().flat_map(|r| &r.shards).collect();
        let extremes = self.results.iter().map(|r| r.extremes);
        let extremes = extremes.fold(PackExtremes::default(), PackExtremes::with);
        write_index(&self.folder.path, self.plan.phase.output.format, &shards, extremes)
    }

    fn source_ledgers(&self) -> Result<Vec<ChunkLedger>, RunError> {
        let mut sums = vec![ChunkLedger::default(); self.plan.sources.len()];
        for ledger in self.files.iter().map(|file| file.ledger()) {
            if let Some(sum) = sums.get_mut(ledger.source as usize) {
                add_ledger(sum, ledger);
            }
        }
        Ok(sums)
    }

    fn counts(&self, source: usize) -> SelectCounts {
        self.selection.summary.counts.get(source).cloned().unwrap_or_default()
    }

    fn row_ledgers(&self, ledgers: &[ChunkLedger]) -> Result<BTreeMap<String, RowLedger>, RunError> {
        let mut rows = BTreeMap::new();
        for (index, (source, ledger)) in self.plan.sources.iter().zip(ledgers).enumerate() {
            let counts = self.counts(index);
            let mut row = RowLedger {
                read: ledger.passed,
                sampled_out: ledger.passed.saturating_sub(ledger.taken) + counts.capped.0,
                kept: counts.kept_rows,
                failed: ledger.failed,
                dropped: ledger.dropped.clone(),
                joined: ledger.joined.clone(),
                repeated: counts.repeated.0,
            };
            for (reason, count) in [
                (DropReason::DedupExact, counts.duplicates.0),
                (DropReason::DedupNear, counts.near.0),
                (DropReason::DedupOtherPhase, counts.other_phase.0),
                (DropReason::PackOverlong, counts.overlong.0),
            ] {
                if count > 0 {
                    row.drop_rows(reason.name(), count);
                }
            }
            row.balance(&source.config.name).map_err(|e| unbalanced(source, &e))?;
            rows.insert(source.config.name.clone(), row);
        }
        Ok(rows)
    }

    fn sample_ledgers(&self, ledgers: &[ChunkLedger]) -> Result<BTreeMap<String, SampleLedger>, RunError> {
        let mut samples = BTreeMap::new();
        for (index, (source, ledger)) in self.plan.sources.iter().zip(ledgers).enumerate() {
            let name = &source.config.name;
            let counts = self.counts(index);
            let packed: u64 =
                self.results.iter().filter_map(|r| r.sources.get(name)).map(|t| t.samples).sum();
            let fragments: u64 = self.results.iter().filter_map(|r| r.fragments.get(name)).sum();
            let mut one = SampleLedger {
                made: ledger.samples + fragments,
                packed,
                sampled_out: counts.capped.1,
                repeated: counts.repeated.1,
                ..SampleLedger::default()
            };
            for (reason, count) in [
                (DropReason::DedupExact, counts.duplicates.1),
                (DropReason::DedupNear, counts.near.1),
                (DropReason::DedupOtherPhase, counts.other_phase.1),
                (DropReason::PackOverlong, counts.overlong.1),
            ] {
                if count > 0 {
                    one.drop_samples(reason.name(), count);
                }
            }
            if counts.overlong.2 > 0 {
                one.lose_tokens(DropReason::PackOverlong.name(), counts.overlong.2);
            }
            if counts.truncated_tokens > 0 {
                one.lose_tokens("pack.truncated", counts.truncated_tokens);
            }
            one.balance(name).map_err(|e| unbalanced(source, &e))?;
            samples.insert(name.clone(), one);
        }
        Ok(samples)
    }

    /// Room for examples of dropped rows, without text of sensitive benchmarks.
    fn examples(&self) -> Examples {
        let listed = self.blocklist.map(|b| b.header().benchmarks.as_slice()).unwrap_or_default();
        let sensitive = listed.iter().filter(|entry| entry.meta.sensitive);
        Examples::new(sensitive.map(|entry| entry.meta.name.clone()).collect())
    }

    /// Writes rows that ended in map, near duplicates, and rows of which no sample fits a pack, in the
    /// order of their ids. Gives the files, and a digest of all rows.
    fn write_dropped(&self, examples: &mut Examples) -> Result<(Vec<Part>, Digest), RunError> {
        remove(&self.folder.path.join("dropped"))?;
        let folder = self.folder.folder("dropped")?;
        let mut writer = DroppedWriter::new(&folder);
        let mut overlong = self.selection.overlong()?;
        let mut next = overlong.next().transpose()?;
        let mut near = self.selection.near()?;
        let mut next_near = near.next().transpose()?;
        for group in self.groups() {
            let Some(last) = group.iter().map(|file| file.ledger()).max_by_key(|ledger| ledger.next_row)
            else {
                continue;
            };
            let (source, file) = (last.source, last.file);
            let mut rows = Vec::new();
            for one in group {
                let drops = one.drops()?;
                rows.extend(drops.into_iter().map(|drop| self.dropped_row(source, file, drop)));
            }
            let end = (source, file, last.next_row);
            while let Some((id, tokens)) = next.filter(|(id, _)| (id.source, id.file, id.row) < end) {
                rows.push(self.overlong_row(&id, tokens));
                next = overlong.next().transpose()?;
            }
            while let Some((id, first)) = next_near.filter(|(id, _)| (id.source, id.file, id.row) < end) {
                rows.push(self.near_row(&id, &first));
                next_near = near.next().transpose()?;
            }
            rows.sort_by_key(|row| row.row);
            rows.iter().for_each(|row| examples.offer(row));
            rows.into_iter().try_for_each(|row| writer.push(row))?;
        }
        writer.finish()
    }

    /// Staged files in groups whose rows do not interleave: single ones where a file has one band of
    /// sampling hashes, all of a file where it has several.
    fn groups(&self) -> impl Iterator<Item = &[&dyn StagedRows]> {
        self.files.chunk_by(|a, b| a.ledger().place() == b.ledger().place()).flat_map(|file| {
            let bands = file.chunk_by(|a, b| a.ledger().above == b.ledger().above).count();
            file.chunks(if bands > 1 { file.len() } else { 1 })
        })
    }

    fn names(&self, source: u32, file: u32) -> (String, String) {
        let source = self.plan.sources.get(source as usize);
        let file = source.and_then(|s| s.files.get(file as usize));
        (
            source.map(|s| s.config.name.clone()).unwrap_or_default(),
            file.map(|f| f.file.name.clone()).unwrap_or_default(),
        )
    }

    fn dropped_row(&self, source: u32, file: u32, drop: StagedDrop) -> DroppedRow {
        let (source, file) = self.names(source, file);
        DroppedRow {
            source,
            file,
            row: drop.row,
            stage: drop.stage,
            reason: drop.reason,
            evidence: drop.evidence,
        }
    }

    /// A near duplicate, with the row that stays in its place.
    fn near_row(&self, id: &RowId, first: &RowId) -> DroppedRow {
        let (source, file) = self.names(first.source, first.file);
        let evidence = serde_json::json!({ "first": format!("{source}/{file}:{}", first.row) });
        self.row_of(id, DropReason::DedupNear, evidence.to_string())
    }

    fn overlong_row(&self, id: &RowId, tokens: u64) -> DroppedRow {
        self.row_of(id, DropReason::PackOverlong, format!("{{\"tokens\":{tokens}}}"))
    }

    /// A row that select dropped.
    fn row_of(&self, id: &RowId, reason: DropReason, evidence: String) -> DroppedRow {
        let (source, file) = self.names(id.source, id.file);
        let stage = reason.stage().name().to_owned();
        DroppedRow { source, file, row: id.row, stage, reason: reason.name().to_owned(), evidence }
    }

    fn write_lock(&self) -> Result<Digest, RunError> {
        let lock = self.plan.lock(locked_benchmarks(self.blocklist));
        let text = lock.to_toml().map_err(|e| RunError::Manifest { reason: e.to_string() })?;
        Ok(write_atomic(&self.folder.path.join("recipe.lock"), text.as_bytes())?.0)
    }

    fn manifest(
        &self,
        ledgers: &[ChunkLedger],
        rows: BTreeMap<String, RowLedger>,
        samples: BTreeMap<String, SampleLedger>,
    ) -> Result<Manifest, RunError> {
        let phase = &self.plan.phase;
        let settings = potable_manifests::canonical::floats_as_text(phase.settings());
        let canonical =
            canonical_json(&settings).map_err(|e| RunError::Manifest { reason: e.to_string() })?;
        let mut acted = BTreeMap::new();
        for ledger in ledgers {
            for (what, count) in &ledger.acted {
                *acted.entry(what.clone()).or_insert(0u64) += count;
            }
        }
        let mut shards: Vec<_> =
            self.results.iter().flat_map(|r| r.shards.iter().map(|s| s.0.clone())).collect();
        shards.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Manifest {
            schema: SCHEMA.to_owned(),
            manifest_digest: Digest::zero(),
            name: self.name.to_owned(),
            phase: phase.name.clone(),
            recipe: RecipeRecord {
                seed: phase.seed,
                digest: Digest::of(canonical.as_bytes()),
                settings,
                partitions: u64::from(self.plan.partitions),
            },
            inputs: self.inputs()?,
            decontamination: self.decontamination(ledgers)?,
            tokeniser: self.tokeniser_record()?,
            normalise: phase.policy.record(),
            acted,
            rows,
            samples,
            tokens: self.tokens(),
            shards,
            run: self.run.clone(),
        })
    }

    fn inputs(&self) -> Result<Vec<InputSource>, RunError> {
        let mut inputs = self.plan.sources.iter().map(input).collect::<Result<Vec<_>, _>>()?;
        for (&(source, file), digest) in self.ranges {
            let input = inputs.get_mut(source as usize).and_then(|input| input.files.get_mut(file as usize));
            if let Some(input) = input {
                input.ranges_digest = Some(digest.clone());
            }
        }
        Ok(inputs)
    }

    fn tokeniser_record(&self) -> Result<TokeniserRecord, RunError> {
        Ok(TokeniserRecord {
            name: self.tokeniser.name().to_owned(),
            engine: self.tokeniser.engine().to_owned(),
            vocabulary_digest: digest_of(self.tokeniser.digest())?,
            vocabulary_size: self.tokeniser.vocabulary_size(),
            template: self.template.0.clone(),
            template_digest: digest_of(&self.template.1)?,
            format: self.plan.phase.policy.format.name().to_owned(),
        })
    }

    fn decontamination(&self, ledgers: &[ChunkLedger]) -> Result<Decontamination, RunError> {
        let config = &self.plan.phase.decontaminate;
        let Some(blocklist) = self.blocklist else {
            return Ok(Decontamination {
                mode: DecontaminationMode::None,
                ngram: config.ngram,
                normaliser: NORMALISER.to_owned(),
                blocklist_digest: None,
                strict: config.strict,
                benchmarks: Vec::new(),
            });
        };
        let mut benchmarks = Vec::new();
        for entry in &blocklist.header().benchmarks {
            let meta = &entry.meta;
            let per_source = self.matches_of(&meta.name, ledgers);
            let (dropped, reported) =
                per_source.values().fold((0, 0), |sum, m| (sum.0 + m.dropped, sum.1 + m.reported));
            let files = meta.files.iter().map(|f| {
                Ok(FileDigest { name: f.name.clone(), size: f.size, sha256: digest_of(&f.sha256)? })
            });
            benchmarks.push(BenchmarkRecord {
                name: meta.name.clone(),
                repo: meta.repo.clone(),
                revision: meta.revision.clone(),
                config: meta.config.clone(),
                split: meta.split.clone(),
                where_: meta.where_.clone(),
                licence: meta.licence.clone(),
                sensitive: meta.sensitive,
                files: files.collect::<Result<_, RunError>>()?,
                items: entry.coverage.items,
                protected_ngram: entry.coverage.by_ngram,
                protected_short: entry.coverage.by_short_item,
                protected_near: Some(entry.coverage.by_near_copy),
                not_protected: entry.coverage.not_protected,
                rows_dropped: dropped,
                rows_reported: reported,
                per_source,
            });
        }
        Ok(Decontamination {
            mode: DecontaminationMode::Blocklist,
            ngram: config.ngram,
            normaliser: NORMALISER.to_owned(),
            blocklist_digest: Some(
                blocklist.digest().parse().map_err(|e: potable_manifests::DigestError| {
                    RunError::Manifest { reason: e.to_string() }
                })?,
            ),
            strict: config.strict,
            benchmarks,
        })
    }

    /// Rows that match a benchmark, by source.
    fn matches_of(&self, benchmark: &str, ledgers: &[ChunkLedger]) -> BTreeMap<String, SourceMatches> {
        let sources = self.plan.sources.iter().zip(ledgers);
        let matches = sources.filter_map(|(source, ledger)| {
            let (dropped, reported) = *ledger.matches.get(benchmark)?;
            Some((source.config.name.clone(), SourceMatches { dropped, reported }))
        });
        matches.collect()
    }

    fn tokens(&self) -> TokenCounts {
        let mut per_source: BTreeMap<String, SourceTokens> = BTreeMap::new();
        let mut lengths: BTreeMap<u64, u64> = BTreeMap::new();
        let mut lengths_per_source: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
        let mut fills: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut capacity, mut packs) = (0, 0);
        for result in self.results {
            for (name, one) in &result.sources {
                let sum = per_source.entry(name.clone()).or_default();
                sum.samples += one.samples;
                sum.tokens += one.tokens;
                sum.trained += one.trained;
            }
            for (name, counts) in &result.lengths {
                let own = lengths_per_source.entry(name.clone()).or_default();
                for (upto, count) in counts {
                    *own.entry(*upto).or_default() += count;
                    *lengths.entry(*upto).or_default() += count;
                }
            }
            for (upto_ppm, packs) in &result.fills {
                *fills.entry(*upto_ppm).or_default() += packs;
            }
            capacity += result.capacity;
            packs += result.shards.iter().map(|(shard, _)| shard.packs).sum::<u64>();
        }
        let total = per_source.values().map(|s| s.tokens).sum();
        TokenCounts {
            total,
            trained: per_source.values().map(|s| s.trained).sum(),
            packs,
            capacity,
            fill_ppm: ppm(total, capacity),
            per_source,
            length_histogram: buckets(lengths),
            lengths_per_source: lengths_per_source.into_iter().map(|(k, v)| (k, buckets(v))).collect(),
            fill_histogram: fills
                .into_iter()
                .map(|(upto_ppm, packs)| FillBucket { upto_ppm, packs })
                .collect(),
        }
    }
}

fn buckets(counts: BTreeMap<u64, u64>) -> Vec<LengthBucket> {
    counts.into_iter().map(|(upto, count)| LengthBucket { upto, count }).collect()
}

fn digest_of(hex: &str) -> Result<Digest, RunError> {
    Digest::from_hex(hex).map_err(|e| RunError::Manifest { reason: e.to_string() })
}

/// A source as the manifest has it.
///
/// # Errors
/// A digest that is none.
pub fn input(source: &PlannedSource) -> Result<InputSource, RunError> {
    let config = &source.config;
    let files = source.files.iter().map(|f| {
        Ok(InputFile {
            name: f.file.name.clone(),
            size: f.size,
            sha256: digest_of(&f.sha256)?,
            rows: f.rows,
            verified: if f.by_ranges() { Verified::Ranges } else { Verified::Whole },
            ranges_digest: None,
        })
    });
    let joins = source.joins.iter().flat_map(|joins| &joins.inputs);
    Ok(InputSource {
        name: config.name.clone(),
        corpus: config.corpus.clone(),
        revision: config.revision.clone(),
        config: config.config.clone(),
        split: config.split.clone(),
        licence: config.licence.clone(),
        gated: config.gated,
        eval_split: config.eval_split,
        local: config.want.is_none(),
        format: source.files.first().map_or("", |f| f.file.format.name()).to_owned(),
        mapping: potable_manifests::canonical::floats_as_text(mapping_value(&source.mapping_file)),
        files: files.collect::<Result<_, RunError>>()?,
        joins: joins.map(joined).collect::<Result<_, RunError>>()?,
    })
}

/// A corpus that rows took text from, as the manifest has it.
fn joined(join: &PlannedJoin) -> Result<JoinedInput, RunError> {
    let source = &join.config.source;
    let files = join.files.iter().map(|f| {
        Ok(InputFile {
            name: f.file.name.clone(),
            size: f.size,
            sha256: digest_of(&f.sha256)?,
            rows: None,
            verified: Verified::Whole,
            ranges_digest: None,
        })
    });
    Ok(JoinedInput {
        name: join.config.name.clone(),
        corpus: source.corpus.clone(),
        revision: source.revision.clone(),
        config: source.config.clone(),
        split: source.split.clone(),
        licence: source.licence.clone(),
        local: source.want.is_none(),
        rows: join.rows,
        files: files.collect::<Result<_, RunError>>()?,
    })
}

/// The benchmarks of a blocklist as the lock has them.
pub fn locked_benchmarks(blocklist: Option<&Blocklist>) -> Vec<LockedSource> {
    let entries = blocklist.map(|b| b.header().benchmarks.as_slice()).unwrap_or_default();
    entries
        .iter()
        .map(|entry| LockedSource {
            name: entry.meta.name.clone(),
            repo: entry.meta.repo.clone(),
            revision: entry.meta.revision.clone(),
            licence: entry.meta.licence.clone(),
            local: !pinned(&entry.meta),
            file: entry
                .meta
                .files
                .iter()
                .map(|f| crate::recipe::lock::LockedFile {
                    name: f.name.clone(),
                    size: f.size,
                    sha256: f.sha256.clone(),
                    rows: None,
                })
                .collect(),
        })
        .collect()
}

/// Whether a benchmark was read at a commit of its repository.
fn pinned(meta: &BenchmarkMeta) -> bool {
    meta.repo.is_some() && meta.revision.as_deref().is_some_and(potable_manifests::is_commit)
}

fn unbalanced(source: &PlannedSource, error: &potable_manifests::LedgerError) -> RunError {
    RunError::Unbalanced { source_name: source.config.name.clone(), detail: error.to_string() }
}

fn nothing_kept(rows: &BTreeMap<String, RowLedger>) -> RunError {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for ledger in rows.values() {
        for (reason, count) in &ledger.dropped {
            *reasons.entry(reason).or_default() += count;
        }
        if ledger.failed > 0 {
            *reasons.entry("failed").or_default() += ledger.failed;
        }
        if ledger.sampled_out > 0 {
            *reasons.entry("sampled out").or_default() += ledger.sampled_out;
        }
    }
    let read = rows.values().map(|ledger| ledger.read).sum();
    let mut list: Vec<(&str, u64)> = reasons.into_iter().collect();
    list.sort_by_key(|(reason, count)| (std::cmp::Reverse(*count), *reason));
    let why: Vec<String> = list.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    RunError::NothingKept { read, why: if why.is_empty() { "none left".to_owned() } else { why.join(", ") } }
}
