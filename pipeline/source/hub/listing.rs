//! From a revision to a commit and the list of its files.

use serde::Deserialize;
use serde_json::Value;

use super::error::HubError;
use super::http::{Ask, Reply, Tries, bad, encode, join};
use super::open::{Subject, refusal};
use super::{HubFile, Identity, RepoAt, RepoKind, RepoRef, Shared, check_id, is_hex, is_safe_path};

/// Redirects of one request: a renamed repository takes one, a mirror a few.
const REDIRECTS: usize = 8;
/// Longest answer of the API that is read: a page of the tree has a thousand entries.
const ANSWER_BYTES: u64 = 256 << 20;
/// Most pages of a tree, so that a server that links in a circle ends.
const PAGES: usize = 100_000;

#[derive(Deserialize)]
struct Info {
    sha: String,
    #[serde(default)]
    gated: Value,
    #[serde(default)]
    disabled: bool,
    #[serde(default, rename = "cardData")]
    card: Value,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    oid: String,
    #[serde(default)]
    size: u64,
    path: String,
    lfs: Option<Lfs>,
}

/// The tree has `oid`; a listing with `blobs=true` would say `sha256`.
#[derive(Deserialize)]
struct Lfs {
    #[serde(alias = "sha256")]
    oid: String,
    size: u64,
}

/// See [`super::Hub::resolve`].
pub(super) fn resolve(shared: &Shared, kind: RepoKind, id: &str, revision: &str) -> Result<RepoAt, HubError> {
    check_id(id)?;
    let subject = Subject::revision(kind, id, revision);
    if revision.is_empty() || !is_safe_path(revision) {
        return Err(HubError::BadRevision { repo: subject.repo, revision: revision.to_owned() });
    }
    if shared.http.config.offline {
        return offline(shared, kind, id, revision);
    }
    let info = info(shared, &subject)?;
    let at = RepoRef { kind, id: id.to_owned(), commit: info.sha };
    let (gated, licence) = (is_gated(&info.gated), licence(&info.card));
    if let Some(known) = shared.cache.read_listing(&at) {
        // A commit never changes; whether it is gated may.
        shared.remember(&at, revision);
        return Ok(RepoAt { revision: revision.to_owned(), gated, licence, ..known });
    }
    let files = tree(shared, &subject, &at)?;
    let listing = RepoAt { at, revision: revision.to_owned(), gated, licence, files };
    // Only offline runs miss it, and a cache that cannot be written is an error of its own later.
    let _best_effort = shared.cache.write_listing(&listing);
    shared.remember(&listing.at, revision);
    Ok(listing)
}

fn offline(shared: &Shared, kind: RepoKind, id: &str, revision: &str) -> Result<RepoAt, HubError> {
    let missing = || HubError::Offline {
        place: format!("{}/{id}@{revision}", kind.plural()),
        cache: shared.http.config.cache_dir.clone(),
    };
    let commit = shared.cache.read_ref(kind, id, revision).ok_or_else(missing)?;
    let at = RepoRef { kind, id: id.to_owned(), commit };
    if let Some(known) = shared.cache.read_listing(&at) {
        return Ok(RepoAt { revision: revision.to_owned(), ..known });
    }
    // A snapshot that another client made shows what it has fetched, not what there is: to take it
    // for the whole would leave rows out silently.
    if shared.cache.has_snapshot(&at) {
        let place = format!("{}/{id}@{revision}", kind.plural());
        return Err(HubError::ListingUnknown { place, cache: shared.http.config.cache_dir.clone() });
    }
    Err(missing())
}

fn info(shared: &Shared, subject: &Subject) -> Result<Info, HubError> {
    let endpoint = &shared.http.config.endpoint;
    let url = format!("{endpoint}/api/{}/revision/{}", subject.repo, encode(&subject.revision, ""));
    let (info, _): (Info, _) = get(shared, subject, &url)?;
    if !is_hex(&info.sha, 40) {
        return Err(bad(&url, format!("`{}` is not a commit", info.sha)));
    }
    if is_hex(&subject.revision, 40) && subject.revision != info.sha {
        return Err(HubError::WrongCommit {
            place: format!("{}@{}", subject.repo, subject.revision),
            got: info.sha,
        });
    }
    if info.disabled {
        let message = "the repository's page says so".to_owned();
        return Err(HubError::Disabled { repo: subject.repo.clone(), message });
    }
    Ok(info)
}

/// All files of a commit. The tree is paged and has identities; the list of `siblings` in the
/// repository's description has neither.
fn tree(shared: &Shared, subject: &Subject, at: &RepoRef) -> Result<Vec<HubFile>, HubError> {
    let endpoint = &shared.http.config.endpoint;
    let mut url = format!("{endpoint}/api/{}/tree/{}?recursive=true", subject.repo, at.commit);
    let mut files = Vec::new();
    for _page in 0..PAGES {
        let (entries, next): (Vec<Entry>, _) = get(shared, subject, &url)?;
        for entry in entries {
            files.extend(file(subject, entry)?);
        }
        let Some(next) = next else {
            files.sort();
            if files.windows(2).any(|pair| matches!(pair, [a, b] if a.path == b.path)) {
                return Err(bad(&url, "the list of files names one twice"));
            }
            return Ok(files);
        };
        url = next;
    }
    Err(bad(&url, "the list of files does not end"))
}

fn file(subject: &Subject, entry: Entry) -> Result<Option<HubFile>, HubError> {
    if entry.kind != "file" {
        return Ok(None);
    }
    let (size, hex) = entry.lfs.map_or((entry.size, None), |lfs| (lfs.size, Some(lfs.oid)));
    if !is_safe_path(&entry.path) {
        return Err(HubError::UnsafePath { repo: subject.repo.clone(), path: entry.path });
    }
    let identity = match hex {
        Some(hex) if is_hex(&hex, 64) => Identity::Sha256(hex),
        None if is_hex(&entry.oid, 40) => Identity::GitBlob(entry.oid),
        _ => {
            let place = format!("{}/{}", subject.repo, entry.path);
            return Err(bad(&place, "the list of files has no digest of it"));
        }
    };
    Ok(Some(HubFile { path: entry.path, size, identity }))
}

/// A request to the API, redirects followed, with its answer read whole and the address of the next
/// page; anything but success is an error.
fn get<T: for<'de> Deserialize<'de>>(
    shared: &Shared,
    subject: &Subject,
    url: &str,
) -> Result<(T, Option<String>), HubError> {
    let http = &shared.http;
    let mut tries = Tries::default();
    let (mut url, mut hops) = (url.to_owned(), 0);
    loop {
        let mut reply = http.ask(Ask { url: &url, head: false, range: None }, &mut tries)?;
        if reply.is_redirect() {
            hops += 1;
            if hops > REDIRECTS {
                return Err(bad(&url, "too many redirects"));
            }
            url = reply.location()?;
            // So that the connection can be used again.
            let _text = reply.message();
            continue;
        }
        if reply.status != 200 {
            return Err(refusal(http, subject, &mut reply));
        }
        let next = next_page(&reply)?;
        match reply.read(ANSWER_BYTES) {
            Err(e) => tries.failed(http, &url, e)?,
            Ok(bytes) => {
                let wrong = |e| bad(&url, format!("not the JSON that was expected: {e}"));
                return Ok((serde_json::from_slice(&bytes).map_err(wrong)?, next));
            }
        }
    }
}

/// The address in `Link: <…>; rel="next"`.
fn next_page(reply: &Reply) -> Result<Option<String>, HubError> {
    let Some(links) = reply.header("link") else { return Ok(None) };
    for link in links.split(',') {
        let Some((address, attributes)) = link.trim().strip_prefix('<').and_then(|l| l.split_once('>'))
        else {
            continue;
        };
        if attributes.contains("rel=\"next\"") || attributes.contains("rel=next") {
            let next = join(&reply.url, address);
            return next.map(Some).ok_or_else(|| bad(&reply.url, "a link to a next page that is no address"));
        }
    }
    Ok(None)
}

/// `false`, `"auto"` or `"manual"`.
fn is_gated(gated: &Value) -> bool {
    !matches!(gated, Value::Null | Value::Bool(false))
}

/// `license` of the card: a text or a list.
fn licence(card: &Value) -> Option<String> {
    match card.get("license")? {
        Value::String(licence) => Some(licence.clone()),
        Value::Array(several) => {
            let several: Vec<&str> = several.iter().filter_map(Value::as_str).collect();
            (!several.is_empty()).then(|| several.join(", "))
        }
        _ => None,
    }
}
