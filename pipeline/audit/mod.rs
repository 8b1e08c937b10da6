//! `audit`: the shards themselves, decoded to text and checked against a blocklist again, also one that
//! was made after the data.

pub mod messages;
pub mod samples;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use potable_blocklists::Blocklist;
use potable_manifests::{Manifest, ShardRecord};
use rayon::prelude::*;

use crate::decontaminate::{Decontaminator, Match};
use crate::recipe::file::ShardFormat;
use crate::shard::read::ReadError;
use crate::source::adapt::Adapted;
use crate::tokenise::encoder::BUILT_IN;
use crate::tokenise::{Decoder, TokeniserError};
use crate::verify::progress::ByteProgress;
use crate::verify::shards::format_of;
use messages::{Layout, row_of};
use samples::{Cut, ReadCounts, Waiting, WholeSample, cut_in};

/// Tokens that are decoded and checked at a time.
const BATCH_TOKENS: usize = 1 << 21;

/// A data set that cannot be audited.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A shard that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The tokenizer.
    #[error(transparent)]
    Tokeniser(#[from] TokeniserError),
    /// A tokenizer with another vocabulary than the data set's.
    #[error("tokenizer `{given}` has the digest `{found}`, the shards were made with `{stated}`")]
    OtherTokeniser {
        /// The tokenizer that was tried.
        given: String,
        /// Its digest in hex.
        found: String,
        /// The digest of the manifest in hex.
        stated: String,
    },
    /// No tokenizer for the data set.
    #[error("{dir}: was made with tokenizer `{name}` (sha256 `{stated}`), which is not at hand", dir = dir.display())]
    NoTokeniser {
        /// The data set.
        dir: PathBuf,
        /// Name of the tokenizer.
        name: String,
        /// The digest of the manifest in hex.
        stated: String,
    },
    /// A shard format that this potable does not know.
    #[error("{dir}: its manifest names no shard format that this potable knows", dir = dir.display())]
    Format {
        /// The data set.
        dir: PathBuf,
    },
}

impl AuditError {
    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            AuditError::Read(e) => e.hint(),
            AuditError::Tokeniser(e) => e.hint(),
            AuditError::OtherTokeniser { .. } | AuditError::NoTokeniser { .. } => {
                Some("name the tokenizer.json that the recipe named, with `--tokenizer FILE`".to_owned())
            }
            AuditError::Format { .. } => Some("use the potable that wrote it, or a later one".to_owned()),
        }
    }
}

/// What is audited.
pub struct Audit<'a> {
    /// The folder.
    pub dir: &'a Path,
    /// Its manifest.
    pub manifest: &'a Manifest,
    /// The decoder of its tokenizer.
    pub decoder: &'a Decoder,
    /// Blocklists, each checked for itself.
    pub blocklists: &'a [Blocklist],
    /// Whether boilerplate counts too.
    pub strict: bool,
}

/// A sample in which something was found.
#[derive(Clone, Debug)]
pub struct SampleVerdict {
    /// Sample id; fragments that were put together have the id of the whole.
    pub name: String,
    /// The shard in which it stands, or its first fragment does.
    pub shard: String,
    /// Which of the blocklists found it.
    pub blocklist: usize,
    /// What was found.
    pub matches: Vec<Match>,
    /// Whether a match drops.
    pub drops: bool,
}

/// What was audited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditCounts {
    /// What was read.
    pub read: ReadCounts,
    /// Samples after fragments were put together.
    pub whole: u64,
    /// Texts that were checked: messages, reasoning, tool calls, documents.
    pub texts: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Samples with a match that drops.
    pub dropped: u64,
    /// Samples with boilerplate only.
    pub reported: u64,
}

impl AuditCounts {
    /// Adds the counts of another part.
    pub fn add(&mut self, other: AuditCounts) {
        self.read.samples += other.read.samples;
        self.read.fragments += other.read.fragments;
        self.read.tokens += other.read.tokens;
        self.read.differing.extend(other.read.differing);
        self.whole += other.whole;
        self.texts += other.texts;
        self.bytes += other.bytes;
        self.dropped += other.dropped;
        self.reported += other.reported;
    }
}

/// The decoder for a data set: the built-in one, the file that the user named, or one of the name of
/// the manifest in the folder, in one of the two above it, or here. The digest decides.
///
/// # Errors
/// No tokenizer, or another one.
pub fn decoder_for(dir: &Path, manifest: &Manifest, given: Option<&Path>) -> Result<Decoder, AuditError> {
    let record = &manifest.tokeniser;
    let stated = record.vocabulary_digest.hex();
    if let Some(path) = given {
        let decoder = Decoder::load(path)?;
        if decoder.digest() == stated {
            return Ok(decoder);
        }
        let (given, found) = (path.display().to_string(), decoder.digest().to_owned());
        return Err(AuditError::OtherTokeniser { given, found, stated: stated.to_owned() });
    }
    let built_in = Decoder::load(Path::new(BUILT_IN))?;
    if built_in.digest() == stated {
        return Ok(built_in);
    }
    let here = [Some(dir), dir.parent(), dir.parent().and_then(Path::parent), Some(Path::new(""))];
    for path in here.into_iter().flatten().map(|folder| folder.join(&record.name)) {
        if path.is_file()
            && let Ok(decoder) = Decoder::load(&path)
            && decoder.digest() == stated
        {
            return Ok(decoder);
        }
    }
    let (dir, name) = (dir.to_path_buf(), record.name.clone());
    Err(AuditError::NoTokeniser { dir, name, stated: stated.to_owned() })
}

impl Audit<'_> {
    /// Checks every sample of every shard; gives those with a match to `found`, in the order of shards
    /// and places, samples that had been cut last.
    ///
    /// # Errors
    /// A shard that cannot be read.
    pub fn run(
        &self,
        progress: &ByteProgress,
        found: &mut dyn FnMut(SampleVerdict),
    ) -> Result<AuditCounts, AuditError> {
        let format =
            format_of(self.manifest).ok_or_else(|| AuditError::Format { dir: self.dir.to_path_buf() })?;
        let size = |path: &str| self.manifest.run.file_sha256.get(path).map_or(0, |file| file.size);
        let shards = &self.manifest.shards;
        progress.expect(shards.iter().map(|shard| size(&shard.path)).sum());
        let cut = self.cut(format)?;
        let scanners = Scanners { audit: self, idle: Mutex::new(Vec::new()) };
        let mut counts = AuditCounts::default();
        let mut waiting = Waiting::default();
        let mut last: Vec<SampleVerdict> = Vec::new();
        // A few shards at a time keep every core busy and the order of verdicts.
        for some in shards.chunks(rayon::current_num_threads().max(1)) {
            let results: Vec<_> = some
                .par_iter()
                .map(|shard| {
                    let result = self.shard(shard, (format, &cut), &scanners);
                    progress.count(size(&shard.path));
                    result
                })
                .collect::<Result<_, AuditError>>()?;
            for Shard { counts: one, verdicts, fragments } in results {
                counts.add(one);
                verdicts.into_iter().for_each(&mut *found);
                let whole = fragments.into_iter().filter_map(|(piece, n)| waiting.add(piece, n, &cut));
                let whole: Vec<WholeSample> = whole.collect();
                scanners.settle(&whole, (&mut counts, &mut last))?;
            }
        }
        scanners.settle(&waiting.rest(), (&mut counts, &mut last))?;
        last.sort_by(|a, b| (&a.name, a.blocklist).cmp(&(&b.name, b.blocklist)));
        last.into_iter().for_each(found);
        Ok(counts)
    }

    /// The samples that were cut into fragments; the shards are read for it only where the recipe cuts.
    fn cut(&self, format: ShardFormat) -> Result<Cut, AuditError> {
        let pack = self.manifest.recipe.settings.get("pack");
        let says = |key: &str| pack.and_then(|pack| pack.get(key)).and_then(serde_json::Value::as_str);
        let whole = matches!(says("overlong"), Some("drop" | "truncate"))
            && matches!(says("strategy"), Some("best-fit" | "first-fit" | "none"));
        let mut all = Cut::new();
        if whole {
            return Ok(all);
        }
        let shards = self.manifest.shards.par_iter();
        let cuts = shards.map(|shard| cut_in(self.dir, format, shard)).collect::<Result<Vec<_>, _>>()?;
        for (name, last) in cuts.into_iter().flatten() {
            let known = all.entry(name).or_default();
            *known = last.max(*known);
        }
        Ok(all)
    }

    /// One shard: whole samples are checked, fragments handed back.
    fn shard(
        &self,
        record: &ShardRecord,
        (format, cut): (ShardFormat, &Cut),
        scanners: &Scanners,
    ) -> Result<Shard, AuditError> {
        let mut shard = Shard::default();
        let mut read = ReadCounts::default();
        let mut batch: Vec<WholeSample> = Vec::new();
        let mut tokens = 0;
        samples::each((self.dir, format), record, (cut, &mut read), &mut |sample, fragment| {
            if let Some(fragment) = fragment {
                shard.fragments.push((sample, fragment));
                return Ok(());
            }
            tokens += sample.ids.len();
            batch.push(sample);
            if tokens >= BATCH_TOKENS {
                tokens = 0;
                scanners.settle(&batch, (&mut shard.counts, &mut shard.verdicts))?;
                batch.clear();
            }
            Ok::<(), AuditError>(())
        })?;
        scanners.settle(&batch, (&mut shard.counts, &mut shard.verdicts))?;
        shard.counts.read = read;
        Ok(shard)
    }
}

impl Audit<'_> {
    /// Takes the excerpts from all verdicts of one sample, if any blocklist finds a sensitive benchmark
    /// in it: the text round an open item may be that of a sensitive one.
    fn hide_sensitive(&self, verdicts: &mut [SampleVerdict]) {
        let is_sensitive = |verdict: &SampleVerdict| {
            let blocklist = self.blocklists.get(verdict.blocklist);
            let of = |benchmark| blocklist.is_none_or(|blocklist| blocklist.is_sensitive(benchmark));
            verdict.matches.iter().any(|found| of(found.benchmark))
        };
        if verdicts.iter().any(is_sensitive) {
            for found in verdicts.iter_mut().flat_map(|verdict| &mut verdict.matches) {
                found.excerpt.clear();
                found.mark = (0, 0);
            }
        }
    }
}

/// What one shard gave.
#[derive(Default)]
struct Shard {
    counts: AuditCounts,
    verdicts: Vec<SampleVerdict>,
    fragments: Vec<(WholeSample, u32)>,
}

/// Scanners that no thread uses at the moment; each has tables of its own.
struct Scanners<'a> {
    audit: &'a Audit<'a>,
    idle: Mutex<Vec<Vec<Decontaminator<'a>>>>,
}

impl<'a> Scanners<'a> {
    /// Checks whole samples in parallel, in their order.
    fn settle(
        &self,
        samples: &[WholeSample],
        (counts, verdicts): (&mut AuditCounts, &mut Vec<SampleVerdict>),
    ) -> Result<(), AuditError> {
        let checked = samples.par_iter().map(|sample| self.check(sample)).collect::<Result<Vec<_>, _>>()?;
        for (one, found) in checked {
            counts.add(one);
            verdicts.extend(found);
        }
        Ok(())
    }

    fn check(&self, sample: &WholeSample) -> Result<(AuditCounts, Vec<SampleVerdict>), AuditError> {
        let audit = self.audit;
        let layout = Layout::of_format(&audit.manifest.tokeniser.format);
        let row = row_of(&sample.ids, layout, audit.decoder)?;
        let mut scanners = self.take();
        let mut counts = AuditCounts { whole: 1, ..AuditCounts::default() };
        (counts.texts, counts.bytes) = size_of(&row);
        let mut verdicts = Vec::new();
        let (mut dropped, mut reported) = (false, false);
        for (blocklist, scanner) in scanners.iter_mut().enumerate() {
            let verdict = scanner.apply(row.clone());
            if verdict.matches.is_empty() {
                continue;
            }
            let drops = verdict.row.is_err();
            dropped |= drops;
            reported |= !drops;
            let (name, shard) = (sample.name.clone(), sample.shard.clone());
            verdicts.push(SampleVerdict { name, shard, blocklist, matches: verdict.matches, drops });
        }
        audit.hide_sensitive(&mut verdicts);
        counts.dropped = u64::from(dropped);
        counts.reported = u64::from(reported && !dropped);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(scanners);
        Ok((counts, verdicts))
    }

    fn take(&self) -> Vec<Decontaminator<'a>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| {
            let blocklists = self.audit.blocklists.iter();
            blocklists.map(|blocklist| Decontaminator::new(Some(blocklist), self.audit.strict)).collect()
        })
    }
}

/// Texts of a row, and their bytes.
fn size_of(row: &Adapted) -> (u64, u64) {
    match row {
        Adapted::Document(document) => (1, document.text.len() as u64),
        Adapted::Chat(conversation) => {
            let strings = conversation.strings();
            (strings.len() as u64, strings.iter().map(|(_, text, _)| text.len() as u64).sum())
        }
    }
}
