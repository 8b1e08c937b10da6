//! Answers of a Hub that cannot be used, and other trouble on the way: one test for each.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;

use potable::source::hub::{Hub, HubConfig, HubError, HubFile, Identity, RepoKind, RepoRef, Token};

use super::harness::{put, ran, skipped};
use super::hub::{Bench, KIB, noise, nothing};
use super::hub_stub::{Fault, Host, sha256};

const CHILD: &str = "hub_bad_input::what_other_processes_run";

fn token(secret: &'static str) -> impl FnOnce(&mut HubConfig) {
    move |config| config.token = Some(Token::new(secret, "HF_TOKEN").unwrap())
}

/// Asserts the words of message and hint.
fn says(error: &HubError, words: &[&str]) {
    let text = format!("{error}\nhint: {}", error.hint().unwrap_or_default());
    for word in words {
        assert!(text.contains(word), "`{word}` is not in:\n{text}");
    }
}

/// Neither the file nor its blob is there.
fn is_not_named(bench: &Bench, repo: &RepoRef, file: &HubFile) {
    assert_eq!(bench.hub.cached(repo, file), None);
    assert!(!bench.cached("blobs").join(file.identity.hex()).exists());
    assert!(!bench.cached("snapshots").exists());
}

#[test]
fn gated_without_access_names_the_page_to_accept_the_terms() {
    for (secret, who) in [(None, "a client without a token"), (Some("hf_other"), "the account of your token")]
    {
        let bench = Bench::new(|config| {
            if let Some(secret) = secret {
                token(secret)(config);
            }
        });
        bench.stub.token("hf_other");
        bench.stub.dataset("a/b").lfs("x.parquet", "secret").gated(&["hf_good"]);
        let listing = bench.main();
        assert!(listing.gated);
        // At plan time, by one request that reads nothing.
        let page = format!("{}/datasets/a/b", bench.stub.endpoint());
        let error = bench.hub.check_access(&listing.at, "x.parquet").unwrap_err();
        says(&error, &["datasets/a/b: is gated", who, &page, "accept the terms", "HF_TOKEN"]);
        let error = bench.hub.fetch(&listing.at, &listing.files[0], &nothing).unwrap_err();
        says(&error, &["is gated", &page]);
        let error = bench.hub.open_ranges(&listing.at, &listing.files[0]).unwrap().read_at(0, 1).unwrap_err();
        assert!(matches!(error, HubError::Gated { .. }));
        let with_access = bench.again(token("hf_good"));
        bench.stub.token("hf_good");
        with_access.check_access(&listing.at, "x.parquet").unwrap();
        with_access.fetch(&listing.at, &listing.files[0], &nothing).unwrap();
    }
}

#[test]
fn a_wrong_token_is_named_by_its_source_and_not_by_its_value() {
    let bench = Bench::new(token("hf_expired"));
    bench.stub.dataset("a/b").lfs("x.parquet", "x");
    let error = bench.hub.resolve(RepoKind::Dataset, "a/b", "main").unwrap_err();
    assert!(matches!(error, HubError::BadToken { .. }), "{error}");
    says(&error, &["refuses the token from HF_TOKEN", "Invalid credentials", "new token"]);
    assert!(!error.to_string().contains("hf_expired"));
}

#[test]
fn a_missing_repository() {
    let bench = Bench::new(|_| ());
    let error = bench.hub.resolve(RepoKind::Dataset, "no/such", "main").unwrap_err();
    assert!(matches!(error, HubError::RepoNotFound { .. }), "{error}");
    says(&error, &["datasets/no/such", "or it is private", "HF_TOKEN"]);
    bench.stub.dataset("a/b").private();
    assert!(matches!(
        bench.hub.resolve(RepoKind::Dataset, "a/b", "main"),
        Err(HubError::RepoNotFound { .. })
    ));
    let before = bench.stub.requests().len();
    for id in ["a/b/c", "../b", "a b"] {
        assert!(matches!(bench.hub.resolve(RepoKind::Dataset, id, "main"), Err(HubError::BadId { .. })));
    }
    assert_eq!(bench.stub.requests().len(), before, "a name that cannot be is not asked for");
}

#[test]
fn a_missing_revision() {
    let bench = Bench::new(|_| ());
    bench.stub.dataset("a/b").lfs("x.parquet", "x");
    for revision in ["v9", "0123456789012345678901234567890123456789"] {
        let error = bench.hub.resolve(RepoKind::Dataset, "a/b", revision).unwrap_err();
        assert!(matches!(error, HubError::RevisionNotFound { .. }), "{error}");
        says(&error, &["datasets/a/b", revision, "40 hex digits"]);
    }
    for revision in ["", "../main", "/main"] {
        let error = bench.hub.resolve(RepoKind::Dataset, "a/b", revision).unwrap_err();
        assert!(matches!(error, HubError::BadRevision { .. }), "{error}");
    }
}

#[test]
fn a_missing_file() {
    let bench = Bench::new(|_| ());
    bench.stub.dataset("a/b").lfs("x.parquet", "x");
    let at = bench.main().at;
    let error = bench.hub.check_access(&at, "y.parquet").unwrap_err();
    says(&error, &[&at.place("y.parquet"), "no such file"]);
    let file = HubFile { path: "y.parquet".into(), size: 1, identity: Identity::Sha256(sha256(b"y")) };
    let error = bench.hub.fetch(&at, &file, &nothing).unwrap_err();
    assert!(matches!(error, HubError::EntryNotFound { .. }), "{error}");
}

#[test]
fn a_disabled_repository() {
    let bench = Bench::new(|_| ());
    bench.stub.dataset("a/b").lfs("x.parquet", "x").disabled();
    let error = bench.hub.resolve(RepoKind::Dataset, "a/b", "main").unwrap_err();
    assert!(matches!(error, HubError::Disabled { .. }), "{error}");
}

#[test]
fn wrong_bytes_are_never_used_and_never_named_as_the_file() {
    let bytes = noise(100 * KIB);
    let (bench, repo, file) = Bench::with_file(&bytes, |_| ());
    bench.stub.fault(Host::Store, "", Fault::WrongByte, usize::MAX);
    let error = bench.hub.fetch(&repo, &file, &nothing).unwrap_err();
    assert!(matches!(error, HubError::DigestMismatch { .. }), "{error}");
    says(&error, &[&repo.place("x.bin"), "sha256", &sha256(&bytes), "not used"]);
    is_not_named(&bench, &repo, &file);
    let mut stream = bench.hub.open_stream(&repo, &file).unwrap();
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("has sha256"), "{error}");
    assert_eq!(stream.sha256(), None);
    assert!(stream.read(&mut [0; 9]).is_err(), "an error must not turn into an end");
    bench.stub.heal();
    assert_eq!(bench.hub.fetch(&repo, &file, &nothing).unwrap().sha256, sha256(&bytes));
}

#[test]
fn a_small_file_with_wrong_bytes_is_found_by_its_git_id() {
    let bench = Bench::new(|_| ());
    bench.stub.dataset("a/b").plain("small.txt", "some text");
    let listing = bench.main();
    bench.stub.fault(Host::Hub, "/resolve/", Fault::WrongByte, usize::MAX);
    let error = bench.hub.fetch(&listing.at, &listing.files[0], &nothing).unwrap_err();
    says(&error, &["git blob sha1", "was promised"]);
    is_not_named(&bench, &listing.at, &listing.files[0]);
}

#[test]
fn a_wrong_size_is_never_used() {
    for by in [1, -1] {
        let (bench, repo, file) = Bench::with_file(&noise(100 * KIB), |_| ());
        bench.stub.fault(Host::Store, "", Fault::Longer(by), usize::MAX);
        let error = bench.hub.fetch(&repo, &file, &nothing).unwrap_err();
        assert!(matches!(error, HubError::SizeMismatch { .. }), "{error}");
        says(
            &error,
            &[&repo.place("x.bin"), &format!("{} bytes", 100 * KIB as i64 + by), "102400 were promised"],
        );
        is_not_named(&bench, &repo, &file);
    }
}

#[test]
fn a_body_longer_than_the_file_without_an_announced_length() {
    let (bench, repo, file) = Bench::with_file(&noise(10 * KIB), |_| ());
    let headers = vec![("Transfer-Encoding", "chunked".to_owned()), ("Content-Length", "2000000".to_owned())];
    let body = format!("{:x}\r\n{}\r\n0\r\n\r\n", 20_000, "x".repeat(20_000));
    bench.stub.fault(Host::Store, "", Fault::Answer(200, headers, body), usize::MAX);
    let error = bench.hub.fetch(&repo, &file, &nothing).unwrap_err();
    assert!(matches!(error, HubError::SizeMismatch { .. } | HubError::Transport { .. }), "{error}");
    is_not_named(&bench, &repo, &file);
}

#[test]
fn what_the_redirect_says_of_the_file_has_to_be_what_the_listing_says() {
    let other = "1".repeat(64);
    for (name, value) in [
        ("X-Linked-Etag", format!("\"{other}\"")),
        ("X-Linked-Size", "9".to_owned()),
        ("X-Repo-Commit", "2".repeat(40)),
    ] {
        let (bench, repo, file) = Bench::with_file(b"bytes", |_| ());
        let store = format!("{}/elsewhere", bench.stub.endpoint().replace("127.0.0.1", "localhost"));
        let answer = Fault::Answer(302, vec![(name, value.clone()), ("Location", store)], String::new());
        bench.stub.fault(Host::Hub, "/resolve/", answer, usize::MAX);
        let error = bench.hub.fetch(&repo, &file, &nothing).unwrap_err();
        let right = match name {
            "X-Linked-Etag" => matches!(error, HubError::DigestMismatch { .. }),
            "X-Linked-Size" => matches!(error, HubError::SizeMismatch { .. }),
            _ => matches!(error, HubError::WrongCommit { .. }),
        };
        assert!(right, "{name}: {error}");
        assert!(bench.stub.requests_of(Host::Hub, "/elsewhere").is_empty());
    }
}

#[test]
fn a_server_that_ignores_ranges_gives_whole_files_but_no_parts() {
    let bytes = noise(500 * KIB);
    let (bench, repo, file) = Bench::with_file(&bytes, |config| config.range_bytes = 100 * KIB as u64);
    bench.stub.fault(Host::Store, "", Fault::IgnoreRange, usize::MAX);
    let error = bench.hub.open_ranges(&repo, &file).unwrap().read_at(1000, 10).unwrap_err();
    assert!(matches!(error, HubError::RangeIgnored { .. }), "{error}");
    says(&error, &[&repo.place("x.bin"), "ignores ranges", "--stream"]);
    bench.stub.forget_requests();
    // Of a download, what is there is passed over, and one answer brings the rest.
    put(&bench.incomplete(&file), &bytes[..150 * KIB]);
    let fetched = bench.hub.fetch(&repo, &file, &nothing).unwrap();
    assert_eq!(std::fs::read(fetched.path).unwrap(), bytes);
    assert_eq!(bench.stub.requests_of(Host::Store, "").len(), 1);
    // A stream that breaks goes on all the same.
    bench.stub.heal();
    bench.stub.fault(Host::Store, "", Fault::Cut(200 * KIB as u64), 1);
    bench.stub.fault(Host::Store, "", Fault::IgnoreRange, 1);
    let mut read = Vec::new();
    bench.hub.open_stream(&repo, &file).unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read, bytes);
}

#[test]
fn a_part_that_was_not_asked_for_is_refused() {
    let (bench, repo, file) = Bench::with_file(&noise(10 * KIB), |_| ());
    let ranges = bench.hub.open_ranges(&repo, &file).unwrap();
    for fault in [
        Fault::WrongRange,
        Fault::Headers(vec![("Content-Range", "bytes 100-109/99".to_owned())]),
        Fault::Headers(vec![("Content-Range", "nonsense".to_owned())]),
        Fault::Headers(vec![("Content-Encoding", "gzip".to_owned())]),
    ] {
        bench.stub.heal();
        bench.stub.fault(Host::Store, "", fault.clone(), usize::MAX);
        let error = ranges.read_at(100, 10).unwrap_err();
        assert!(
            matches!(error, HubError::BadReply { .. } | HubError::SizeMismatch { .. }),
            "{fault:?}: {error}"
        );
    }
    bench.stub.heal();
    ranges.read_at(100, 10).unwrap();
    assert!(matches!(ranges.read_at(105, 10), Err(HubError::Overlap { .. })));
    assert!(matches!(ranges.read_at(95, 6), Err(HubError::Overlap { .. })));
    assert!(matches!(ranges.read_at(95, 30), Err(HubError::Overlap { .. })));
    assert!(matches!(ranges.read_at(10_239, 2), Err(HubError::OutOfRange { .. })));
    ranges.read_at(95, 5).unwrap();
    ranges.read_at(110, 5).unwrap();
}

#[test]
fn an_html_page_is_not_the_file() {
    let (bench, repo, file) = Bench::with_file(b"bytes", |_| ());
    let page = "<html>log in</html>".to_owned();
    let headers = vec![("Content-Type", "text/html; charset=utf-8".to_owned())];
    bench.stub.fault(Host::Hub, "/resolve/", Fault::Answer(200, headers, page), usize::MAX);
    let error = bench.hub.fetch(&repo, &file, &nothing).unwrap_err();
    assert!(matches!(error, HubError::Html { .. }), "{error}");
    says(&error, &[&repo.place("x.bin"), "an HTML page", "proxy"]);
    is_not_named(&bench, &repo, &file);
    let error = bench.hub.open_stream(&repo, &file).unwrap().read(&mut [0; 9]).unwrap_err();
    assert!(error.to_string().contains("HTML"), "{error}");
}

#[test]
fn an_api_that_answers_with_a_page_or_no_commit() {
    for body in ["<html>", "{}", "{\"sha\": \"main\"}", "{\"sha\": 5}"] {
        let bench = Bench::new(|_| ());
        bench.stub.fault(Host::Hub, "/revision/", Fault::Answer(200, Vec::new(), body.to_owned()), 1);
        let error = bench.hub.resolve(RepoKind::Dataset, "a/b", "main").unwrap_err();
        assert!(matches!(error, HubError::BadReply { .. }), "{body}: {error}");
        says(&error, &["/api/datasets/a/b/revision/main", "HF_ENDPOINT"]);
    }
}

#[test]
fn a_connection_cut_at_every_64_kib() {
    let bytes = noise(1000 * KIB);
    let (bench, repo, file) = Bench::with_file(&bytes, |_| ());
    bench.stub.fault(Host::Store, "", Fault::Cut(64 * KIB as u64), usize::MAX);
    let fetched = bench.hub.fetch(&repo, &file, &nothing).unwrap();
    assert_eq!(std::fs::read(fetched.path).unwrap(), bytes);
    assert_eq!((fetched.transferred, fetched.retries), (file.size, 15));
    assert_eq!(bench.stub.stored_bytes_sent(), file.size, "no byte was sent twice");
    let mut read = Vec::new();
    bench.hub.open_stream(&repo, &file).unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read, bytes);
    let ranges = bench.hub.open_ranges(&repo, &file).unwrap();
    assert_eq!(ranges.read_at(5, 300 * KIB as u64).unwrap(), bytes[5..5 + 300 * KIB]);
    assert_eq!(bench.stub.stored_bytes_sent(), 2 * file.size + 300 * KIB as u64);
    // The wait after a cut does not grow as long as bytes come.
    assert!(bench.clock.waits().iter().all(|wait| *wait == Duration::from_millis(500)));
}

#[test]
fn connections_that_bring_nothing_are_given_up() {
    let (bench, repo, file) = Bench::with_file(b"bytes", |_| ());
    bench.stub.fault(Host::Store, "", Fault::Cut(0), usize::MAX);
    let error = bench.hub.fetch(&repo, &file, &nothing).unwrap_err();
    says(&error, &["attempts in a row: 7", "finished and begun downloads are kept"]);
    assert_eq!(bench.clock.waits().len(), 6);
    let url = error.to_string();
    assert!(!url.contains("Signature"), "{url}");
    let (bench, repo, file) = Bench::with_file(b"bytes", |_| ());
    bench.stub.signature_uses(0);
    assert!(matches!(bench.hub.fetch(&repo, &file, &nothing), Err(HubError::Transport { .. })));
}

#[test]
fn a_server_that_ignores_ranges_and_always_cuts_is_given_up() {
    let (bench, repo, file) = Bench::with_file(&noise(300 * KIB), |_| ());
    bench.stub.fault(Host::Store, "", Fault::Cut(64 * KIB as u64), 1);
    // From now on each answer starts at the first byte and ends before a new one.
    let headers = vec![("Content-Length", (300 * KIB).to_string())];
    bench.stub.fault(Host::Store, "", Fault::Answer(200, headers, "x".repeat(10)), usize::MAX);
    let hub = bench.again(|config| config.timeouts.idle = Duration::from_millis(50));
    let error = hub.fetch(&repo, &file, &nothing).unwrap_err();
    assert!(matches!(error, HubError::Transport { .. }), "{error}");
}

#[test]
fn a_server_that_never_answers_runs_into_a_timeout() {
    let (bench, repo, file) = Bench::with_file(&noise(100 * KIB), |_| ());
    bench.stub.fault(Host::Store, "", Fault::Stall(1000), usize::MAX);
    let hub = bench.again(|config| {
        config.timeouts.idle = Duration::from_millis(50);
        config.retries = 0;
    });
    let error = hub.fetch(&repo, &file, &nothing).unwrap_err();
    assert!(matches!(error, HubError::Transport { .. }), "{error}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hub = bench.again(|config| {
        config.endpoint = format!("http://{}", listener.local_addr().unwrap());
        config.timeouts.response = Duration::from_millis(50);
        config.retries = 0;
    });
    let error = hub.resolve(RepoKind::Dataset, "a/b", "main").unwrap_err();
    assert!(matches!(error, HubError::Transport { .. }), "{error}");
}

#[test]
fn a_rate_limit_without_end_is_an_error() {
    let (bench, repo, file) = Bench::with_file(b"bytes", |_| ());
    let limited = |seconds: &str| {
        Fault::Answer(429, vec![("Retry-After", seconds.to_owned())], "Too many requests".to_owned())
    };
    bench.stub.fault(Host::Hub, "/resolve/", limited("100"), usize::MAX);
    let error = bench.hub.fetch(&repo, &file, &nothing).unwrap_err();
    says(&error, &["wait 100 more seconds after 12 waits", "HF_TOKEN"]);
    bench.stub.heal();
    bench.stub.fault(Host::Hub, "/resolve/", limited("86400"), usize::MAX);
    let error = bench.hub.fetch(&repo, &file, &nothing).unwrap_err();
    says(&error, &["wait 86400 more seconds after 0 waits"]);
}

#[test]
fn a_redirect_to_another_host_does_not_carry_the_token() {
    let (bench, repo, file) = Bench::with_file(&noise(300 * KIB), |_| ());
    bench.stub.token("hf_good");
    bench.stub.dataset("a/b").gated(&["hf_good"]);
    bench.stub.fault(Host::Store, "", Fault::Cut(100 * KIB as u64), 1);
    bench.stub.forget_requests();
    let hub = bench.again(token("hf_good"));
    hub.check_access(&repo, &file.path).unwrap();
    hub.fetch(&repo, &file, &nothing).unwrap();
    hub.open_ranges(&repo, &file).unwrap().read_at(0, 10).unwrap();
    hub.open_stream(&repo, &file).unwrap().read_to_end(&mut Vec::new()).unwrap();
    let requests = bench.stub.requests();
    assert!(requests.iter().any(|request| request.host == Host::Store));
    for request in requests {
        let expected = (request.host == Host::Hub).then_some("Bearer hf_good");
        assert_eq!(request.authorization.as_deref(), expected, "{request:?}");
    }
    // The API may redirect too: another name of the same machine is another host.
    let elsewhere = format!("{}/api/x", bench.stub.endpoint().replace("127.0.0.1", "localhost"));
    let answer = Fault::Answer(302, vec![("Location", elsewhere)], String::new());
    bench.stub.fault(Host::Hub, "/revision/", answer, 1);
    bench.stub.forget_requests();
    let _refused = hub.resolve(RepoKind::Dataset, "a/b", "main").unwrap_err();
    let asked = bench.stub.requests_of(Host::Hub, "/api/x");
    assert!(!asked.is_empty() && asked.iter().all(|request| request.authorization.is_none()));
}

#[test]
fn redirects_in_a_circle() {
    let (bench, repo, file) = Bench::with_file(b"bytes", |_| ());
    let circle = Fault::Answer(307, vec![("Location", "/datasets/a/b/resolve/x".to_owned())], String::new());
    bench.stub.fault(Host::Hub, "/resolve/", circle, usize::MAX);
    says(&bench.hub.fetch(&repo, &file, &nothing).unwrap_err(), &["too many redirects"]);
    says(&bench.hub.check_access(&repo, "x.bin").unwrap_err(), &["too many redirects"]);
}

#[test]
fn a_revision_that_moved_is_seen_and_the_old_commit_still_read() {
    let (bench, locked, file) = Bench::with_file(b"old bytes", |_| ());
    bench.stub.dataset("a/b").lfs("x.bin", "new bytes");
    let now = bench.main();
    assert_ne!(now.at.commit, locked.commit);
    assert_ne!(now.file("x.bin").unwrap().identity, file.identity);
    let fetched = bench.hub.fetch(&locked, &file, &nothing).unwrap();
    assert_eq!(std::fs::read(fetched.path).unwrap(), b"old bytes");
}

#[test]
fn offline_with_an_incomplete_cache() {
    let bench = Bench::new(|_| ());
    bench.stub.dataset("a/b").lfs("x.parquet", "x").lfs("y.parquet", "y");
    let listing = bench.main();
    bench.hub.fetch(&listing.at, &listing.files[0], &nothing).unwrap();
    bench.stub.forget_requests();
    let offline = bench.offline();
    let missing = &listing.files[1];
    let cache = bench.path("hub");
    for error in [
        offline.fetch(&listing.at, missing, &nothing).unwrap_err(),
        offline.check_access(&listing.at, &missing.path).unwrap_err(),
        offline.open_ranges(&listing.at, missing).unwrap_err(),
        offline.open_stream(&listing.at, missing).err().unwrap(),
        offline.resolve(RepoKind::Dataset, "a/b", "v2").unwrap_err(),
        offline.resolve(RepoKind::Dataset, "c/d", "main").unwrap_err(),
    ] {
        assert!(matches!(error, HubError::Offline { .. }), "{error}");
        says(&error, &[cache.to_str().unwrap(), "HF_HUB_OFFLINE"]);
    }
    offline.fetch(&listing.at, &listing.files[0], &nothing).unwrap();
    assert!(bench.stub.requests().is_empty());
}

#[test]
fn offline_with_a_cache_that_does_not_tell_which_files_there_are() {
    let (bench, repo, file) = Bench::with_file(b"bytes", |_| ());
    bench.hub.fetch(&repo, &file, &nothing).unwrap();
    // As another client leaves it.
    std::fs::remove_dir_all(bench.cached(".potable")).unwrap();
    let error = bench.offline().resolve(RepoKind::Dataset, "a/b", "main").unwrap_err();
    assert!(matches!(error, HubError::ListingUnknown { .. }), "{error}");
    says(&error, &["datasets/a/b@main", "not the list of all", "potable lock"]);
    // With a lock there is no need to ask.
    assert!(bench.offline().fetch(&repo, &file, &nothing).unwrap().from_cache);
}

#[test]
fn a_listing_that_is_cut_is_asked_for_again() {
    let bench = Bench::new(|_| ());
    bench.stub.dataset("a/b").lfs("x.parquet", "x");
    bench.stub.fault(Host::Hub, "/tree/", Fault::Cut(40), 2);
    bench.stub.fault(Host::Hub, "/revision/", Fault::Cut(0), 1);
    assert_eq!(bench.main().files.len(), 1);
    assert_eq!(bench.clock.waits().len(), 3);
}

#[test]
fn file_names_that_leave_their_folder_are_refused() {
    for path in ["../x", "/etc/x", "a/../../x", "a\\..\\x"] {
        let bench = Bench::new(|_| ());
        bench.stub.dataset("a/b").lfs(path, "x");
        let error = bench.hub.resolve(RepoKind::Dataset, "a/b", "main").unwrap_err();
        assert!(matches!(error, HubError::UnsafePath { .. }), "{error}");
        says(&error, &["would leave its folder", path]);
        let at = RepoRef::new(RepoKind::Dataset, "a/b", &"1".repeat(40)).unwrap();
        let file = HubFile { path: path.to_owned(), size: 1, identity: Identity::Sha256(sha256(b"x")) };
        assert!(matches!(bench.hub.fetch(&at, &file, &nothing), Err(HubError::UnsafePath { .. })));
        assert!(matches!(bench.hub.open_ranges(&at, &file), Err(HubError::UnsafePath { .. })));
        assert_eq!(bench.hub.cached(&at, &file), None);
    }
}

/// Trouble of which each bout passes.
fn trouble() -> impl Strategy<Value = Vec<Fault>> {
    let status = |status| Fault::Answer(status, Vec::new(), String::new());
    let one = prop_oneof![
        (1..40_000_u64).prop_map(Fault::Cut),
        Just(Fault::HangUp),
        Just(Fault::IgnoreRange),
        Just(status(500)),
        Just(status(403)),
        Just(Fault::Headers(Vec::new())),
    ];
    proptest::collection::vec(one, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever happens on the way: all bytes and the right ones. Bytes come twice only from servers
    /// that ignore ranges.
    #[test]
    fn trouble_that_passes_changes_no_byte(
        size in 1..100_000_usize,
        range in 1_000..60_000_u64,
        left in 0..50_000_usize,
        faults in trouble(),
    ) {
        let bytes = noise(size);
        let (bench, repo, file) = Bench::with_file(&bytes, |config| {
            config.range_bytes = range;
            config.retries = 20;
        });
        let left = left.min(size);
        put(&bench.incomplete(&file), &bytes[..left]);
        let ignores = faults.iter().any(|fault| matches!(fault, Fault::IgnoreRange));
        for fault in &faults {
            bench.stub.fault(Host::Store, "", fault.clone(), 1);
        }
        let fetched = bench.hub.fetch(&repo, &file, &nothing).unwrap();
        prop_assert_eq!(std::fs::read(fetched.path).unwrap(), bytes.clone());
        prop_assert!(ignores || fetched.transferred == (size - left) as u64);
        bench.stub.heal();
        for fault in faults {
            bench.stub.fault(Host::Store, "", fault, 1);
        }
        let mut read = Vec::new();
        bench.hub.open_stream(&repo, &file).unwrap().read_to_end(&mut read).unwrap();
        prop_assert_eq!(read, bytes);
    }
}

/// The part of the two tests below that runs in a process of its own; by itself it has nothing to do.
#[test]
#[expect(clippy::print_stderr, reason = "the report of a process of its own")]
fn what_other_processes_run() {
    let Ok(request) = std::env::var("POTABLE_TEST_FETCH") else { return };
    let (repo, file, range): (RepoRef, HubFile, u64) = serde_json::from_str(&request).unwrap();
    let mut config = HubConfig::from_env().unwrap();
    config.range_bytes = range;
    match Hub::new(config).unwrap().fetch(&repo, &file, &nothing) {
        Ok(fetched) => eprintln!("fetched {}", fetched.transferred),
        Err(e) => eprintln!(
            "error: {e}: {:?}\nhint: {}",
            std::error::Error::source(&e),
            e.hint().unwrap_or_default()
        ),
    }
}

/// This program again, to fetch a file into `home`/hub.
fn child(bench: &Bench, program: &str, request: &(RepoRef, HubFile, u64)) -> Command {
    let mut command = Command::new(program);
    bench.stub.command(&mut command, &bench.path("home"));
    command.env("POTABLE_TEST_FETCH", serde_json::to_string(request).unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_kill_in_mid_download_costs_one_range_at_most() {
    let bytes = noise(1000 * KIB);
    let range = 200 * KIB as u64;
    let (bench, repo, file) = Bench::with_file(&bytes, |_| ());
    let request = (repo, file, range);
    let this = std::env::current_exe().unwrap();
    let run = || {
        let mut command = child(&bench, this.to_str().unwrap(), &request);
        command.args(["--exact", CHILD, "--nocapture"]);
        command
    };
    // The third range stops in its middle, and there the process is killed.
    bench.stub.fault(Host::Store, "", Fault::Headers(Vec::new()), 2);
    bench.stub.fault(Host::Store, "", Fault::Stall(100 * KIB as u64), 1);
    let mut victim = run().spawn().unwrap();
    while bench.stub.stored_bytes_sent() < 500 * KIB as u64 {
        assert!(victim.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    bench.stub.go_on();
    let second = ran(&mut run());
    assert!(second.stderr.contains("fetched "), "{}", second.stderr);
    let sent = bench.stub.stored_bytes_sent();
    assert!(sent <= file_size(&request) + range, "{sent} bytes were sent");
    let blob = bench.path("home/hub/datasets--a--b/blobs").join(request.1.identity.hex());
    assert_eq!(std::fs::read(blob).unwrap(), bytes);
}

fn file_size(request: &(RepoRef, HubFile, u64)) -> u64 {
    request.1.size
}

#[test]
fn a_disk_that_is_full_keeps_what_there_is_for_later() {
    let bytes = noise(300 * KIB);
    let (bench, repo, file) = Bench::with_file(&bytes, |_| ());
    let request = (repo, file, 32 << 20);
    std::fs::create_dir_all(bench.path("home/hub")).unwrap();
    let probe = ["-rm", "sh", "-ec", "mount -t tmpfs -o size=64k none ."];
    let mut unshare = Command::new("unshare");
    let probed = unshare.args(probe).current_dir(bench.path("home")).output();
    if !probed.is_ok_and(|output| output.status.success()) {
        return skipped("no mount namespace on this machine");
    }
    let this = std::env::current_exe().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=200k none home/hub; cd home/hub
        {this} --exact {CHILD} --nocapture; ls -lR . >&2; echo more-room >&2
        mount -o remount,size=2m .; {this} --exact {CHILD} --nocapture; ls -lR . >&2",
        this = this.display()
    );
    let mut command = child(&bench, "unshare", &request);
    let ran = ran(command.args(["-rm", "sh", "-ec", &script]).current_dir(bench.path(".")));
    let (first, second) = ran.stderr.split_once("more-room").unwrap();
    for word in [
        "the disk is full",
        "bytes of the file are missing",
        "No space left on device",
        "HF_HUB_CACHE",
        ".incomplete",
    ] {
        assert!(first.contains(word), "`{word}` is not in\n{first}");
    }
    assert!(!first.contains("snapshots"), "{first}");
    let transferred: u64 =
        second.split_once("fetched ").unwrap().1.split_whitespace().next().unwrap().parse().unwrap();
    assert!(transferred < request.1.size && transferred > 0, "{transferred}");
    assert!(second.contains("x.bin ->") && !second.contains(".incomplete"), "{second}");
}

#[test]
fn a_stop_from_outside_ends_a_wait_and_a_transfer() {
    let (bench, repo, file) = Bench::with_file(&noise(100 * KIB), |_| ());
    bench.hub.config().stop.store(true, Ordering::Relaxed);
    assert!(matches!(bench.hub.fetch(&repo, &file, &nothing), Err(HubError::Interrupted)));
    let mut stream = bench.hub.open_stream(&repo, &file).unwrap();
    assert_eq!(stream.read(&mut [0; 9]).unwrap_err().to_string(), "interrupted");
}
