//! Object stores in this process, on a port of the loopback: S3's protocol, and that of Google's where
//! it differs (`x-goog-if-generation-match`). It can be told to answer badly, and keeps what it was
//! asked. No tests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use potable::store::{Store, StoreConfig};
use sha2::{Digest as _, Sha256};

use crate::hub_stub::StubClock;

/// The store. Ends with the value.
pub struct S3Stub {
    state: Arc<State>,
    address: SocketAddr,
}

/// A way to answer badly.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This status, with this code in an XML body.
    Answer(u16, &'static str),
    /// As `Answer`, with one header more.
    AnswerWith(u16, &'static str, &'static str, &'static str),
    /// The connection ends after so many bytes of the body.
    Cut(usize),
    /// Nothing comes.
    HangUp,
    /// The request is carried out, and its answer is lost.
    LostAnswer,
    /// An answer of status 200 whose text is an error.
    ErrorInSuccess(&'static str),
    /// The range is one byte too short, and says so.
    ShortRange,
    /// `If-None-Match` is not looked at.
    Unconditional,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub headers: BTreeMap<String, String>,
}

#[derive(Default)]
struct State {
    inner: Mutex<Inner>,
    ended: AtomicBool,
}

#[derive(Default)]
struct Inner {
    buckets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    uploads: BTreeMap<String, BTreeMap<usize, Vec<u8>>>,
    rules: Vec<(String, String, Fault, usize)>,
    requests: Vec<Request>,
    next: usize,
}

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    cut: Option<usize>,
}

/// Names of a page of a listing.
const PAGE: usize = 3;

impl S3Stub {
    /// A store with one bucket, `bucket`.
    pub fn new() -> S3Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        state.inner.lock().unwrap().buckets.insert("bucket".to_owned(), BTreeMap::new());
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ended.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), state) = (stream, shared.clone()) else { continue };
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        S3Stub { state, address }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Variables of the environment that lead here.
    pub fn vars(&self) -> Vec<(String, String)> {
        [
            ("AWS_ENDPOINT_URL", self.endpoint().as_str()),
            ("AWS_ACCESS_KEY_ID", "AKIDFORTESTS"),
            ("AWS_SECRET_ACCESS_KEY", "hunter2secret"),
            ("AWS_REGION", "test-region-1"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("STORAGE_EMULATOR_HOST", self.endpoint().as_str()),
            ("POTABLE_STORE_TIMEOUT", "600"),
            ("POTABLE_STORE_RETRIES", "3"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    /// A store of the bucket, whose waits take no time.
    pub fn open(&self, uri: &str) -> Store {
        self.open_with_clock(uri).0
    }

    pub fn open_with_clock(&self, uri: &str) -> (Store, Arc<StubClock>) {
        let clock = Arc::new(StubClock::default());
        let config = StoreConfig::new(self.vars(), clock.clone()).unwrap();
        (Store::open_with(uri, config).unwrap(), clock)
    }

    /// Makes a command use this store, and nothing of this machine's settings.
    pub fn command(&self, command: &mut Command) {
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "AWS_PROFILE", "AWS_SESSION_TOKEN"]
        {
            command.env_remove(name);
        }
        command
            .envs(self.vars())
            .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
            .env("NO_PROXY", "127.0.0.1");
    }

    pub fn put(&self, key: &str, bytes: impl Into<Vec<u8>>) {
        self.inner(|inner| inner.buckets.get_mut("bucket").unwrap().insert(key.to_owned(), bytes.into()));
    }

    pub fn remove(&self, key: &str) {
        self.inner(|inner| inner.buckets.get_mut("bucket").unwrap().remove(key));
    }

    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        self.inner(|inner| inner.buckets["bucket"].get(key).cloned())
    }

    pub fn keys(&self) -> Vec<String> {
        self.inner(|inner| inner.buckets["bucket"].keys().cloned().collect())
    }

    /// Uploads in parts that were neither ended nor given up.
    pub fn open_uploads(&self) -> usize {
        self.inner(|inner| inner.uploads.len())
    }

    /// Answers badly to the next `times` requests of this method whose target holds `part`.
    pub fn fault(&self, method: &str, part: &str, fault: Fault, times: usize) {
        self.inner(|inner| inner.rules.push((method.to_owned(), part.to_owned(), fault, times)));
    }

    pub fn requests(&self, method: &str, part: &str) -> Vec<Request> {
        let fits = |request: &&Request| request.method == method && request.target.contains(part);
        self.inner(|inner| inner.requests.iter().filter(fits).cloned().collect())
    }

    fn inner<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.state.inner.lock().unwrap())
    }
}

impl Drop for S3Stub {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        let _wakes_it_up = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream, state: &State) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    // A head and a body are two writes, which otherwise wait for each other's acknowledgement.
    stream.set_nodelay(true).unwrap();
    while let Some((request, body)) = read_request(&mut reader) {
        let mut inner = state.inner.lock().unwrap();
        inner.requests.push(request.clone());
        let fault = take_fault(&mut inner, &request);
        let Some(reply) = faulty(&mut inner, &request, &body, fault.as_ref()) else { return };
        drop(inner);
        if !send(&mut stream, &request, &reply) {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<(Request, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((Request { method, target, headers }, body))
}

fn take_fault(inner: &mut Inner, request: &Request) -> Option<Fault> {
    let fits = |(method, part, _, left): &&mut (String, String, Fault, usize)| {
        *left > 0 && *method == request.method && request.target.contains(part.as_str())
    };
    let (_, _, fault, left) = inner.rules.iter_mut().find(fits)?;
    *left -= 1;
    Some(fault.clone())
}

/// The answer, or none if the connection is to end.
fn faulty(inner: &mut Inner, request: &Request, body: &[u8], fault: Option<&Fault>) -> Option<Reply> {
    Some(match fault {
        Some(Fault::HangUp) => return None,
        Some(Fault::LostAnswer) => {
            answer(inner, request, body);
            return None;
        }
        Some(Fault::Answer(status, code)) => refusal(*status, code),
        Some(Fault::AnswerWith(status, code, name, value)) => {
            let mut reply = refusal(*status, code);
            reply.headers.push(((*name).to_owned(), (*value).to_owned()));
            reply
        }
        Some(Fault::ErrorInSuccess(code)) => Reply { status: 200, ..refusal(200, code) },
        Some(Fault::Cut(bytes)) => Reply { cut: Some(*bytes), ..answer(inner, request, body) },
        Some(Fault::ShortRange) => {
            let mut reply = answer(inner, request, body);
            reply.body.pop();
            for (name, value) in &mut reply.headers {
                if name == "content-range" {
                    let (range, size) = value.split_once('/').unwrap();
                    let (start, end) = range.strip_prefix("bytes ").unwrap().split_once('-').unwrap();
                    *value = format!("bytes {start}-{}/{size}", end.parse::<usize>().unwrap() - 1);
                }
            }
            reply
        }
        Some(Fault::Unconditional) => {
            let mut request = request.clone();
            request.headers.remove("if-none-match");
            answer(inner, &request, body)
        }
        None => answer(inner, request, body),
    })
}

fn refusal(status: u16, code: &str) -> Reply {
    let body =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>said the stub</Message></Error>");
    Reply { status, headers: Vec::new(), body: body.into_bytes(), cut: None }
}

fn good(headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Reply {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Reply { status: 200, headers, body: body.into(), cut: None }
}

fn tag(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

fn answer(inner: &mut Inner, request: &Request, body: &[u8]) -> Reply {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let query: BTreeMap<String, String> = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (name.to_owned(), decoded(value)))
        .collect();
    let path = decoded(path.trim_start_matches('/'));
    let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
    if !inner.buckets.contains_key(bucket) {
        return refusal(404, "NoSuchBucket");
    }
    match (request.method.as_str(), key) {
        ("GET", "") => listing(&inner.buckets[bucket], &query),
        ("GET" | "HEAD", _) => object(&inner.buckets[bucket], key, request),
        ("PUT", _) if query.contains_key("partNumber") => {
            let Some(parts) = inner.uploads.get_mut(&query["uploadId"]) else {
                return refusal(404, "NoSuchUpload");
            };
            parts.insert(query["partNumber"].parse().unwrap(), body.to_vec());
            good(&[("etag", &tag(body))], "")
        }
        ("PUT", _) => {
            let is_there = inner.buckets[bucket].contains_key(key);
            let new = request.headers.contains_key("if-none-match")
                || request.headers.get("x-goog-if-generation-match").is_some_and(|value| value == "0");
            if is_there && new {
                return refusal(412, "PreconditionFailed");
            }
            inner.buckets.get_mut(bucket).unwrap().insert(key.to_owned(), body.to_vec());
            good(&[("etag", &tag(body)), ("x-goog-generation", "1")], "")
        }
        ("POST", _) => upload(inner, (bucket, key), &query),
        ("DELETE", _) => {
            match query.get("uploadId") {
                Some(id) => drop(inner.uploads.remove(id)),
                None => drop(inner.buckets.get_mut(bucket).unwrap().remove(key)),
            }
            Reply { status: 204, ..good(&[], "") }
        }
        _ => refusal(501, "NotImplemented"),
    }
}

/// Begins an upload in parts, or ends it.
fn upload(inner: &mut Inner, (bucket, key): (&str, &str), query: &BTreeMap<String, String>) -> Reply {
    if query.contains_key("uploads") {
        inner.next += 1;
        let id = format!("upload-{}", inner.next);
        inner.uploads.insert(id.clone(), BTreeMap::new());
        return good(
            &[],
            format!(
                "<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{key}</Key><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
            ),
        );
    }
    let Some(parts) = inner.uploads.remove(&query["uploadId"]) else {
        return refusal(404, "NoSuchUpload");
    };
    let whole: Vec<u8> = parts.into_values().flatten().collect();
    let tag = tag(&whole);
    inner.buckets.get_mut(bucket).unwrap().insert(key.to_owned(), whole);
    good(
        &[],
        format!(
            "<CompleteMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{key}</Key><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
        ),
    )
}

fn object(bucket: &BTreeMap<String, Vec<u8>>, key: &str, request: &Request) -> Reply {
    let Some(bytes) = bucket.get(key) else { return refusal(404, "NoSuchKey") };
    let tag = tag(bytes);
    if request.headers.get("if-match").is_some_and(|wanted| *wanted != tag) {
        return refusal(412, "PreconditionFailed");
    }
    let headers = [("etag", tag.as_str()), ("last-modified", "Tue, 01 Dec 2026 00:00:00 GMT")];
    let Some(range) = request.headers.get("range") else { return good(&headers, bytes.clone()) };
    let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
    if start >= bytes.len() {
        return refusal(416, "InvalidRange");
    }
    let end = (end + 1).min(bytes.len());
    let mut reply = good(&headers, bytes[start..end].to_vec());
    reply.status = 206;
    reply.headers.push(("content-range".to_owned(), format!("bytes {start}-{}/{}", end - 1, bytes.len())));
    reply
}

fn listing(bucket: &BTreeMap<String, Vec<u8>>, query: &BTreeMap<String, String>) -> Reply {
    let prefix = query.get("prefix").cloned().unwrap_or_default();
    let after = query.get("continuation-token").cloned().unwrap_or_default();
    let names: Vec<&String> =
        bucket.keys().filter(|key| key.starts_with(&prefix) && (after.is_empty() || **key > after)).collect();
    let page = &names[..names.len().min(PAGE)];
    let contents: String = page
        .iter()
        .map(|key| {
            let bytes = &bucket[*key];
            format!(
                "<Contents><Key>{}</Key><LastModified>2026-12-01T00:00:00.000Z</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
                key.replace('&', "&amp;"),
                tag(bytes).replace('"', "&quot;"),
                bytes.len()
            )
        })
        .collect();
    let next = if names.len() > PAGE {
        let last = page[PAGE - 1];
        format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>")
    } else {
        "<IsTruncated>false</IsTruncated>".to_owned()
    };
    good(&[], format!("<ListBucketResult>{contents}{next}</ListBucketResult>"))
}

fn decoded(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
            out.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).unwrap()
}

/// Whether the connection goes on.
fn send(stream: &mut TcpStream, request: &Request, reply: &Reply) -> bool {
    let mut head = format!("HTTP/1.1 {} Status\r\ncontent-length: {}\r\n", reply.status, reply.body.len());
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let body = if request.method == "HEAD" { &[] } else { &reply.body[..] };
    let body = &body[..reply.cut.unwrap_or(body.len()).min(body.len())];
    let sent = stream.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| stream.write_all(body));
    sent.is_ok() && reply.cut.is_none()
}
