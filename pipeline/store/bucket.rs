//! A store that is a prefix of a bucket.

use std::fs::File;
use std::future::Future;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig, StaticCredentialProvider,
};

use super::Stat;
use super::attempts::{Attempts, Fault};
use super::config::StoreConfig;
use super::error::StoreError;
use super::exchange::{Connector, Trouble};
use super::folder;

/// Bytes of a part; a file up to this size is one request.
const PART: u64 = 8 << 20;
/// Parts that an upload may have.
const MOST_PARTS: u64 = 10_000;
/// Parts on their way at the same time, of one file.
const AT_ONCE: usize = 4;

/// Which protocol a bucket speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    S3,
    Gs,
}

impl Scheme {
    pub(super) fn name(self) -> &'static str {
        match self {
            Scheme::S3 => "s3",
            Scheme::Gs => "gs",
        }
    }
}

trait Client: ObjectStore + MultipartStore {}
impl<T: ObjectStore + MultipartStore> Client for T {}

/// A prefix of a bucket.
#[derive(Clone)]
pub(super) struct Bucket {
    shared: Arc<Shared>,
    /// With no slash at either end; empty for the whole bucket.
    prefix: String,
}

struct Shared {
    client: Box<dyn Client>,
    scheme: Scheme,
    name: String,
    config: StoreConfig,
    /// Whether the store keeps what is written once: asked once, after the first such write.
    keeps: OnceLock<()>,
    /// Set when the bucket answered as one that is there.
    is_there: OnceLock<()>,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bucket").field(&self.uri()).finish()
    }
}

impl Bucket {
    pub(super) fn open(
        scheme: Scheme,
        (name, prefix): (&str, &str),
        config: StoreConfig,
    ) -> Result<Self, StoreError> {
        let connector = Connector::new(&config)?;
        let uri = format!("{}://{name}", scheme.name());
        let client = match scheme {
            Scheme::S3 => s3(name, connector, &config),
            Scheme::Gs => gs(name, connector, &config),
        };
        let client = client.map_err(|e| StoreError::Client { place: uri, reason: innermost(&e) })?;
        let shared = Shared {
            client,
            scheme,
            name: name.to_owned(),
            config,
            keeps: OnceLock::new(),
            is_there: OnceLock::new(),
        };
        Ok(Bucket { shared: Arc::new(shared), prefix: prefix.trim_matches('/').to_owned() })
    }

    pub(super) fn below(&self, prefix: &str) -> Bucket {
        Bucket { shared: self.shared.clone(), prefix: self.key(prefix) }
    }

    pub(super) fn uri(&self) -> String {
        let root = format!("{}://{}", self.shared.scheme.name(), self.shared.name);
        if self.prefix.is_empty() { root } else { format!("{root}/{}", self.prefix) }
    }

    pub(super) fn put(&self, name: &str, bytes: Bytes) -> Result<(), StoreError> {
        let path = self.path(name)?;
        self.attempt(name, |client| client.put(&path, PutPayload::from_bytes(bytes.clone()))).map(|_| ())
    }

    pub(super) fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        let bytes = Bytes::copy_from_slice(bytes);
        let written = self.create(name, &bytes)?;
        // A store that ignores the condition would break every promise: the same bytes again harm
        // none of them, and it has to refuse them.
        if written && self.shared.keeps.get().is_none() {
            if self.create_once(name, &bytes)? {
                // Or who tries again would find it there, and go on.
                self.delete(name)?;
                return Err(StoreError::Unconditional { uri: self.uri() });
            }
            let _set_by_another = self.shared.keeps.set(());
        }
        Ok(written)
    }

    /// Writes unless it is there. If an answer was lost, the object may be there because of us: then it
    /// has our bytes.
    fn create(&self, name: &str, bytes: &Bytes) -> Result<bool, StoreError> {
        let mut attempts = self.attempts(name);
        let path = self.path(name)?;
        let result = attempts.run(|| self.run(self.create_request(&path, bytes)));
        match result {
            Ok(_) => Ok(true),
            Err(Fault::Exists) if attempts.repeated() => Ok(self.get(name)? == *bytes),
            Err(Fault::Exists) => Ok(false),
            Err(fault) => Err(self.error(name, fault)),
        }
    }

    fn create_once(&self, name: &str, bytes: &Bytes) -> Result<bool, StoreError> {
        let path = self.path(name)?;
        match self.attempts(name).run(|| self.run(self.create_request(&path, bytes))) {
            Ok(_) => Ok(true),
            Err(Fault::Exists) => Ok(false),
            Err(fault) => Err(self.error(name, fault)),
        }
    }

    fn create_request<'a>(
        &'a self,
        path: &'a Path,
        bytes: &Bytes,
    ) -> impl Future<Output = object_store::Result<object_store::PutResult>> + 'a {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        self.shared.client.put_opts(path, PutPayload::from_bytes(bytes.clone()), options)
    }

    pub(super) fn put_file(&self, name: &str, from: &FilePath) -> Result<(), StoreError> {
        let unreadable = |e| StoreError::io(from.display().to_string(), "read", e);
        let file = File::open(from).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        let read = |range: Range<u64>| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start).map_err(unreadable)?;
            Ok::<Bytes, StoreError>(bytes.into())
        };
        if size <= PART {
            return self.put(name, read(0..size)?);
        }
        let path = self.path(name)?;
        let upload = self.attempt(name, |client| client.create_multipart(&path))?;
        let part = PART.max(size.div_ceil(MOST_PARTS).next_multiple_of(1 << 20));
        let sent = in_pieces(0..size, part, |index, range| {
            let bytes = read(range)?;
            self.attempt(name, |client| {
                client.put_part(&path, &upload, index, PutPayload::from_bytes(bytes.clone()))
            })
        });
        match sent {
            Ok(parts) => self.complete(name, (&upload, size), parts),
            Err(error) => {
                // What stays costs room only; the first error is the one to tell.
                let _best_effort = self.run(self.shared.client.abort_multipart(&path, &upload));
                Err(error)
            }
        }
    }

    /// Ends an upload. If an answer was lost, the upload is over and the object is there.
    fn complete(
        &self,
        name: &str,
        (upload, size): (&String, u64),
        parts: Vec<PartId>,
    ) -> Result<(), StoreError> {
        let path = self.path(name)?;
        let mut attempts = self.attempts(name);
        let result =
            attempts.run(|| self.run(self.shared.client.complete_multipart(&path, upload, parts.clone())));
        match result {
            Ok(_) => Ok(()),
            Err(Fault::NotFound)
                if attempts.repeated() && self.stat(name)?.is_some_and(|stat| stat.size == size) =>
            {
                Ok(())
            }
            Err(fault) => Err(self.error(name, fault)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Result<Bytes, StoreError> {
        let path = self.path(name)?;
        let place = self.place(name);
        let result = self.attempts(name).run(|| {
            let (meta, _, bytes) =
                self.run(read(self.shared.client.as_ref(), &path, GetOptions::default()))?;
            whole(&place, meta.size, bytes)
        });
        result.map_err(|fault| self.error(name, fault))
    }

    /// Bytes of an object, of the version `tag` if it is given.
    pub(super) fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
        tag: Option<&str>,
    ) -> Result<Bytes, StoreError> {
        let path = self.path(name)?;
        let place = self.place(name);
        let result = self.attempts(name).run(|| {
            let options = GetOptions {
                range: Some(GetRange::Bounded(range.clone())),
                if_match: tag.map(str::to_owned),
                ..GetOptions::default()
            };
            let (meta, got, bytes) = self.run(read(self.shared.client.as_ref(), &path, options))?;
            if meta.size < range.end {
                return Err(Fault::OutOfRange(range.clone()));
            }
            if got != range {
                return Err(Fault::Short {
                    place: place.clone(),
                    expected: range.end - range.start,
                    got: got.end - got.start,
                });
            }
            whole(&place, range.end - range.start, bytes)
        });
        result.map_err(|fault| match fault {
            // An answer of 416 stands for a range behind the end.
            Fault::Refused(Trouble::Answer { status: 416, .. }, _) => {
                self.error(name, Fault::OutOfRange(range.clone()))
            }
            fault => self.error(name, fault),
        })
    }

    pub(super) fn fetch(&self, name: &str, to: &FilePath) -> Result<(), StoreError> {
        let Some(stat) = self.stat(name)? else {
            return Err(StoreError::NotFound { place: self.place(name) });
        };
        let local = |e| StoreError::Io { place: to.display().to_string(), action: "write", source: e };
        let mut failed = None;
        let written = folder::write_to(to, |file| {
            let file = file.as_file();
            let copied = in_pieces(0..stat.size, PART, |_, range| {
                let bytes = self.get_range(name, range.clone(), stat.tag.as_deref())?;
                file.write_all_at(&bytes, range.start).map_err(local)
            });
            copied.map(|_| ()).map_err(|error| {
                failed = Some(error);
                std::io::Error::other("the object could not be read")
            })
        });
        match failed {
            Some(error) => Err(error),
            None => written.map_err(local),
        }
    }

    pub(super) fn stat(&self, name: &str) -> Result<Option<Stat>, StoreError> {
        let path = self.path(name)?;
        match self.attempts(name).run(|| self.run(self.shared.client.head(&path))) {
            Ok(meta) => {
                let _seen = self.shared.is_there.set(());
                Ok(Some(stat(&meta)))
            }
            Err(Fault::NotFound) => {
                self.check_bucket()?;
                Ok(None)
            }
            Err(fault) => Err(self.error(name, fault)),
        }
    }

    /// An answer to `HEAD` has no text, so that a bucket that is not there looks like an object that is not.
    fn check_bucket(&self) -> Result<(), StoreError> {
        if self.shared.is_there.get().is_some() {
            return Ok(());
        }
        let prefix = Path::from("is-there");
        let listed = self
            .attempts("")
            .run(|| self.run(async { self.shared.client.list(Some(&prefix)).try_next().await }));
        listed.map_err(|fault| self.error("", fault))?;
        let _seen = self.shared.is_there.set(());
        Ok(())
    }

    /// All objects below a prefix, names relative to the store, in no order.
    pub(super) fn list(&self, prefix: &str) -> Result<Vec<(String, Stat)>, StoreError> {
        let below = self.path(prefix)?;
        let below = (!below.as_ref().is_empty()).then_some(below);
        let found = self
            .attempts(prefix)
            .run(|| self.run(self.shared.client.list(below.as_ref()).try_collect::<Vec<ObjectMeta>>()));
        let found = found.map_err(|fault| self.error(prefix, fault))?;
        let _seen = self.shared.is_there.set(());
        let own = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
        Ok(found
            .iter()
            .filter_map(|meta| Some((meta.location.as_ref().get(own..)?.to_owned(), stat(meta))))
            .collect())
    }

    pub(super) fn delete(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name)?;
        match self.attempts(name).run(|| self.run(self.shared.client.delete(&path))) {
            Ok(()) | Err(Fault::NotFound) => Ok(()),
            Err(fault) => Err(self.error(name, fault)),
        }
    }

    fn attempt<'a, T, F>(&'a self, name: &str, request: impl Fn(&'a dyn Client) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let result = self.attempts(name).run(|| self.run(request(self.shared.client.as_ref())));
        result.map_err(|fault| self.error(name, fault))
    }

    fn attempts(&self, _name: &str) -> Attempts<'_> {
        Attempts::new(&self.shared.config)
    }

    /// Runs one request on this thread.
    fn run<T>(&self, request: impl Future<Output = object_store::Result<T>>) -> Result<T, Fault> {
        super::attempts::block_on(request)
    }

    fn error(&self, name: &str, fault: Fault) -> StoreError {
        let shared = &self.shared;
        fault.into_error(self.place(name), (shared.scheme.name(), &shared.name), shared.config.region())
    }

    fn place(&self, name: &str) -> String {
        if name.is_empty() { self.uri() } else { format!("{}/{name}", self.uri()) }
    }

    fn key(&self, name: &str) -> String {
        match (self.prefix.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}/{name}", self.prefix),
        }
    }

    fn path(&self, name: &str) -> Result<Path, StoreError> {
        Path::parse(self.key(name))
            .map_err(|_| StoreError::BadName { uri: self.uri(), name: name.to_owned() })
    }
}

async fn read(
    client: &dyn Client,
    path: &Path,
    options: GetOptions,
) -> object_store::Result<(ObjectMeta, Range<u64>, Bytes)> {
    let result = client.get_opts(path, options).await?;
    let (meta, range) = (result.meta.clone(), result.range.clone());
    Ok((meta, range, result.bytes().await?))
}

fn whole(place: &str, expected: u64, bytes: Bytes) -> Result<Bytes, Fault> {
    let got = bytes.len() as u64;
    if got == expected { Ok(bytes) } else { Err(Fault::Short { place: place.to_owned(), expected, got }) }
}

fn stat(meta: &ObjectMeta) -> Stat {
    Stat { size: meta.size, tag: meta.e_tag.clone() }
}

/// Does a piece of `all` after the other, a few at once; the results in order, or the first error.
fn in_pieces<T: Send>(
    all: Range<u64>,
    piece: u64,
    work: impl Fn(usize, Range<u64>) -> Result<T, StoreError> + Sync,
) -> Result<Vec<T>, StoreError> {
    let count = (all.end - all.start).div_ceil(piece) as usize;
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<T, StoreError>>>> = Mutex::new((0..count).map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(count) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let start = all.start + index as u64 * piece;
                    let result = work(index, start..(start + piece).min(all.end));
                    if result.is_err() {
                        next.store(count, Ordering::Relaxed);
                    }
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(slot) = done.get_mut(index) {
                        *slot = Some(result);
                    }
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut results = Vec::with_capacity(count);
    let mut failed = None;
    for result in done.into_iter().flatten() {
        match result {
            Ok(value) => results.push(value),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(results), Err)
}

/// Repeats are ours: with new signatures, without jitter.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn s3(name: &str, connector: Connector, config: &StoreConfig) -> object_store::Result<Box<dyn Client>> {
    let mut builder = AmazonS3Builder::new();
    for (key, value) in config.with_prefix("AWS_") {
        if let Ok(key) = key.parse() {
            builder = builder.with_config(key, value);
        }
    }
    let builder = builder
        .with_config(object_store::aws::AmazonS3ConfigKey::DisableBulkDelete, "true")
        .with_region(config.region())
        .with_bucket_name(name)
        .with_retry(no_retries())
        .with_http_connector(connector);
    Ok(Box::new(builder.build()?))
}

fn gs(name: &str, connector: Connector, config: &StoreConfig) -> object_store::Result<Box<dyn Client>> {
    let mut builder = GoogleCloudStorageBuilder::new();
    for (key, value) in config.with_prefix("GOOGLE_") {
        if let Ok(key) = key.parse() {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(path) = config.var("SERVICE_ACCOUNT") {
        builder = builder.with_service_account_path(path);
    }
    if let Some(host) = config.var("STORAGE_EMULATOR_HOST") {
        let url = if host.contains("://") { host.to_owned() } else { format!("http://{host}") };
        // Writes ask for credentials even where reads are not signed.
        let anyone = GcpCredential { bearer: "emulator".to_owned() };
        builder = builder
            .with_config(object_store::gcp::GoogleConfigKey::BaseUrl, url)
            .with_credentials(Arc::new(StaticCredentialProvider::new(anyone)));
    }
    let builder = builder.with_bucket_name(name).with_retry(no_retries()).with_http_connector(connector);
    Ok(Box::new(builder.build()?))
}

/// The text of the cause at the bottom.
pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let text = cause.to_string();
    // Queries hold signatures.
    let words = text.split_whitespace().map(|word| match word.split_once('?') {
        Some((address, _)) if address.contains("://") => address,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
