//! The Hub client against a stub: what it asks for, what it accepts, what it leaves in the cache.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use potable::source::hub::{Hub, HubConfig, HubError, HubFile, Identity, RepoAt, RepoKind, RepoRef, Token};
use serde_json::Value;
use tempfile::TempDir;

use super::harness::{put, skipped};
use super::hub_stub::{Fault, Host, HubStub, StubClock, git_blob, sha256};

pub const KIB: usize = 1024;

/// A stub, a client of it, and the client's cache.
pub struct Bench {
    pub stub: HubStub,
    pub hub: Hub,
    pub clock: std::sync::Arc<StubClock>,
    folder: TempDir,
}

impl Bench {
    pub fn new(change: impl FnOnce(&mut HubConfig)) -> Bench {
        let (stub, folder) = (HubStub::new(), tempfile::tempdir().unwrap());
        let (mut config, clock) = stub.config(&folder.path().join("hub"));
        change(&mut config);
        Bench { stub, hub: Hub::new(config).unwrap(), clock, folder }
    }

    /// Another client with the same cache.
    pub fn again(&self, change: impl FnOnce(&mut HubConfig)) -> Hub {
        let mut config = self.hub.config().clone();
        change(&mut config);
        Hub::new(config).unwrap()
    }

    pub fn offline(&self) -> Hub {
        self.again(|config| config.offline = true)
    }

    /// The repository `a/b` at `main`.
    pub fn main(&self) -> RepoAt {
        self.hub.resolve(RepoKind::Dataset, "a/b", "main").unwrap()
    }

    /// One large file `x.bin` in `a/b`.
    pub fn with_file(bytes: &[u8], change: impl FnOnce(&mut HubConfig)) -> (Bench, RepoRef, HubFile) {
        let bench = Bench::new(change);
        bench.stub.dataset("a/b").lfs("x.bin", bytes);
        let listing = bench.main();
        let file = listing.file("x.bin").unwrap().clone();
        (bench, listing.at, file)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a download that was broken off leaves.
    pub fn incomplete(&self, file: &HubFile) -> PathBuf {
        self.cached("blobs").join(format!("{}.incomplete", file.identity.hex()))
    }

    /// The repository's folder in the cache.
    pub fn cached(&self, name: &str) -> PathBuf {
        self.path("hub/datasets--a--b").join(name)
    }
}

/// Bytes that are not the same anywhere.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = len as u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

pub fn nothing(_bytes: u64) {}

fn file(path: &str, size: usize, identity: Identity) -> HubFile {
    HubFile { path: path.to_owned(), size: size as u64, identity }
}

#[test]
fn a_revision_becomes_a_commit_with_all_its_files() {
    let bench = Bench::new(|_| ());
    let repo = bench.stub.dataset("a/b");
    repo.lfs("data/train-0.parquet", "PAR1").plain("README.md", "hello\n").plain("empty", "").licence("mit");
    let listing = bench.main();
    assert_eq!(listing.at, RepoRef::new(RepoKind::Dataset, "a/b", &repo.commit()).unwrap());
    assert_eq!((listing.revision.as_str(), listing.gated), ("main", false));
    assert_eq!(listing.licence.as_deref(), Some("mit"));
    let expected = [
        // `git hash-object` of the two small files.
        file("README.md", 6, Identity::GitBlob("ce013625030ba8dba906f756967f9e9ca394464a".to_owned())),
        file("data/train-0.parquet", 4, Identity::Sha256(sha256(b"PAR1"))),
        file("empty", 0, Identity::GitBlob("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391".to_owned())),
    ];
    assert_eq!(listing.files, expected);
    let requests = bench.stub.requests();
    assert!(requests.iter().all(|request| request.accept_encoding.as_deref() == Some("identity")));
    assert!(requests.iter().all(|request| request.authorization.is_none()));
}

#[test]
fn branches_tags_and_conversions_are_revisions_and_a_commit_stays_what_it_was() {
    let bench = Bench::new(|_| ());
    let repo = bench.stub.dataset("a/b");
    repo.lfs("old.parquet", "old").tag("v1").tag("refs/convert/parquet");
    let old = repo.commit();
    repo.lfs("new.parquet", "new");
    for revision in ["v1", "refs/convert/parquet", old.as_str()] {
        let listing = bench.hub.resolve(RepoKind::Dataset, "a/b", revision).unwrap();
        assert_eq!((listing.at.commit.as_str(), listing.files.len()), (old.as_str(), 1), "{revision}");
    }
    assert_eq!(bench.main().files.len(), 2);
    assert_eq!(bench.stub.requests_of(Host::Hub, "/revision/refs%2Fconvert%2Fparquet").len(), 1);
}

#[test]
fn a_listing_of_several_pages_is_read_to_its_end() {
    let bench = Bench::new(|_| ());
    bench.stub.page(3);
    let repo = bench.stub.dataset("a/b");
    for n in 0..20 {
        repo.lfs(&format!("part {n:02}.parquet"), format!("{n}"));
    }
    let listing = bench.main();
    assert_eq!(listing.files.len(), 20);
    assert_eq!(bench.stub.requests_of(Host::Hub, "cursor=").len(), 6);
}

#[test]
fn a_renamed_repository_is_found_and_its_files_are_read() {
    let bench = Bench::new(|_| ());
    bench.stub.dataset("new/name").lfs("x.parquet", "new bytes").plain("y.txt", "y");
    bench.stub.rename("datasets/a/b", "datasets/new/name");
    let listing = bench.main();
    for file in &listing.files {
        bench.hub.check_access(&listing.at, &file.path).unwrap();
        bench.hub.fetch(&listing.at, file, &nothing).unwrap();
    }
    assert_eq!(listing.files.len(), 2);
}

#[test]
fn a_model_is_a_repository_too() {
    let bench = Bench::new(|_| ());
    let folder = bench.path("local");
    put(&folder.join("onnx/tokenizer.json"), b"{}");
    bench.stub.model("Qwen/Qwen3").folder(&folder);
    let listing = bench.hub.resolve(RepoKind::Model, "Qwen/Qwen3", "main").unwrap();
    let fetched = bench.hub.fetch(&listing.at, &listing.files[0], &nothing).unwrap();
    assert_eq!(std::fs::read(fetched.path).unwrap(), b"{}");
    assert!(bench.path("hub/models--Qwen--Qwen3").is_dir());
}

#[test]
fn a_download_lies_in_the_cache_as_python_lays_it() {
    let bench = Bench::new(|_| ());
    bench.stub.resolve_cache();
    let bytes = noise(300 * KIB);
    bench.stub.dataset("a/b").lfs("data/x.parquet", bytes.as_slice()).plain("README.md", "hello\n");
    let listing = bench.main();
    let commit = &listing.at.commit;
    for (path, bytes) in [("data/x.parquet", bytes.as_slice()), ("README.md", b"hello\n")] {
        let file = listing.file(path).unwrap();
        assert_eq!(bench.hub.cached(&listing.at, file), None);
        let told = AtomicU64::new(0);
        let fetched =
            bench.hub.fetch(&listing.at, file, &|n| _ = told.fetch_add(n, Ordering::Relaxed)).unwrap();
        assert_eq!(told.into_inner(), file.size);
        assert_eq!((fetched.sha256, fetched.size), (sha256(bytes), file.size));
        assert_eq!((fetched.transferred, fetched.retries, fetched.from_cache), (file.size, 0, false));
        assert_eq!(fetched.path, bench.cached("snapshots").join(commit).join(path));
        assert_eq!(std::fs::read(&fetched.path).unwrap(), bytes);
        let blob = std::fs::canonicalize(&fetched.path).unwrap();
        assert_eq!(blob, std::fs::canonicalize(bench.cached("blobs").join(file.identity.hex())).unwrap());
        assert!(std::fs::read_link(&fetched.path).unwrap().is_relative());
        assert_eq!(bench.hub.cached(&listing.at, file), Some(fetched.path));
        assert!(!bench.incomplete(file).exists());
    }
    assert_eq!(std::fs::read_to_string(bench.cached("refs/main")).unwrap(), *commit);
    assert!(bench.path("hub/.locks/datasets--a--b").is_dir());
}

#[test]
fn a_ref_is_written_with_the_first_file_and_moved_only_by_resolving() {
    let (bench, old, file) = Bench::with_file(b"old", |_| ());
    let read = || std::fs::read_to_string(bench.cached("refs/main")).ok();
    assert_eq!(read(), None, "no file, no ref");
    // In another run, which has the commit from a lock.
    bench.again(|_| ()).fetch(&old, &file, &nothing).unwrap();
    assert_eq!(read().as_ref(), Some(&old.commit));
    bench.stub.dataset("a/b").lfs("x.bin", "new");
    let new = bench.main();
    bench.hub.fetch(&new.at, &new.files[0], &nothing).unwrap();
    assert_eq!(read().as_ref(), Some(&new.at.commit));
    bench.again(|_| ()).fetch(&old, &file, &nothing).unwrap();
    assert_eq!(read().as_ref(), Some(&new.at.commit), "an old lock does not move it back");
}

#[test]
fn a_file_that_python_downloaded_is_used_and_checked() {
    let bench = Bench::new(|_| ());
    bench.stub.dataset("a/b").lfs("x.parquet", "the bytes");
    let listing = bench.main();
    let file = &listing.files[0];
    let blob = bench.cached("blobs").join(file.identity.hex());
    let snapshot = bench.cached("snapshots").join(&listing.at.commit);
    std::fs::create_dir_all(&snapshot).unwrap();
    put(&blob, b"the bytes");
    let target = Path::new("../../blobs").join(file.identity.hex());
    std::os::unix::fs::symlink(target, snapshot.join("x.parquet")).unwrap();
    bench.stub.forget_requests();
    let fetched = bench.offline().fetch(&listing.at, file, &nothing).unwrap();
    assert!(fetched.from_cache && fetched.transferred == 0);
    assert_eq!(fetched.sha256, sha256(b"the bytes"));
    assert!(bench.stub.requests().is_empty());
}

#[test]
fn bytes_that_another_commit_brought_are_not_fetched_again() {
    let bench = Bench::new(|_| ());
    let repo = bench.stub.dataset("a/b");
    repo.lfs("x.parquet", "same");
    let old = bench.main();
    bench.hub.fetch(&old.at, &old.files[0], &nothing).unwrap();
    repo.lfs("y.parquet", "other").remove("x.parquet").lfs("moved/x.parquet", "same");
    let new = bench.main();
    assert_ne!(new.at, old.at);
    let sent = bench.stub.stored_bytes_sent();
    let fetched = bench.hub.fetch(&new.at, new.file("moved/x.parquet").unwrap(), &nothing).unwrap();
    assert!(fetched.from_cache);
    assert_eq!(std::fs::read(fetched.path).unwrap(), b"same");
    assert_eq!(bench.stub.stored_bytes_sent(), sent);
}

#[test]
fn offline_the_cache_answers_for_listing_access_and_files() {
    let bench = Bench::new(|_| ());
    bench.stub.dataset("a/b").lfs("x.parquet", "x").lfs("y.parquet", "y").licence("mit");
    let listing = bench.main();
    bench.hub.fetch(&listing.at, listing.file("x.parquet").unwrap(), &nothing).unwrap();
    bench.stub.forget_requests();
    let offline = bench.offline();
    assert_eq!(offline.resolve(RepoKind::Dataset, "a/b", "main").unwrap(), listing);
    offline.check_access(&listing.at, "x.parquet").unwrap();
    assert!(bench.stub.requests().is_empty());
}

#[test]
fn a_big_file_comes_in_ranges_over_one_signed_address() {
    let bytes = noise(1000 * KIB);
    let (bench, repo, file) = Bench::with_file(&bytes, |config| config.range_bytes = 300 * KIB as u64);
    let fetched = bench.hub.fetch(&repo, &file, &nothing).unwrap();
    assert_eq!(std::fs::read(fetched.path).unwrap(), bytes);
    let ranges: Vec<_> =
        bench.stub.requests_of(Host::Store, "").into_iter().map(|r| r.range.unwrap()).collect();
    assert_eq!(
        ranges,
        ["bytes=0-307199", "bytes=307200-614399", "bytes=614400-921599", "bytes=921600-1023999"]
    );
    assert_eq!(bench.stub.requests_of(Host::Hub, "/resolve/").len(), 1);
}

#[test]
fn what_an_earlier_try_left_is_not_transferred_again() {
    let bytes = noise(500 * KIB);
    let (bench, repo, file) = Bench::with_file(&bytes, |config| config.range_bytes = 100 * KIB as u64);
    let stop = bench.hub.config().stop.clone();
    let error = bench.hub.fetch(&repo, &file, &|_| stop.store(true, Ordering::Relaxed)).unwrap_err();
    assert!(matches!(error, HubError::Interrupted), "{error}");
    let incomplete = bench.incomplete(&file);
    let left = std::fs::metadata(&incomplete).unwrap().len();
    assert!(left > 0 && bench.hub.cached(&repo, &file).is_none());
    let told = AtomicU64::new(0);
    let hub = bench.again(|config| config.stop = std::sync::Arc::default());
    let fetched = hub.fetch(&repo, &file, &|n| _ = told.fetch_add(n, Ordering::Relaxed)).unwrap();
    assert_eq!(fetched.transferred, file.size - left);
    assert_eq!(told.into_inner(), file.size);
    assert_eq!(std::fs::read(fetched.path).unwrap(), bytes);
    assert!(bench.stub.stored_bytes_sent() <= file.size + 100 * KIB as u64);
}

#[test]
fn leftovers_that_are_not_the_start_of_the_file_are_thrown_away() {
    let bytes = noise(200 * KIB);
    for left in [noise(77 * KIB), noise(200 * KIB + 1), noise(200 * KIB).into_iter().rev().collect()] {
        let (bench, repo, file) = Bench::with_file(&bytes, |_| ());
        put(&bench.incomplete(&file), &left);
        let fetched = bench.hub.fetch(&repo, &file, &nothing).unwrap();
        assert_eq!(std::fs::read(fetched.path).unwrap(), bytes);
        assert_eq!(fetched.sha256, sha256(&bytes));
    }
}

#[test]
fn a_cached_file_that_is_damaged_is_fetched_again_and_offline_it_is_an_error() {
    let (bench, repo, file) = Bench::with_file(b"sound bytes", |_| ());
    let path = bench.hub.fetch(&repo, &file, &nothing).unwrap().path;
    put(&path, b"wrong bytes");
    let error = bench.offline().fetch(&repo, &file, &nothing).unwrap_err();
    assert!(matches!(error, HubError::DigestMismatch { .. }), "{error}");
    let fetched = bench.hub.fetch(&repo, &file, &nothing).unwrap();
    assert!(!fetched.from_cache);
    assert_eq!(std::fs::read(path).unwrap(), b"sound bytes");
}

#[test]
fn two_clients_at_once_fetch_a_file_once() {
    let bytes = noise(400 * KIB);
    let (bench, repo, file) = Bench::with_file(&bytes, |config| config.range_bytes = 50 * KIB as u64);
    let hubs: Vec<Hub> = (0..4).map(|_| bench.again(|_| ())).collect();
    let fetched: Vec<_> = std::thread::scope(|scope| {
        let run = |hub: &Hub| hub.fetch(&repo, &file, &nothing).unwrap();
        let threads: Vec<_> = hubs.iter().map(|hub| scope.spawn(move || run(hub))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(fetched.iter().filter(|fetched| !fetched.from_cache).count(), 1);
    assert_eq!(bench.stub.stored_bytes_sent(), file.size);
}

#[test]
fn the_log_has_a_line_for_each_transfer_and_no_signature() {
    let (bench, repo, file) = Bench::with_file(b"0123456789", |_| ());
    bench.stub.token("hf_secret");
    let hub = bench.again(|config| config.token = Some(Token::new("hf_secret", "HF_TOKEN").unwrap()));
    hub.fetch(&repo, &file, &nothing).unwrap();
    hub.fetch(&repo, &file, &nothing).unwrap();
    hub.open_ranges(&repo, &file).unwrap().read_at(2, 3).unwrap();
    let log = hub.take_log();
    let url = format!("{}/datasets/a/b/resolve/{}/x.bin", bench.stub.endpoint(), repo.commit);
    let lines: Vec<_> = log.iter().map(|line| (line.url.as_str(), line.bytes, line.from_cache)).collect();
    assert_eq!(lines, [(url.as_str(), 10, false), (url.as_str(), 0, true), (url.as_str(), 3, false)]);
    assert_eq!(log[0].sha256.as_deref(), Some(sha256(b"0123456789").as_str()));
    assert!(log[2].sha256.is_none() && log[2].ranges.as_ref().unwrap().starts_with("sha256:"));
    assert_eq!((log[0].when.as_str(), log[0].retries), ("2026-11-30T00:53:20Z", 0));
    let text = format!("{}{:?}", serde_json::to_string(&log).unwrap(), hub);
    assert!(!text.contains("Signature") && !text.contains("hf_secret"), "{text}");
    assert!(hub.take_log().is_empty());
    assert!(bench.hub.take_log().is_empty(), "a listing is no transfer");
}

#[test]
fn ranges_are_read_by_many_threads_and_their_digest_knows_no_order() {
    let bytes = noise(256 * KIB);
    let (bench, repo, file) = Bench::with_file(&bytes, |_| ());
    let forth = bench.hub.open_ranges(&repo, &file).unwrap();
    let back = bench.hub.open_ranges(&repo, &file).unwrap();
    assert_eq!(forth.len(), bytes.len() as u64);
    let parts: Vec<usize> = (0..16).collect();
    let (whole, part_of) = (&bytes, &forth);
    std::thread::scope(|scope| {
        for chunk in parts.chunks(4) {
            scope.spawn(move || {
                for part in chunk {
                    let at = part * 16 * KIB;
                    assert_eq!(part_of.read_at(at as u64, 1000).unwrap(), whole[at..at + 1000]);
                }
            });
        }
    });
    for part in parts.iter().rev() {
        back.read_at((part * 16 * KIB) as u64, 1000).unwrap();
    }
    // Once more: the same part counts once.
    back.read_at(0, 1000).unwrap();
    assert_eq!(forth.digest(), back.digest());
    back.read_at(1000, 1).unwrap();
    assert_ne!(forth.digest(), back.digest());
    assert_eq!(forth.transferred(), 16_000);
    assert!(back.read_at(0, 0).unwrap().is_empty());
}

#[test]
fn a_stream_is_the_whole_file_proven_at_its_end() {
    let bytes = noise(300 * KIB);
    let (bench, repo, file) = Bench::with_file(&bytes, |_| ());
    let mut stream = bench.hub.open_stream(&repo, &file).unwrap();
    assert!(bench.stub.requests_of(Host::Store, "").is_empty());
    let mut read = Vec::new();
    stream.read_to_end(&mut read).unwrap();
    assert_eq!(read, bytes);
    assert_eq!(stream.sha256(), Some(sha256(&bytes).as_str()));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    let log = bench.hub.take_log();
    assert_eq!((log[0].bytes, log[0].sha256.clone()), (file.size, Some(sha256(&bytes))));
    assert!(!bench.cached("blobs").exists(), "a stream keeps no copy");
}

#[test]
fn small_and_empty_files_are_streamed_and_fetched() {
    let bench = Bench::new(|_| ());
    bench.stub.resolve_cache();
    bench.stub.dataset("a/b").plain("small.jsonl", "{}\n").plain("empty.txt", "").lfs("empty.parquet", "");
    let listing = bench.main();
    for file in &listing.files {
        let mut text = String::new();
        bench.hub.open_stream(&listing.at, file).unwrap().read_to_string(&mut text).unwrap();
        let fetched = bench.hub.fetch(&listing.at, file, &nothing).unwrap();
        assert_eq!(std::fs::read_to_string(fetched.path).unwrap(), text);
        assert_eq!(text, if file.size > 0 { "{}\n" } else { "" });
    }
    assert_eq!(listing.file("small.jsonl").unwrap().identity.hex(), git_blob(b"{}\n"));
}

#[test]
fn an_expired_signature_is_renewed() {
    let bytes = noise(600 * KIB);
    let (bench, repo, file) = Bench::with_file(&bytes, |config| config.range_bytes = 100 * KIB as u64);
    bench.stub.signature_uses(2);
    let fetched = bench.hub.fetch(&repo, &file, &nothing).unwrap();
    assert_eq!(std::fs::read(fetched.path).unwrap(), bytes);
    assert_eq!(bench.stub.stored_bytes_sent() - refused(&bench.stub), file.size);
    assert_eq!(bench.stub.requests_of(Host::Hub, "/resolve/").len(), 3);
    // A refused address is never asked again.
    let denied: Vec<_> =
        bench.stub.requests_of(Host::Store, "").into_iter().filter(|r| r.status == 403).collect();
    assert_eq!(denied.len(), 2);
    let ranges = bench.hub.open_ranges(&repo, &file).unwrap();
    for part in 0..6 {
        let at = part * 100 * KIB;
        assert_eq!(ranges.read_at(at as u64, 10).unwrap(), bytes[at..at + 10]);
    }
}

/// Bytes of refusals.
fn refused(stub: &HubStub) -> u64 {
    stub.requests_of(Host::Store, "").iter().filter(|r| r.status == 403).map(|r| r.sent).sum()
}

#[test]
fn a_rate_limit_is_waited_for_as_the_hub_says() {
    let limited = |headers: Vec<(&'static str, String)>| {
        let (bench, repo, file) = Bench::with_file(b"bytes", |_| ());
        let answer = Fault::Answer(429, headers, "Too many requests".to_owned());
        bench.stub.fault(Host::Hub, "/resolve/", answer, 2);
        let fetched = bench.hub.fetch(&repo, &file, &nothing).unwrap();
        assert_eq!(fetched.retries, 2);
        bench.clock.waits().iter().map(|wait| wait.as_millis()).collect::<Vec<_>>()
    };
    let window = |left: u32| ("RateLimit", format!("\"resolvers\";r={left};t=55"));
    assert_eq!(limited(vec![window(0)]), [56_000, 56_000]);
    assert_eq!(limited(vec![window(0), ("Retry-After", "7".to_owned())]), [56_000, 56_000]);
    assert_eq!(limited(vec![window(12), ("Retry-After", "7".to_owned())]), [7_000, 7_000]);
    let date = "Mon, 30 Nov 2026 00:53:30 GMT".to_owned();
    assert_eq!(limited(vec![("Retry-After", date)]), [10_000, 0]);
    assert_eq!(limited(vec![]), [500, 1_000]);
}

#[test]
fn broken_servers_are_tried_again_ever_more_slowly() {
    let (bench, repo, file) = Bench::with_file(b"bytes", |_| ());
    let broken = |status| Fault::Answer(status, Vec::new(), "<html>oops</html>".to_owned());
    bench.stub.fault(Host::Store, "", broken(503), 2);
    bench.stub.fault(Host::Store, "", broken(500), 1);
    bench.stub.fault(Host::Store, "", Fault::HangUp, 2);
    let fetched = bench.hub.fetch(&repo, &file, &nothing).unwrap();
    assert_eq!((fetched.retries, fetched.transferred), (5, 5));
    let waits: Vec<_> = bench.clock.waits().iter().map(|wait| wait.as_millis()).collect();
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000]);
}

#[test]
fn the_environment_is_read_as_pythons_client_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().to_str().unwrap();
    let config = |vars: &[(&str, &str)]| {
        HubConfig::from_vars(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    };
    let token = |vars: &[(&str, &str)]| config(vars).unwrap().token.map(|token| token.source().to_owned());
    let cache = |vars: &[(&str, &str)]| config(vars).unwrap().cache_dir;
    assert_eq!(cache(&[("HOME", "/h")]), Path::new("/h/.cache/huggingface/hub"));
    assert_eq!(cache(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), Path::new("/x/huggingface/hub"));
    assert_eq!(cache(&[("HF_HOME", "/hf")]), Path::new("/hf/hub"));
    assert_eq!(cache(&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c")]), Path::new("/c"));
    assert!(config(&[]).is_err());

    assert_eq!(token(&[("HF_HOME", home)]), None);
    let path = folder.path().join("token");
    put(&path, b"hf_file\n");
    assert_eq!(token(&[("HF_HOME", home)]), Some(path.display().to_string()));
    assert_eq!(
        token(&[("HF_HOME", "/nowhere"), ("HF_TOKEN_PATH", path.to_str().unwrap())]),
        Some(path.display().to_string())
    );
    assert_eq!(token(&[("HF_HOME", home), ("HF_TOKEN", "hf_x")]), Some("HF_TOKEN".to_owned()));
    assert_eq!(token(&[("HF_HOME", home), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
    let error = config(&[("HF_HOME", home), ("HF_TOKEN", "hf_\u{e9}x")]).unwrap_err().to_string();
    assert!(error.contains("HF_TOKEN") && !error.contains("hf_"), "{error}");

    let whole = config(&[
        ("HF_HOME", home),
        ("HF_ENDPOINT", "https://mirror.test/hub/"),
        ("HF_HUB_OFFLINE", "YES"),
        ("ALL_PROXY", "socks5://p.test:1"),
        ("HTTPS_PROXY", "http://q.test:2"),
        ("NO_PROXY", "a.test, .b.test"),
    ])
    .unwrap();
    assert_eq!((whole.endpoint.as_str(), whole.offline), ("https://mirror.test/hub", true));
    assert_eq!(whole.proxies.http.as_deref(), Some("socks5://p.test:1"));
    assert_eq!(whole.proxies.https.as_deref(), Some("http://q.test:2"));
    assert_eq!(whole.proxies.no_proxy, ["a.test", ".b.test"]);
    assert!(!format!("{whole:?}").contains("hf_file"));
    let timeouts = config(&[("HF_HOME", home), ("HF_HUB_DOWNLOAD_TIMEOUT", "7")]).unwrap().timeouts;
    assert_eq!(timeouts.idle, Duration::from_secs(7));
    assert!(config(&[("HF_HOME", home), ("HF_HUB_ETAG_TIMEOUT", "soon")]).is_err());
    for endpoint in ["huggingface.co", "ftp://x", "https://", "https://user@host"] {
        assert!(config(&[("HF_HOME", home), ("HF_ENDPOINT", endpoint)]).is_err(), "{endpoint}");
    }
}

#[test]
fn a_proxy_is_used_and_no_proxy_goes_round_it() {
    let (bench, repo, file) = Bench::with_file(b"bytes", |_| ());
    let proxied = |no_proxy: &[&str]| {
        let hub = bench.again(|config| {
            config.endpoint = bench.stub.endpoint().replace("127.0.0.1", "hub.test");
            config.proxies.http = Some(bench.stub.endpoint());
            config.proxies.no_proxy = no_proxy.iter().map(|&host| host.to_owned()).collect();
            config.retries = 0;
        });
        bench.stub.forget_requests();
        hub.check_access(&repo, &file.path)
    };
    proxied(&[]).unwrap();
    assert!(bench.stub.requests().iter().all(|request| request.proxied));
    assert_eq!(bench.stub.requests().len(), 1);
    assert!(proxied(&["hub.test"]).is_err(), "that host does not exist");
    assert!(bench.stub.requests().is_empty());
}

/// Recorded answers of the real Hub; none on a machine without them.
fn recorded() -> Option<Vec<Value>> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/hub/recorded_hf_dataset_responses.json");
    let Ok(text) = std::fs::read(&path) else {
        skipped("no recorded answers on this machine");
        return None;
    };
    Some(serde_json::from_slice(&text).unwrap())
}

/// The first recorded answer to such a request.
fn answer<'a>(recorded: &'a [Value], method: &str, url: &str) -> &'a Value {
    let fits = |a: &&Value| a["method"] == method && a["url"].as_str().unwrap().contains(url);
    recorded.iter().find(fits).unwrap()
}

/// Makes the stub give a recorded answer to requests for `ask`.
fn replay(bench: &Bench, answer: &Value, ask: &str) {
    let mut names = vec!["ETag", "X-Repo-Commit", "X-Error-Code", "X-Error-Message", "Content-Type", "Vary"];
    if answer["method"] == "HEAD" {
        names.push("Content-Length");
    }
    let header = |name: &'static str| Some((name, answer["response_headers"][name][0].as_str()?.to_owned()));
    let headers = names.into_iter().filter_map(header).collect();
    let status = u16::try_from(answer["status"].as_u64().unwrap()).unwrap();
    let body = answer["body"].as_str().unwrap().to_owned();
    bench.stub.fault(Host::Hub, ask, Fault::Answer(status, headers, body), usize::MAX);
}

fn recorded_listing(bench: &Bench, recorded: &[Value]) -> RepoAt {
    replay(bench, answer(recorded, "GET", "/revision/"), "/revision/");
    replay(bench, answer(recorded, "GET", "/tree/"), "/tree/");
    bench.hub.resolve(RepoKind::Dataset, "zed-industries/zeta", "main").unwrap()
}

#[test]
fn recorded_listings_and_heads_of_the_real_hub_are_understood() {
    let Some(recorded) = recorded() else { return };
    let bench = Bench::new(|_| ());
    let listing = recorded_listing(&bench, &recorded);
    assert_eq!(listing.at.commit, "0f41422bc56fa0f9a5b3096e7e6f42905497d793");
    assert_eq!((listing.licence.as_deref(), listing.gated), (Some("apache-2.0"), false));
    for path in ["train.jsonl", "eval.jsonl", "dpo.jsonl", "README.md"] {
        let head = answer(&recorded, "HEAD", path);
        let file = listing.file(path).unwrap();
        assert_eq!(head["response_headers"]["ETag"][0], format!("\"{}\"", file.identity.hex()), "{path}");
        assert_eq!(head["response_headers"]["Content-Length"][0], file.size.to_string(), "{path}");
        replay(&bench, head, &format!("/{path}"));
        bench.hub.check_access(&listing.at, path).unwrap();
    }
    replay(&bench, answer(&recorded, "HEAD", "zeta.py"), "/zeta.py");
    let error = bench.hub.check_access(&listing.at, "zeta.py").unwrap_err();
    assert!(matches!(error, HubError::EntryNotFound { .. }), "{error}");
}

#[test]
fn a_recorded_body_of_the_real_hub_is_what_its_listing_promises() {
    let Some(recorded) = recorded() else { return };
    let bench = Bench::new(|_| ());
    let listing = recorded_listing(&bench, &recorded);
    let file = listing.file("README.md").unwrap();
    replay(&bench, answer(&recorded, "GET", "README.md"), "/README.md");
    let fetched = bench.hub.fetch(&listing.at, file, &nothing).unwrap();
    assert_eq!((fetched.size, fetched.from_cache), (2234, false));
    assert_eq!(bench.offline().cached(&listing.at, file), Some(fetched.path));
}
