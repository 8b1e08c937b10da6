//! What the address of a store means.

use std::path::PathBuf;

use super::error::StoreError;

/// Where a store is. Buckets come with a prefix, which may be empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Address {
    Folder(PathBuf),
    S3(String, String),
    Gs(String, String),
}

/// Reads an address. What is refused is shown without what may be a secret.
pub(super) fn parse(uri: &str) -> Result<Address, StoreError> {
    let bad = |reason: String| StoreError::BadUri { uri: without_secrets(uri), reason };
    let Some((scheme, rest)) = uri.split_once("://") else {
        if uri.is_empty() {
            return Err(bad("it is empty".to_owned()));
        }
        return Ok(Address::Folder(PathBuf::from(uri)));
    };
    match scheme {
        "file" => {
            let path = rest.strip_prefix("localhost").unwrap_or(rest);
            if !path.starts_with('/') {
                return Err(bad("`file://` takes an absolute path: `file:///PATH`".to_owned()));
            }
            let path =
                percent_decoded(path).ok_or_else(|| bad("its percent signs make no text".to_owned()))?;
            Ok(Address::Folder(PathBuf::from(path)))
        }
        "s3" | "gs" => {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            check_bucket(bucket).map_err(bad)?;
            let prefix = prefix.trim_matches('/');
            if prefix.contains(['?', '#']) {
                return Err(bad("it has a query; settings come from the environment".to_owned()));
            }
            if !prefix.is_empty() && prefix.split('/').any(|part| matches!(part, "" | "." | "..")) {
                return Err(bad("its prefix has an empty part, `.` or `..`".to_owned()));
            }
            let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
            Ok(if scheme == "s3" { Address::S3(bucket, prefix) } else { Address::Gs(bucket, prefix) })
        }
        "s3a" | "s3n" => Err(bad("write `s3://`".to_owned())),
        "gcs" => Err(bad("write `gs://`".to_owned())),
        "http" | "https" => Err(bad("a web address is no store; write `s3://BUCKET/PREFIX`".to_owned())),
        _ => Err(bad(format!("there is no scheme `{scheme}`"))),
    }
}

fn check_bucket(bucket: &str) -> Result<(), String> {
    if bucket.is_empty() {
        return Err("it names no bucket".to_owned());
    }
    if bucket.contains('@') {
        return Err("it holds credentials; they come from the environment".to_owned());
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if !bucket.chars().all(fits) {
        return Err(format!("`{bucket}` is no name of a bucket"));
    }
    Ok(())
}

/// The address without what stands before an `@` or behind a `?`.
fn without_secrets(uri: &str) -> String {
    let bare = uri.split('?').next().unwrap_or_default();
    let query = if bare.len() < uri.len() { "?…" } else { "" };
    match bare.split_once("://") {
        Some((scheme, rest)) if rest.contains('@') => {
            let after = rest.rsplit_once('@').map_or("", |(_, after)| after);
            format!("{scheme}://…@{after}{query}")
        }
        _ => format!("{bare}{query}"),
    }
}

/// The text of a percent-encoded path.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            out.push((digit()? * 16 + digit()?) as u8);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_stores() {
        let s3 = |bucket: &str, prefix: &str| Address::S3(bucket.to_owned(), prefix.to_owned());
        for (uri, address) in [
            ("a/b", Address::Folder("a/b".into())),
            ("file:///a%20b", Address::Folder("/a b".into())),
            ("file://localhost/a", Address::Folder("/a".into())),
            ("s3://bucket", s3("bucket", "")),
            ("s3://bucket/", s3("bucket", "")),
            ("s3://bucket/a/b/", s3("bucket", "a/b")),
            ("gs://bucket/a", Address::Gs("bucket".to_owned(), "a".to_owned())),
        ] {
            assert_eq!(parse(uri).unwrap(), address, "{uri}");
        }
    }

    #[test]
    fn addresses_of_no_store() {
        for (uri, words) in [
            ("", "empty"),
            ("s3://", "names no bucket"),
            ("s3:///prefix", "names no bucket"),
            ("s3://buck et/x", "no name of a bucket"),
            ("s3://bucket/a//b", "empty part"),
            ("s3://bucket/../x", "`..`"),
            ("s3a://bucket/x", "write `s3://`"),
            ("az://bucket/x", "no scheme `az`"),
            ("https://bucket.test/x", "web address"),
            ("file://host/x", "absolute path"),
        ] {
            let error = parse(uri).unwrap_err().to_string();
            assert!(error.contains(words), "{uri}: {error}");
        }
    }

    #[test]
    fn secrets_in_an_address_are_not_shown() {
        for uri in [
            "s3://KEY:hunter2@bucket/x",
            "https://bucket.test/x?X-Amz-Signature=hunter2",
            "s3://b/x?sig=hunter2",
        ] {
            let error = parse(uri).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
