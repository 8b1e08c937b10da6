//! How the Hub hands out a file: by a redirect to a storage host with a signed address, or itself.
//! What it says about the bytes stands in the redirect, so redirects are followed by hand.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::HubError;
use super::http::{Ask, Http, Reply, Tries, authority, bad, encode};
use super::{HubFile, Identity, RepoKind, RepoRef, Shared, is_safe_path};

const REDIRECTS: usize = 8;

/// What a request is about, for errors.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    kind: RepoKind,
    id: String,
    /// `datasets/owner/name`.
    pub(super) repo: String,
    pub(super) revision: String,
    /// The file, as an error names it.
    place: Option<String>,
}

/// A file of the Hub, and the signed address that it was last read from. Shared by threads.
#[derive(Debug)]
pub(super) struct RemoteFile {
    pub(super) shared: Arc<Shared>,
    pub(super) repo: RepoRef,
    pub(super) file: HubFile,
    signed: Mutex<Option<String>>,
    address: String,
    subject: Subject,
}

/// The bytes of an answer.
pub(super) struct Bytes {
    pub(super) reader: Box<dyn Read + Send>,
    /// Where they begin in the file: 0, if the server gives the whole file.
    pub(super) start: u64,
    /// One after the last.
    pub(super) end: u64,
    pub(super) host: String,
    pub(super) url: String,
}

/// A walk along redirects.
struct Walk {
    url: String,
    hops: usize,
}

/// The file's address on the Hub.
pub(super) fn address(shared: &Shared, repo: &RepoRef, path: &str) -> String {
    let endpoint = &shared.http.config.endpoint;
    let repo_path = match repo.kind {
        RepoKind::Dataset => repo.name(),
        RepoKind::Model => repo.id.clone(),
    };
    format!("{endpoint}/{repo_path}/resolve/{}/{}", repo.commit, encode(path, "/"))
}

/// See [`super::Hub::check_access`].
pub(super) fn check_access(shared: &Shared, repo: &RepoRef, path: &str) -> Result<(), HubError> {
    if !is_safe_path(path) {
        return Err(HubError::UnsafePath { repo: repo.name(), path: path.to_owned() });
    }
    if shared.http.config.offline {
        if shared.cache.pointer(repo, path).is_file() {
            return Ok(());
        }
        return shared.offline(repo.place(path));
    }
    let subject = Subject::file(repo, path);
    let mut walk = Walk { url: address(shared, repo, path), hops: 0 };
    let mut tries = Tries::default();
    loop {
        let mut reply = shared.http.ask(Ask { url: &walk.url, head: true, range: None }, &mut tries)?;
        if reply.is_redirect() {
            walk.step(&reply)?;
            if !shared.http.is_hub(&walk.url) {
                // The Hub sends us on to the bytes: it lets us have them.
                return Ok(());
            }
        } else if reply.status == 200 {
            return Ok(());
        } else {
            return Err(refusal(&shared.http, &subject, &mut reply));
        }
    }
}

/// The error that a refusal of the Hub means.
pub(super) fn refusal(http: &Http, subject: &Subject, reply: &mut Reply) -> HubError {
    let message = reply.message();
    let code = reply.header("x-error-code").unwrap_or_default().to_owned();
    let repo = subject.repo.clone();
    let token = http.config.token.as_ref();
    let not_found = || HubError::RepoNotFound { repo: repo.clone(), host: http.host().to_owned() };
    let no_revision =
        || HubError::RevisionNotFound { repo: repo.clone(), revision: subject.revision.clone() };
    let no_file = || subject.place.clone().map(|place| HubError::EntryNotFound { place });
    match (reply.status, code.as_str()) {
        (401 | 403, "GatedRepo") => HubError::Gated {
            repo: repo.clone(),
            who: if token.is_some() { "the account of your token" } else { "a client without a token" },
            page: subject.page(&http.config.endpoint),
        },
        (_, "RepoNotFound") => not_found(),
        (_, "RevisionNotFound") => no_revision(),
        (_, "EntryNotFound") => no_file().unwrap_or_else(not_found),
        _ if message.contains("is disabled") => HubError::Disabled { repo, message },
        (401, _) => match token {
            Some(token) => HubError::BadToken {
                repo,
                host: http.host().to_owned(),
                source_name: token.source().to_owned(),
                message,
            },
            None => not_found(),
        },
        (403, _) => HubError::Forbidden { repo, message },
        (404, _) => {
            no_file().unwrap_or_else(|| if subject.revision == "main" { not_found() } else { no_revision() })
        }
        (status, _) => HubError::Status { url: super::http::bare(&reply.url).to_owned(), status, message },
    }
}

impl Subject {
    pub(super) fn revision(kind: RepoKind, id: &str, revision: &str) -> Subject {
        Subject {
            kind,
            id: id.to_owned(),
            repo: format!("{}/{id}", kind.plural()),
            revision: revision.to_owned(),
            place: None,
        }
    }

    pub(super) fn file(repo: &RepoRef, path: &str) -> Subject {
        Subject { place: Some(repo.place(path)), ..Subject::revision(repo.kind, &repo.id, &repo.commit) }
    }

    /// The repository's page, where its terms are accepted.
    fn page(&self, endpoint: &str) -> String {
        match self.kind {
            RepoKind::Dataset => format!("{endpoint}/datasets/{}", self.id),
            RepoKind::Model => format!("{endpoint}/{}", self.id),
        }
    }
}

impl RemoteFile {
    pub(super) fn new(shared: Arc<Shared>, repo: &RepoRef, file: &HubFile) -> Result<RemoteFile, HubError> {
        if !is_safe_path(&file.path) {
            return Err(HubError::UnsafePath { repo: repo.name(), path: file.path.clone() });
        }
        shared.offline(repo.place(&file.path))?;
        Ok(RemoteFile {
            address: address(&shared, repo, &file.path),
            subject: Subject::file(repo, &file.path),
            shared,
            repo: repo.clone(),
            file: file.clone(),
            signed: Mutex::default(),
        })
    }

    pub(super) fn place(&self) -> String {
        self.repo.place(&self.file.path)
    }

    /// Asks for bytes from `start` up to `end`, both within the file, or for the whole file where
    /// that is all of it. The answer is checked as far as its head goes; it may be the whole file.
    pub(super) fn get(&self, start: u64, end: u64, tries: &mut Tries) -> Result<Bytes, HubError> {
        let http = &self.shared.http;
        let range = (start > 0 || end < self.file.size).then_some((start, end));
        let mut walk = self.first_step();
        loop {
            http.check_stop()?;
            let mut reply = match http.once(Ask { url: &walk.url, head: false, range }) {
                Ok(reply) => reply,
                Err(e) => {
                    tries.failed(http, &walk.url, e)?;
                    walk = self.first_step();
                    continue;
                }
            };
            if reply.is_passing_trouble() {
                tries.trouble(http, &reply)?;
            } else if reply.is_redirect() {
                self.check_linked(&reply)?;
                walk.step(&reply)?;
                // So that the connection can be used again.
                let _text = reply.message();
                if !http.is_hub(&walk.url) {
                    *self.signed() = Some(walk.url.clone());
                }
            } else if matches!(reply.status, 200 | 206) {
                if http.is_hub(&reply.url) {
                    self.check_linked(&reply)?;
                }
                return self.body(reply, range);
            } else if http.is_hub(&reply.url) {
                return Err(refusal(http, &self.subject, &mut reply));
            } else {
                // An expired signature, mostly. The same address is never asked again.
                let words = reply.message();
                let cause = format!("status {} from `{}`: {words}", reply.status, authority(&reply.url));
                *self.signed() = None;
                tries.failed(http, &walk.url, io::Error::other(cause))?;
                walk = self.first_step();
            }
        }
    }

    fn first_step(&self) -> Walk {
        let signed = self.signed().clone();
        Walk { url: signed.unwrap_or_else(|| self.address.clone()), hops: 0 }
    }

    fn signed(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.signed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the Hub says of the file has to be what the listing says.
    fn check_linked(&self, reply: &Reply) -> Result<(), HubError> {
        if !self.shared.http.is_hub(&reply.url) {
            return Ok(());
        }
        if let Some(commit) = reply.header("x-repo-commit")
            && commit != self.repo.commit
        {
            return Err(HubError::WrongCommit { place: self.place(), got: commit.to_owned() });
        }
        if let Some(size) = reply.number("x-linked-size")
            && size != self.file.size
        {
            return Err(HubError::SizeMismatch { place: self.place(), expected: self.file.size, got: size });
        }
        let etag = reply.header("x-linked-etag").map(|etag| etag.trim_start_matches("W/").trim_matches('"'));
        if let (Some(etag), Identity::Sha256(sha256)) = (etag, &self.file.identity)
            && super::is_hex(etag, 64)
            && etag != sha256
        {
            return Err(HubError::DigestMismatch {
                place: self.place(),
                algorithm: "sha256",
                expected: sha256.clone(),
                got: etag.to_owned(),
            });
        }
        Ok(())
    }

    fn body(&self, reply: Reply, range: Option<(u64, u64)>) -> Result<Bytes, HubError> {
        let size = self.file.size;
        let mismatch = |got| HubError::SizeMismatch { place: self.place(), expected: size, got };
        let host = authority(&reply.url).to_owned();
        if reply.header("content-encoding").is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
            return Err(bad(&reply.url, "the body is compressed, which was not asked for"));
        }
        let path = self.file.path.to_lowercase();
        let page = reply.header("content-type").is_some_and(|kind| kind.starts_with("text/html"));
        if page && !path.ends_with(".html") && !path.ends_with(".htm") {
            return Err(HubError::Html { place: self.place(), host });
        }
        let (mut start, mut end) = (0, size);
        if reply.status == 206 {
            let (first, after, total) = reply
                .header("content-range")
                .and_then(content_range)
                .ok_or_else(|| bad(&reply.url, "a part of a file that does not say which"))?;
            if total != size {
                return Err(mismatch(total));
            }
            if Some((first, after)) != range {
                return Err(bad(&reply.url, format!("bytes {first} to {after} were not asked for")));
            }
            (start, end) = (first, after);
        }
        if let Some(length) = reply.number("content-length")
            && length != end - start
        {
            return Err(if reply.status == 200 {
                mismatch(length)
            } else {
                bad(&reply.url, "a part of another length than it says")
            });
        }
        let url = reply.url.clone();
        Ok(Bytes { reader: Box::new(reply.into_reader()), start, end, host, url })
    }
}

impl Walk {
    fn step(&mut self, reply: &Reply) -> Result<(), HubError> {
        self.url = reply.location()?;
        self.hops += 1;
        if self.hops > REDIRECTS { Err(bad(&self.url, "too many redirects")) } else { Ok(()) }
    }
}

/// `bytes a-b/total` as the first byte, the one after the last, and the size of the file.
fn content_range(text: &str) -> Option<(u64, u64, u64)> {
    let (range, total) = text.strip_prefix("bytes")?.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse::<u64>().ok()?.checked_add(1)?, total.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read() {
        assert_eq!(content_range("bytes 5-9/100"), Some((5, 10, 100)));
        for text in ["bytes */100", "bytes 5-9/*", "5-9/100", ""] {
            assert_eq!(content_range(text), None, "{text}");
        }
    }
}
