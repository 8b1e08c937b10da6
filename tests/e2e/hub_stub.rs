//! A Hub in this process, on two ports of the loopback: the Hub itself and the storage host that it
//! sends large files to. It answers as the recorded answers of the real one do, and can be told to
//! answer badly. What it was asked is kept, for tests to look at. No tests.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use potable::source::hub::clock::Clock;
use potable::source::hub::{HubConfig, Timeouts};

use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// The Hub. Ends with the value.
pub struct HubStub {
    state: Arc<State>,
    hub: SocketAddr,
    store: SocketAddr,
}

/// A repository of a [`HubStub`].
pub struct StubRepo<'s> {
    stub: &'s HubStub,
    name: String,
}

/// Which of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    Hub,
    Store,
}

/// On a busy machine a good answer may take long; where a timeout is what is tested, it is set shorter.
const PATIENCE: Duration = Duration::from_secs(600);

/// A clock whose seconds pass only by waiting.
#[derive(Debug, Default)]
pub struct StubClock {
    waits: Mutex<Vec<Duration>>,
}

/// A request and what became of it.
#[derive(Clone, Debug)]
pub struct Request {
    pub host: Host,
    pub method: String,
    /// Path and query.
    pub target: String,
    pub range: Option<String>,
    pub authorization: Option<String>,
    pub accept_encoding: Option<String>,
    /// Whether it came through a tunnel, as to a proxy.
    pub proxied: bool,
    pub status: u16,
    /// Bytes of the body that were sent.
    pub sent: u64,
}

/// A way to answer badly.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This status with these headers and this body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// The connection ends after so many bytes of the body.
    Cut(u64),
    /// After so many bytes of the body nothing more comes until [`HubStub::go_on`].
    Stall(u64),
    /// The whole file, whatever range was asked for.
    IgnoreRange,
    /// One bit is wrong in the last byte.
    WrongByte,
    /// One bit is wrong in this byte of the file.
    WrongByteAt(u64),
    /// The body and its announced length are longer, or shorter, than they should be.
    Longer(i64),
    /// `Content-Range` names the bytes after those that were asked for.
    WrongRange,
    /// No answer: the connection ends.
    HangUp,
    /// Headers that replace those of the good answer.
    Headers(Vec<(&'static str, String)>),
}

struct Rule {
    host: Host,
    part: String,
    fault: Fault,
    left: usize,
}

#[derive(Default)]
struct State {
    inner: Mutex<Inner>,
    going: Mutex<bool>,
    go_on: Condvar,
    ended: AtomicBool,
}

#[derive(Default)]
struct Inner {
    repos: BTreeMap<String, Repo>,
    renamed: BTreeMap<String, String>,
    /// By SHA-256.
    objects: BTreeMap<String, Arc<Vec<u8>>>,
    tokens: BTreeSet<String>,
    rules: Vec<Rule>,
    requests: Vec<Request>,
    /// Requests that are kept no longer.
    forgotten: usize,
    page: Option<usize>,
    signature: u64,
    /// Requests that a signature is good for.
    uses: Option<u64>,
    used: BTreeMap<u64, u64>,
    resolve_cache: bool,
    /// Host and port of the storage.
    store: String,
}

#[derive(Clone, Default)]
struct Repo {
    files: BTreeMap<String, File>,
    commits: BTreeMap<String, BTreeMap<String, File>>,
    refs: BTreeMap<String, String>,
    gated: bool,
    /// Tokens that may read a gated repository.
    admitted: BTreeSet<String>,
    private: bool,
    disabled: bool,
    licence: Option<String>,
}

#[derive(Clone)]
struct File {
    bytes: Arc<Vec<u8>>,
    lfs: bool,
}

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Arc<Vec<u8>>,
    /// Part of `body` to send.
    range: (u64, u64),
    cut: Option<u64>,
    stall: Option<u64>,
    hang_up: bool,
}

impl HubStub {
    pub fn new() -> HubStub {
        let state = Arc::new(State::default());
        let listen = |host: Host| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let state = state.clone();
            std::thread::spawn(move || accept(&listener, host, &state));
            address
        };
        let (hub, store) = (listen(Host::Hub), listen(Host::Store));
        state.inner.lock().unwrap().store = store.to_string();
        HubStub { state, hub, store }
    }

    /// What `HF_ENDPOINT` is to be.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.hub)
    }

    /// A data set, new or known.
    pub fn dataset(&self, id: &str) -> StubRepo<'_> {
        self.repo(&format!("datasets/{id}"))
    }

    pub fn model(&self, id: &str) -> StubRepo<'_> {
        self.repo(&format!("models/{id}"))
    }

    fn repo(&self, name: &str) -> StubRepo<'_> {
        self.inner(|inner| {
            inner.repos.entry(name.to_owned()).or_default();
        });
        StubRepo { stub: self, name: name.to_owned() }
    }

    /// Requests for `old` are sent on to `new`, as after a renaming (`datasets/OWNER/NAME`).
    pub fn rename(&self, old: &str, new: &str) {
        self.inner(|inner| inner.renamed.insert(old.to_owned(), new.to_owned()));
    }

    /// A token that the Hub knows. Others are refused.
    pub fn token(&self, token: &str) {
        self.inner(|inner| inner.tokens.insert(token.to_owned()));
    }

    /// Entries of a page of the tree.
    pub fn page(&self, entries: usize) {
        self.inner(|inner| inner.page = Some(entries));
    }

    /// How many requests a signed address is good for.
    pub fn signature_uses(&self, uses: u64) {
        self.inner(|inner| inner.uses = Some(uses));
    }

    /// Small files come over a relative redirect to `/api/resolve-cache`.
    pub fn resolve_cache(&self) {
        self.inner(|inner| inner.resolve_cache = true);
    }

    /// Answers badly to the next `times` requests whose target holds `part`.
    pub fn fault(&self, host: Host, part: &str, fault: Fault, times: usize) {
        let rule = Rule { host, part: part.to_owned(), fault, left: times };
        self.inner(|inner| inner.rules.push(rule));
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.inner(|inner| inner.rules.clear());
    }

    /// Lets go whatever [`Fault::Stall`] holds.
    pub fn go_on(&self) {
        *self.state.going.lock().unwrap() = true;
        self.state.go_on.notify_all();
    }

    pub fn requests(&self) -> Vec<Request> {
        self.inner(|inner| inner.requests.clone())
    }

    /// Requests whose target holds `part`.
    pub fn requests_of(&self, host: Host, part: &str) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.host == host && request.target.contains(part));
        requests
    }

    /// Bytes of bodies that the storage host has sent.
    pub fn stored_bytes_sent(&self) -> u64 {
        self.requests().iter().filter(|request| request.host == Host::Store).map(|request| request.sent).sum()
    }

    pub fn forget_requests(&self) {
        self.inner(|inner| {
            inner.forgotten += inner.requests.len();
            inner.requests.clear();
        });
    }

    /// A client of this Hub with its cache in `cache`, which waits in no time.
    pub fn config(&self, cache: &Path) -> (HubConfig, Arc<StubClock>) {
        let clock = Arc::new(StubClock::default());
        let mut config = HubConfig::new(cache.to_path_buf());
        config.endpoint = self.endpoint();
        config.clock = clock.clone();
        config.timeouts = Timeouts { connect: PATIENCE, response: PATIENCE, idle: PATIENCE };
        (config, clock)
    }

    /// Makes a command use this Hub, with its cache below `home` and nothing of this machine's settings.
    pub fn command(&self, command: &mut Command, home: &Path) {
        for name in [
            "HF_TOKEN",
            "HF_TOKEN_PATH",
            "HF_HUB_CACHE",
            "HUGGINGFACE_HUB_CACHE",
            "HUGGING_FACE_HUB_TOKEN",
            "HF_HUB_OFFLINE",
            "HTTP_PROXY",
            "http_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
            "SSL_CERT_FILE",
            "REQUESTS_CA_BUNDLE",
        ] {
            command.env_remove(name);
        }
        for name in ["HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"] {
            command.env(name, PATIENCE.as_secs().to_string());
        }
        command.env("HF_ENDPOINT", self.endpoint()).env("HF_HOME", home).env("NO_PROXY", "127.0.0.1");
    }

    fn inner<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.state.inner.lock().unwrap())
    }
}

impl StubClock {
    /// How long was waited, each time.
    pub fn waits(&self) -> Vec<Duration> {
        self.waits.lock().unwrap().clone()
    }
}

impl Clock for StubClock {
    fn now(&self) -> u64 {
        1_796_000_000 + self.waits().iter().sum::<Duration>().as_secs()
    }

    fn sleep(&self, time: Duration, _stop: &AtomicBool) {
        self.waits.lock().unwrap().push(time);
    }
}

impl Drop for HubStub {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        self.go_on();
        for address in [self.hub, self.store] {
            let _wakes_it_up = TcpStream::connect(address);
        }
    }
}

impl StubRepo<'_> {
    /// A large file: its bytes come from the storage host.
    pub fn lfs(&self, path: &str, bytes: impl Into<Vec<u8>>) -> &Self {
        self.put(path, bytes.into(), true)
    }

    /// A small file, which the Hub hands out itself.
    pub fn plain(&self, path: &str, bytes: impl Into<Vec<u8>>) -> &Self {
        self.put(path, bytes.into(), false)
    }

    /// All files below a folder: tables and compressed files as large ones.
    pub fn folder(&self, folder: &Path) -> &Self {
        let mut folders = vec![folder.to_path_buf()];
        while let Some(next) = folders.pop() {
            for entry in std::fs::read_dir(&next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                let lfs = ["parquet", "arrow", "zst", "gz", "xz", "bz2"]
                    .iter()
                    .any(|end| name.ends_with(&format!(".{end}")));
                self.put(&name, std::fs::read(&path).unwrap(), lfs);
            }
        }
        self
    }

    pub fn remove(&self, path: &str) -> &Self {
        self.change(|repo| {
            repo.files.remove(path);
        })
    }

    pub fn licence(&self, licence: &str) -> &Self {
        self.change(|repo| repo.licence = Some(licence.to_owned()))
    }

    /// Only these tokens may read files.
    pub fn gated(&self, admitted: &[&str]) -> &Self {
        self.change(|repo| {
            repo.gated = true;
            repo.admitted = admitted.iter().map(|&token| token.to_owned()).collect();
        })
    }

    /// As if it were not there for whoever has no known token.
    pub fn private(&self) -> &Self {
        self.change(|repo| repo.private = true)
    }

    pub fn disabled(&self) -> &Self {
        self.change(|repo| repo.disabled = true)
    }

    /// A tag or branch at the commit as it is now.
    pub fn tag(&self, name: &str) -> &Self {
        let commit = self.commit();
        self.change(|repo| {
            repo.refs.insert(name.to_owned(), commit);
        })
    }

    /// The files as they are, under a commit that a recipe names.
    pub fn pin(&self, commit: &str) -> &Self {
        self.commit();
        self.change(|repo| {
            repo.commits.insert(commit.to_owned(), repo.files.clone());
        })
    }

    /// The commit of `main`.
    pub fn commit(&self) -> String {
        self.stub.inner(|inner| {
            let name = &self.name;
            let repo = inner.repos.get_mut(name).unwrap();
            repo.settle(name)
        })
    }

    fn put(&self, path: &str, bytes: Vec<u8>, lfs: bool) -> &Self {
        let bytes = Arc::new(bytes);
        if lfs {
            let sha256 = sha256(&bytes);
            self.stub.inner(|inner| inner.objects.insert(sha256, bytes.clone()));
        }
        self.change(|repo| {
            repo.files.insert(path.to_owned(), File { bytes, lfs });
        })
    }

    fn change(&self, change: impl FnOnce(&mut Repo)) -> &Self {
        self.stub.inner(|inner| change(inner.repos.get_mut(&self.name).unwrap()));
        self
    }
}

impl Repo {
    /// Makes the files as they are a commit, and `main` point to it.
    fn settle(&mut self, name: &str) -> String {
        let mut digest = Sha1::new();
        digest.update(name);
        for (path, file) in &self.files {
            digest.update(format!("{path}\0{}\0", file.oid()));
        }
        let commit = hex(&digest.finalize());
        self.commits.entry(commit.clone()).or_insert_with(|| self.files.clone());
        self.refs.insert("main".to_owned(), commit.clone());
        commit
    }

    fn find(&self, revision: &str) -> Option<(&str, &BTreeMap<String, File>)> {
        let commit = self.refs.get(revision).map_or(revision, String::as_str);
        self.commits.get_key_value(commit).map(|(commit, files)| (commit.as_str(), files))
    }
}

impl File {
    /// Git's id: of the pointer, where the file is a large one.
    fn oid(&self) -> String {
        if self.lfs {
            let pointer = format!(
                "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n",
                sha256(&self.bytes),
                self.bytes.len()
            );
            return git_blob(pointer.as_bytes());
        }
        git_blob(&self.bytes)
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub fn git_blob(bytes: &[u8]) -> String {
    let mut digest = Sha1::new();
    digest.update(format!("blob {}\0", bytes.len()));
    digest.update(bytes);
    hex(&digest.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn accept(listener: &TcpListener, host: Host, state: &Arc<State>) {
    while let Ok((stream, _)) = listener.accept() {
        if state.ended.load(Ordering::SeqCst) {
            return;
        }
        let state = state.clone();
        std::thread::spawn(move || serve(&stream, host, &state));
    }
}

/// Requests of one connection, until either side has enough.
fn serve(stream: &TcpStream, host: Host, state: &State) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    let mut tunnel = false;
    while let Some(mut request) = read_head(&mut reader, host) {
        if request.method == "CONNECT" {
            // As a proxy of its own, whatever host was asked for.
            tunnel = true;
            if { stream }.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").is_err() {
                return;
            }
            continue;
        }
        request.proxied = tunnel;
        let (reply, at) = {
            let mut inner = state.inner.lock().unwrap();
            let reply = inner.answer(&request);
            request.status = reply.status;
            inner.requests.push(request.clone());
            (reply, inner.forgotten + inner.requests.len() - 1)
        };
        let head = request.method == "HEAD";
        if !send(stream, &reply, head, state, at) {
            let _gone_already = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

fn read_head(reader: &mut BufReader<&TcpStream>, host: Host) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_ascii_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    reader.take(length).read_to_end(&mut Vec::new()).ok()?;
    let take = |name: &str| headers.get(name).cloned();
    Some(Request {
        host,
        method,
        target,
        range: take("range"),
        authorization: take("authorization"),
        accept_encoding: take("accept-encoding"),
        proxied: false,
        status: 0,
        sent: 0,
    })
}

/// Whether the connection can be used again.
fn send(mut stream: &TcpStream, reply: &Reply, head: bool, state: &State, at: usize) -> bool {
    if reply.hang_up {
        return false;
    }
    let (start, end) = reply.range;
    let mut text = format!("HTTP/1.1 {} Status\r\n", reply.status);
    let has_length = reply.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    for (name, value) in &reply.headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !has_length {
        text += &format!("Content-Length: {}\r\n", end - start);
    }
    text += "\r\n";
    if stream.write_all(text.as_bytes()).is_err() {
        return false;
    }
    if head {
        return true;
    }
    let last = reply.cut.map_or(end, |cut| end.min(start + cut));
    let mut position = start;
    while position < last {
        if reply.stall.is_some_and(|stall| position >= start + stall) {
            let mut going = state.going.lock().unwrap();
            while !*going {
                going = state.go_on.wait(going).unwrap();
            }
        }
        let stall = reply.stall.filter(|stall| position < start + stall);
        let to = last.min(position + 16_384).min(stall.map_or(u64::MAX, |stall| start + stall));
        // Counted first: who has the last byte may look at the count at once.
        if let Some(request) = state.inner.lock().unwrap().request(at) {
            request.sent += to - position;
        }
        if stream.write_all(&reply.body[position as usize..to as usize]).is_err() {
            return false;
        }
        position = to;
    }
    last == end
}

impl Reply {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        let body: Vec<u8> = body.into();
        let range = (0, body.len() as u64);
        let body = Arc::new(body);
        Reply { status, headers: Vec::new(), body, range, cut: None, stall: None, hang_up: false }
    }

    fn json(body: &Value) -> Reply {
        Reply::new(200, body.to_string()).with("Content-Type", "application/json; charset=utf-8")
    }

    fn error(status: u16, code: &str, message: &str) -> Reply {
        let reply = Reply::new(status, json!({ "error": message }).to_string())
            .with("Content-Type", "application/json; charset=utf-8")
            .with("X-Error-Message", message);
        if code.is_empty() { reply } else { reply.with("X-Error-Code", code) }
    }

    fn redirect(status: u16, to: &str) -> Reply {
        Reply::new(status, format!("Redirecting to {to}")).with("Location", to)
    }

    fn with(mut self, name: &str, value: impl Into<String>) -> Reply {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

impl Inner {
    /// A request by its number, if it is kept.
    fn request(&mut self, number: usize) -> Option<&mut Request> {
        self.requests.get_mut(number.checked_sub(self.forgotten)?)
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let rule = self
            .rules
            .iter_mut()
            .find(|rule| rule.host == request.host && rule.left > 0 && request.target.contains(&rule.part));
        let fault = rule.map(|rule| {
            rule.left -= 1;
            rule.fault.clone()
        });
        if let Some(Fault::Answer(status, headers, body)) = &fault {
            let reply = Reply::new(*status, body.clone());
            return headers.iter().fold(reply, |reply, (name, value)| reply.with(name, value));
        }
        let ignore = matches!(fault, Some(Fault::IgnoreRange));
        let range = request.range.as_deref().filter(|_| !ignore).and_then(parse_range);
        let mut reply = match request.host {
            Host::Hub => self.hub(request, range),
            Host::Store => self.store(request, range),
        };
        if request.host == Host::Hub {
            reply = reply
                .with("RateLimit", "\"resolvers\";r=2999;t=257")
                .with("RateLimit-Policy", "\"fixed window\";\"resolvers\";q=3000;w=300")
                .with("X-Request-Id", "Root=1-6520");
        }
        if let Some(fault) = fault.filter(|_| reply.status < 300) {
            reply.spoil(fault);
        }
        reply
    }

    fn hub(&mut self, request: &Request, range: Option<(u64, u64)>) -> Reply {
        let token = request.authorization.as_deref().and_then(|value| value.strip_prefix("Bearer "));
        if token.is_some_and(|token| !self.tokens.contains(token)) {
            return Reply::error(401, "", "Invalid credentials in Authorization header");
        }
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        for (old, new) in &self.renamed {
            if path.contains(&format!("/{old}/")) {
                return Reply::redirect(307, &request.target.replacen(old.as_str(), new, 1));
            }
        }
        let parts: Vec<String> = path.trim_start_matches('/').split('/').map(decode).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["api", "resolve-cache", kind, owner, name, commit, path @ ..] => {
                self.resolve((&format!("{kind}/{owner}/{name}"), commit, &path.join("/")), token, range, true)
            }
            ["api", kind, owner, name, "revision", revision] => {
                self.info(&format!("{kind}/{owner}/{name}"), revision, token)
            }
            ["api", kind, owner, name, "tree", revision, ..] => {
                self.tree(&format!("{kind}/{owner}/{name}"), revision, token, (path, query))
            }
            ["datasets", owner, name, "resolve", revision, path @ ..] => self.resolve(
                (&format!("datasets/{owner}/{name}"), revision, &path.join("/")),
                token,
                range,
                false,
            ),
            [owner, name, "resolve", revision, path @ ..] => self.resolve(
                (&format!("models/{owner}/{name}"), revision, &path.join("/")),
                token,
                range,
                false,
            ),
            _ => Reply::error(404, "", "Sorry, we can't find the page you are looking for."),
        }
    }

    /// The repository as this token may see it.
    fn visible(&mut self, name: &str, token: Option<&str>) -> Result<&Repo, Reply> {
        let hidden =
            || Reply::error(if token.is_some() { 404 } else { 401 }, "RepoNotFound", "Repository not found");
        let repo = self.repos.get_mut(name).ok_or_else(hidden)?;
        repo.settle(name);
        if repo.private && token.is_none() {
            return Err(hidden());
        }
        if repo.disabled {
            return Err(Reply::error(403, "", "Access to this resource is disabled."));
        }
        Ok(repo)
    }

    fn info(&mut self, name: &str, revision: &str, token: Option<&str>) -> Reply {
        let repo = match self.visible(name, token) {
            Ok(repo) => repo,
            Err(reply) => return reply,
        };
        let Some((commit, files)) = repo.find(revision) else {
            return Reply::error(404, "RevisionNotFound", &format!("Invalid rev id: {revision}"));
        };
        let siblings: Vec<Value> = files.keys().map(|path| json!({ "rfilename": path })).collect();
        let gated = if repo.gated { json!("auto") } else { json!(false) };
        Reply::json(&json!({
            "_id": "67474c06bd2f2f20b81faef1", "id": name.split_once('/').unwrap().1, "sha": commit,
            "private": repo.private, "gated": gated, "disabled": false,
            "cardData": { "license": repo.licence }, "siblings": siblings,
        }))
    }

    fn tree(
        &mut self,
        name: &str,
        revision: &str,
        token: Option<&str>,
        (path, query): (&str, &str),
    ) -> Reply {
        let page = self.page;
        let repo = match self.visible(name, token) {
            Ok(repo) => repo,
            Err(reply) => return reply,
        };
        let Some((_, files)) = repo.find(revision) else {
            return Reply::error(404, "RevisionNotFound", &format!("Invalid rev id: {revision}"));
        };
        let mut entries = Vec::new();
        let folders: BTreeSet<&str> = files.keys().filter_map(|p| Some(p.rsplit_once('/')?.0)).collect();
        for folder in folders {
            entries.push(
                json!({ "type": "directory", "oid": git_blob(folder.as_bytes()), "size": 0, "path": folder }),
            );
        }
        for (path, file) in files {
            let size = file.bytes.len();
            let mut entry = json!({ "type": "file", "oid": file.oid(), "size": size, "path": path });
            if file.lfs {
                entry["lfs"] = json!({ "oid": sha256(&file.bytes), "size": size, "pointerSize": 134 });
                entry["xetHash"] = json!(sha256(path.as_bytes()));
            }
            entries.push(entry);
        }
        let Some(page) = page else { return Reply::json(&Value::Array(entries)) };
        let from = query.split('&').find_map(|part| part.strip_prefix("cursor=")?.parse().ok()).unwrap_or(0);
        let to = entries.len().min(from + page);
        let reply = Reply::json(&Value::Array(entries[from..to].to_vec()));
        if to == entries.len() {
            return reply;
        }
        reply.with("Link", format!("<{path}?recursive=true&cursor={to}>; rel=\"next\""))
    }

    fn resolve(
        &mut self,
        (name, revision, path): (&str, &str, &str),
        token: Option<&str>,
        range: Option<(u64, u64)>,
        cached: bool,
    ) -> Reply {
        let store = self.store.clone();
        let to_cache = self.resolve_cache && !cached;
        let signature = self.signature + 1;
        let repo = match self.visible(name, token) {
            Ok(repo) => repo,
            Err(reply) => return reply,
        };
        if repo.gated && !token.is_some_and(|token| repo.admitted.contains(token)) {
            let message = format!("Access to dataset {name} is restricted. You must have access to it.");
            return Reply::error(if token.is_some() { 403 } else { 401 }, "GatedRepo", &message);
        }
        let Some((commit, files)) = repo.find(revision) else {
            return Reply::error(404, "RevisionNotFound", &format!("Invalid rev id: {revision}"));
        };
        let commit = commit.to_owned();
        let Some(file) = files.get(path).cloned() else {
            return Reply::error(404, "EntryNotFound", "Entry not found").with("X-Repo-Commit", commit);
        };
        if file.lfs {
            let sha256 = sha256(&file.bytes);
            self.signature = signature;
            let query = format!("X-Amz-Expires=3600&Signature={signature}&Key-Pair-Id=K2L8F4");
            return Reply::redirect(302, &format!("http://{store}/xet-bridge-us/repo/{sha256}?{query}"))
                .with("X-Repo-Commit", commit)
                .with("X-Linked-Size", file.bytes.len().to_string())
                .with("X-Linked-Etag", format!("\"{sha256}\""))
                .with("X-Xet-Hash", sha256)
                .with("Accept-Ranges", "bytes");
        }
        if to_cache {
            return Reply::redirect(302, &format!("/api/resolve-cache/{name}/{commit}/{path}"))
                .with("X-Repo-Commit", commit)
                .with("X-Linked-Size", file.bytes.len().to_string())
                .with("X-Linked-Etag", format!("\"{}\"", file.oid()));
        }
        bytes(&file.bytes, range)
            .with("Content-Type", "text/plain; charset=utf-8")
            .with("X-Repo-Commit", commit)
            .with("ETag", format!("\"{}\"", file.oid()))
    }

    fn store(&mut self, request: &Request, range: Option<(u64, u64)>) -> Reply {
        let denied = || {
            let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>AccessDenied</Code></Error>";
            Reply::new(403, text).with("Content-Type", "application/xml")
        };
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let signature =
            query.split('&').find_map(|part| part.strip_prefix("Signature=")?.parse::<u64>().ok());
        let Some(signature) = signature.filter(|signature| *signature <= self.signature) else {
            return denied();
        };
        let used = self.used.entry(signature).or_default();
        *used += 1;
        if self.uses.is_some_and(|uses| *used > uses) {
            return denied();
        }
        let sha256 = path.rsplit('/').next().unwrap_or_default();
        let Some(object) = self.objects.get(sha256) else { return denied() };
        bytes(object, range)
            .with("ETag", format!("\"{sha256}\""))
            .with("Content-Type", "application/octet-stream")
    }
}

impl Reply {
    fn spoil(&mut self, fault: Fault) {
        let (start, end) = self.range;
        match fault {
            Fault::Cut(after) => self.cut = Some(after),
            Fault::Stall(after) => self.stall = Some(after),
            Fault::WrongByte => {
                let mut body = self.body.to_vec();
                body[end as usize - 1] ^= 1;
                self.body = Arc::new(body);
            }
            Fault::WrongByteAt(at) => {
                let mut body = self.body.to_vec();
                body[at as usize] ^= 1;
                self.body = Arc::new(body);
            }
            Fault::Longer(by) => {
                let mut body = self.body.to_vec();
                body.resize((body.len() as i64 + by) as usize, b'x');
                self.body = Arc::new(body);
                self.range = (start, (end as i64 + by) as u64);
            }
            Fault::WrongRange => {
                let total = self.body.len();
                let value = format!("bytes {}-{}/{total}", start + 1, end);
                self.set("Content-Range", value);
            }
            Fault::HangUp => self.hang_up = true,
            Fault::Headers(headers) => {
                for (name, value) in headers {
                    self.set(name, value);
                }
            }
            Fault::IgnoreRange | Fault::Answer(..) => {}
        }
    }

    fn set(&mut self, name: &str, value: String) {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value));
    }
}

/// The file, or a part of it.
fn bytes(body: &Arc<Vec<u8>>, range: Option<(u64, u64)>) -> Reply {
    let total = body.len() as u64;
    let mut reply = Reply::new(200, Vec::new()).with("Accept-Ranges", "bytes");
    reply.body = body.clone();
    reply.range = (0, total);
    let Some((start, end)) = range else { return reply };
    if start >= total {
        return Reply::new(416, "").with("Content-Range", format!("bytes */{total}"));
    }
    let end = end.min(total);
    reply.status = 206;
    reply.range = (start, end);
    reply.with("Content-Range", format!("bytes {start}-{}/{total}", end - 1))
}

/// `bytes=a-b` as the first byte and the one after the last.
fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse::<u64>().map_or(u64::MAX, |last| last + 1)))
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}
