//! Digests: SHA-256, written as `sha256:` and 64 lower-case hex digits.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Whether a revision is a commit: 40 hex digits. A branch or a tag may move.
pub fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

const PREFIX: &str = "sha256:";
const HEX_LEN: usize = 64;
const SHORT_LEN: usize = 12;

/// A SHA-256 digest in the form `sha256:<64 lower-case hex digits>`.
///
/// Only well-formed digests exist: parsing refuses everything else, so that two digests are
/// equal exactly when their text is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is not a [`Digest`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// The text does not start with `sha256:`.
    #[error("`{text}` is not a digest: it does not start with `sha256:`")]
    Prefix {
        /// What was read.
        text: String,
    },
    /// The part after `sha256:` is not 64 lower-case hex digits.
    #[error("`{text}` is not a digest: `sha256:` must be followed by 64 lower-case hex digits")]
    Hex {
        /// What was read.
        text: String,
    },
}

/// A running SHA-256, for content that is not in memory at once.
#[derive(Clone, Debug, Default)]
pub struct Hasher(Sha256);

/// The SHA-256 of `bytes` as 64 lower-case hex digits, without a prefix.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

impl Digest {
    /// The digest of all bytes of a reader, read in pieces.
    ///
    /// # Errors
    /// What the reader says.
    pub fn of_reader(mut reader: impl std::io::Read) -> std::io::Result<Self> {
        let (mut hasher, mut piece) = (Hasher::new(), vec![0; 1 << 16]);
        loop {
            match reader.read(&mut piece) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(read) => hasher.update(piece.get(..read).unwrap_or_default()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(format!("{PREFIX}{}", sha256_hex(bytes)))
    }

    /// A placeholder of 64 zeros, for a manifest that is not sealed yet.
    pub fn zero() -> Self {
        Self(format!("{PREFIX}{}", "0".repeat(HEX_LEN)))
    }

    /// A digest from its 64 hex digits (either case), as other tools write it.
    ///
    /// # Errors
    /// [`DigestError::Hex`] if `digits` is anything else.
    pub fn from_hex(digits: &str) -> Result<Self, DigestError> {
        format!("{PREFIX}{}", digits.to_ascii_lowercase()).parse()
    }

    /// The whole text, `sha256:…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 64 hex digits alone.
    pub fn hex(&self) -> &str {
        self.0.strip_prefix(PREFIX).unwrap_or_default()
    }

    /// `sha256:` and the first 12 hex digits, for people; never compare these.
    pub fn short(&self) -> &str {
        self.0.get(..PREFIX.len() + SHORT_LEN).unwrap_or_default()
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::zero()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        text.to_owned().try_into()
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        let Some(digits) = text.strip_prefix(PREFIX) else {
            return Err(DigestError::Prefix { text });
        };
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digits.len() == HEX_LEN && digits.bytes().all(is_hex) {
            Ok(Self(text))
        } else {
            Err(DigestError::Hex { text })
        }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl JsonSchema for Digest {
    fn schema_name() -> Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "SHA-256, 64 lower-case hex digits.",
            "pattern": "^sha256:[0-9a-f]{64}$",
        })
    }
}

impl Hasher {
    /// A hasher that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `bytes`; how the content is cut into calls does not matter.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything that was added.
    pub fn finish(self) -> Digest {
        Digest(format!("{PREFIX}{}", hex(&self.0.finalize())))
    }
}

fn hex(bytes: &[u8]) -> String {
    let nibble = |n: u8| char::from(if n < 10 { b'0' + n } else { b'a' + n - 10 });
    bytes.iter().flat_map(|byte| [nibble(byte >> 4), nibble(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn known_digests() {
        assert_eq!(Digest::of(b"").as_str(), EMPTY);
        assert_eq!(sha256_hex(b"abc"), Digest::of(b"abc").hex());
        assert_eq!(Digest::of(b"").short(), "sha256:e3b0c44298fc");
    }

    #[test]
    fn pieces_do_not_matter() {
        let mut hasher = Hasher::new();
        hasher.update(b"a");
        hasher.update(b"");
        hasher.update(b"bc");
        assert_eq!(hasher.finish(), Digest::of(b"abc"));
        let long = vec![7; 200_000];
        assert_eq!(Digest::of_reader(long.as_slice()).expect("read"), Digest::of(&long));
        assert_eq!(Digest::of_reader(std::io::empty()).expect("read"), Digest::of(b""));
    }

    #[test]
    fn refuses_what_is_no_digest() {
        let message = |text: &str| text.parse::<Digest>().expect_err("refused").to_string();
        assert_eq!(message("md5:00"), "`md5:00` is not a digest: it does not start with `sha256:`");
        assert!(message("sha256:00").contains("64 lower-case hex digits"));
        assert!(EMPTY.to_uppercase().parse::<Digest>().is_err());
        assert!(EMPTY.replace("e3b0", "E3B0").parse::<Digest>().is_err());
        assert_eq!(EMPTY.parse::<Digest>().expect("accepted").as_str(), EMPTY);
        assert_eq!(Digest::from_hex(&"AB".repeat(32)).expect("accepted").hex(), "ab".repeat(32));
    }
}
