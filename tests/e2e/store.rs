use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use potable::store::{Store, StoreConfig, StoreError};

use crate::hub_stub::StubClock;
use crate::s3_stub::{Fault, S3Stub};

const URI: &str = "s3://bucket/work";

/// The error and its hint.
fn said(error: &StoreError) -> String {
    format!("{error}\nhint: {}", error.hint().unwrap_or_default())
}

fn numbers(len: usize) -> Vec<u8> {
    (0..len as u64 / 8).flat_map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect()
}

/// What every store promises.
fn keeps_its_promises(store: &Store) {
    assert!(store.get("a/b").unwrap_err().is_not_found());
    assert_eq!(store.size("a/b").unwrap(), None);
    assert_eq!(store.list("").unwrap(), []);
    store.put("a/b", b"one").unwrap();
    store.put("a/b", b"two!").unwrap();
    assert_eq!(&store.get("a/b").unwrap()[..], b"two!");
    assert_eq!(&store.get_range("a/b", 1..3).unwrap()[..], b"wo");
    assert_eq!(&store.get_range("a/b", 2..2).unwrap()[..], b"");
    assert!(matches!(store.get_range("a/b", 1..5), Err(StoreError::OutOfRange { .. })));
    assert!(matches!(store.get_range("a/b", 7..9), Err(StoreError::OutOfRange { .. })));
    assert!(store.put_new("a/new", b"first").unwrap());
    assert!(!store.put_new("a/new", b"second").unwrap());
    assert_eq!(&store.get("a/new").unwrap()[..], b"first");
    for name in ["c/1", "c/2", "c/d/3", "cc", "e f+g%&=é"] {
        store.put(name, name.as_bytes()).unwrap();
    }
    let names =
        |prefix: &str| store.list(prefix).unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(""), ["a/b", "a/new", "c/1", "c/2", "c/d/3", "cc", "e f+g%&=é"]);
    assert_eq!(names("c"), ["c/1", "c/2", "c/d/3"]);
    assert_eq!(store.below("c").list("").unwrap(), [("1".into(), 3), ("2".into(), 3), ("d/3".into(), 5)]);
    let folder = tempfile::tempdir().unwrap();
    for len in [0, 8, 20 << 20] {
        let from = folder.path().join("from");
        let to = folder.path().join("made/to");
        Store::at(folder.path()).put("from", &numbers(len)).unwrap();
        store.put_file("big", &from).unwrap();
        assert_eq!(store.size("big").unwrap(), Some(len as u64));
        store.fetch("big", &to).unwrap();
        assert!(std::fs::read(to).unwrap() == numbers(len), "{len}");
    }
    assert!(store.fetch("absent", &folder.path().join("x")).unwrap_err().is_not_found());
    store.delete("a/b").unwrap();
    store.delete("a/b").unwrap();
    assert_eq!(names("a"), ["a/new"]);
    for name in ["", "/a", "a//b", "../x", "a/./b", "a/"] {
        assert!(matches!(store.put(name, b""), Err(StoreError::BadName { .. })), "{name}");
    }
}

#[test]
fn a_folder_keeps_its_promises() {
    let folder = tempfile::tempdir().unwrap();
    keeps_its_promises(&Store::open(folder.path().join("deep/er").to_str().unwrap()).unwrap());
}

#[test]
fn a_bucket_of_s3_keeps_its_promises() {
    let stub = S3Stub::new();
    keeps_its_promises(&stub.open(URI));
    assert!(stub.keys().iter().all(|key| key.starts_with("work/")));
    assert_eq!(stub.open_uploads(), 0);
    assert!(stub.requests("GET", "continuation-token").len() > 1, "listings have several pages");
    let signed = &stub.requests("PUT", "work/a/b")[0].headers["authorization"];
    assert!(signed.contains("AKIDFORTESTS") && signed.contains("test-region-1"), "{signed}");
}

#[test]
fn a_bucket_of_google_keeps_its_promises() {
    let stub = S3Stub::new();
    keeps_its_promises(&stub.open("gs://bucket/work"));
}

#[test]
fn of_many_writers_of_a_new_name_one_is_told_that_it_wrote() {
    let stub = S3Stub::new();
    let store = stub.open(URI);
    let won: Vec<u8> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8u8)
            .map(|n| {
                let store = &store;
                scope.spawn(move || store.put_new("name", &[n; 1000]).unwrap().then_some(n))
            })
            .collect();
        writers.into_iter().filter_map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(won.len(), 1);
    assert_eq!(stub.object("work/name").unwrap(), vec![won[0]; 1000]);
}

#[test]
fn passing_trouble_is_waited_out_with_the_same_waits_each_time() {
    for (status, code) in
        [(500, "InternalError"), (503, "SlowDown"), (429, "TooManyRequests"), (408, "RequestTimeout")]
    {
        let stub = S3Stub::new();
        let (store, clock) = stub.open_with_clock(URI);
        for method in ["PUT", "GET", "HEAD", "DELETE"] {
            stub.fault(method, "work", Fault::Answer(status, code), 3);
        }
        store.put("x", b"bytes").unwrap();
        assert_eq!(&store.get("x").unwrap()[..], b"bytes");
        assert_eq!(store.size("x").unwrap(), Some(5));
        store.delete("x").unwrap();
        let waits: Vec<Duration> = [200, 400, 800].map(Duration::from_millis).repeat(4);
        assert_eq!(clock.waits(), waits, "{status}");
    }
}

#[test]
fn the_wait_that_the_store_asks_for_is_kept() {
    let stub = S3Stub::new();
    let (store, clock) = stub.open_with_clock(URI);
    stub.fault("PUT", "x", Fault::AnswerWith(503, "SlowDown", "retry-after", "7"), 1);
    stub.fault("PUT", "x", Fault::AnswerWith(503, "SlowDown", "retry-after", "99999"), 1);
    store.put("x", b"").unwrap();
    assert_eq!(clock.waits(), [7, 60].map(Duration::from_secs));
}

#[test]
fn trouble_that_does_not_pass_ends_with_the_count_of_attempts() {
    let stub = S3Stub::new();
    stub.fault("GET", "x", Fault::Answer(503, "SlowDown"), 99);
    let error = stub.open(URI).get("x").unwrap_err();
    assert_eq!(
        said(&error),
        "s3://bucket/work/x: answered 503: SlowDown: said the stub (attempts: 4)\n\
         hint: check network, endpoint and proxy, and run again: what is finished is kept"
    );
}

#[test]
fn a_body_that_is_cut_is_asked_for_again_and_never_handed_on() {
    let stub = S3Stub::new();
    let store = stub.open(URI);
    stub.put("work/x", numbers(4000));
    stub.fault("GET", "x", Fault::Cut(1000), 2);
    assert_eq!(store.get("x").unwrap(), numbers(4000));
    stub.fault("GET", "x", Fault::Cut(10), 2);
    assert_eq!(store.get_range("x", 8..1000).unwrap(), numbers(4000)[8..1000]);
    stub.fault("GET", "x", Fault::Cut(0), 99);
    let error = store.get("x").unwrap_err();
    assert!(matches!(error, StoreError::Transport { attempts: 4, .. }), "{error}");
}

#[test]
fn a_range_of_another_length_is_not_handed_on() {
    let stub = S3Stub::new();
    let store = stub.open(URI);
    stub.put("work/x", numbers(4000));
    stub.fault("GET", "x", Fault::ShortRange, 1);
    assert_eq!(store.get_range("x", 8..1000).unwrap(), numbers(4000)[8..1000]);
    stub.fault("GET", "x", Fault::ShortRange, 99);
    let error = store.get_range("x", 8..1000).unwrap_err();
    assert_eq!(error.to_string(), "s3://bucket/work/x: Requested 8..1000, got 8..999");
}

#[test]
fn an_answer_that_is_lost_does_not_make_a_new_object_look_old() {
    let stub = S3Stub::new();
    let store = stub.open(URI);
    stub.fault("PUT", "mine", Fault::LostAnswer, 1);
    assert!(store.put_new("mine", b"mine").unwrap());
    store.put("theirs", b"theirs").unwrap();
    stub.fault("PUT", "theirs", Fault::HangUp, 1);
    assert!(!store.put_new("theirs", b"mine").unwrap());
}

#[test]
fn an_upload_in_parts_outlives_faults_of_every_step() {
    let stub = S3Stub::new();
    let store = stub.open(URI);
    let folder = tempfile::tempdir().unwrap();
    Store::at(folder.path()).put("from", &numbers(20 << 20)).unwrap();
    stub.fault("POST", "uploads", Fault::Answer(500, "InternalError"), 1);
    stub.fault("PUT", "partNumber", Fault::Answer(503, "SlowDown"), 2);
    stub.fault("PUT", "partNumber", Fault::HangUp, 1);
    stub.fault("POST", "uploadId", Fault::ErrorInSuccess("InternalError"), 1);
    stub.fault("POST", "uploadId", Fault::LostAnswer, 1);
    store.put_file("x", &folder.path().join("from")).unwrap();
    assert!(stub.object("work/x").unwrap() == numbers(20 << 20));
    assert_eq!(stub.open_uploads(), 0);
}

#[test]
fn an_upload_in_parts_that_fails_leaves_nothing() {
    let stub = S3Stub::new();
    let folder = tempfile::tempdir().unwrap();
    Store::at(folder.path()).put("from", &numbers(20 << 20)).unwrap();
    stub.fault("PUT", "partNumber=2", Fault::Answer(403, "AccessDenied"), 99);
    let error = stub.open(URI).put_file("x", &folder.path().join("from")).unwrap_err();
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    assert_eq!((stub.keys().len(), stub.open_uploads()), (0, 0));
}

#[test]
fn a_fetch_that_fails_leaves_no_file() {
    let stub = S3Stub::new();
    stub.put("work/x", numbers(20 << 20));
    stub.fault("GET", "x", Fault::Cut(100), 999);
    let folder = tempfile::tempdir().unwrap();
    stub.open(URI).fetch("x", &folder.path().join("to")).unwrap_err();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_object_that_changes_between_two_ranges_is_an_error() {
    let stub = S3Stub::new();
    let store = stub.open(URI);
    stub.put("work/x", numbers(800));
    let tag = store.stat("x").unwrap().unwrap().tag;
    assert!(tag.is_some());
    store.get_range_of("x", 0..8, tag.as_deref()).unwrap();
    stub.put("work/x", numbers(1600));
    let error = store.get_range_of("x", 8..16, tag.as_deref()).unwrap_err();
    assert!(said(&error).starts_with("s3://bucket/work/x: was changed while it was read\nhint: "), "{error}");
}

#[test]
fn a_store_that_ignores_the_condition_is_found_out_at_once() {
    let stub = S3Stub::new();
    stub.fault("PUT", "", Fault::Unconditional, 99);
    for _ in 0..2 {
        // Nothing is left that who tries again would go on with.
        let error = stub.open(URI).put_new("x", b"x").unwrap_err();
        assert!(said(&error).contains("`If-None-Match` is ignored"), "{error}");
        assert!(stub.keys().is_empty(), "{:?}", stub.keys());
    }
}

#[test]
fn bad_input_no_such_bucket() {
    let stub = S3Stub::new();
    let store = stub.open("s3://buckte/work");
    for error in [
        store.get("x").unwrap_err(),
        store.size("x").unwrap_err(),
        store.put("x", b"").unwrap_err(),
        store.list("").unwrap_err(),
    ] {
        assert!(said(&error).contains(": there is no bucket `buckte`\nhint: check the spelling"), "{error}");
    }
}

#[test]
fn bad_input_access_denied() {
    let stub = S3Stub::new();
    stub.fault("GET", "x", Fault::Answer(403, "AccessDenied"), 9);
    let error = stub.open(URI).get("x").unwrap_err();
    assert_eq!(
        said(&error),
        "s3://bucket/work/x: access is refused (status 403): AccessDenied: said the stub\n\
         hint: use credentials that may list, read and write there"
    );
    assert_eq!(stub.requests("GET", "x").len(), 1, "a refusal is not repeated");
}

#[test]
fn bad_input_wrong_key_clock_and_token() {
    for (status, code, hint) in [
        (403, "SignatureDoesNotMatch", "check AWS_ACCESS_KEY_ID"),
        (403, "InvalidAccessKeyId", "check AWS_ACCESS_KEY_ID"),
        (403, "RequestTimeTooSkewed", "set the clock"),
        (400, "ExpiredToken", "make new credentials"),
    ] {
        let stub = S3Stub::new();
        stub.fault("GET", "x", Fault::Answer(status, code), 9);
        let error = stub.open(URI).get("x").unwrap_err();
        assert!(said(&error).contains(hint), "{}", said(&error));
    }
}

#[test]
fn bad_input_wrong_region() {
    let stub = S3Stub::new();
    stub.fault(
        "GET",
        "x",
        Fault::AnswerWith(301, "PermanentRedirect", "x-amz-bucket-region", "eu-west-1"),
        9,
    );
    let error = stub.open(URI).get("x").unwrap_err();
    assert_eq!(
        said(&error),
        "s3://bucket/work/x: the bucket is not in region `test-region-1` but in `eu-west-1`\n\
         hint: set AWS_REGION=eu-west-1"
    );
}

#[test]
fn bad_input_no_credentials() {
    let stub = S3Stub::new();
    let vars = stub.vars().into_iter().filter(|(name, _)| !name.contains("KEY"));
    let config = StoreConfig::new(vars, Arc::new(StubClock::default())).unwrap();
    let error = Store::open_with(URI, config).unwrap().get("x").unwrap_err();
    assert!(
        said(&error).starts_with(
            "s3://bucket/work/x: no credentials for `s3://` were found\nhint: set AWS_ACCESS_KEY_ID and"
        ),
        "{error}"
    );
}

#[test]
fn bad_input_half_of_the_credentials() {
    let stub = S3Stub::new();
    let vars = stub.vars().into_iter().filter(|(name, _)| name != "AWS_SECRET_ACCESS_KEY");
    let config = StoreConfig::new(vars, Arc::new(StubClock::default())).unwrap();
    let error = Store::open_with(URI, config).unwrap_err().to_string();
    assert!(error.contains("SecretAccessKey"), "{error}");
}

#[test]
fn bad_input_nobody_listens() {
    // The caller's end of a connection: a port that nobody listens at, and that nobody else gets while it is held.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let endpoint = format!("http://{}", caller.local_addr().unwrap());
    let vars =
        [("AWS_ENDPOINT_URL", endpoint.as_str()), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut config = StoreConfig::new(vars, Arc::new(StubClock::default())).unwrap();
    config.retries = 2;
    let error = Store::open_with(URI, config).unwrap().get("x").unwrap_err();
    assert!(matches!(error, StoreError::Transport { attempts: 3, .. }), "{error}");
}

#[test]
fn errors_never_show_the_secret() {
    let stub = S3Stub::new();
    for (status, code) in [(403, "AccessDenied"), (500, "InternalError"), (404, "NoSuchBucket"), (400, "Bad")]
    {
        stub.fault("GET", "", Fault::Answer(status, code), 4);
        let store = stub.open(URI);
        let error = store.get("x").unwrap_err();
        let all = format!("{error} {error:?} {store:?}");
        assert!(!all.contains("hunter2secret") && !all.contains("X-Amz-Signature"), "{all}");
        stub.fault("GET", "list-type", Fault::Answer(status, code), 4);
    }
}
