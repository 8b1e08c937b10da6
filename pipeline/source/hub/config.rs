//! Settings of the client, and the environment variables that all clients of the Hub share.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::clock::{Clock, SystemClock};
use super::error::HubError;

const ENDPOINT: &str = "https://huggingface.co";
const RANGE_BYTES: u64 = 32 << 20;
const CONNECTIONS: usize = 8;
const RETRIES: u32 = 6;
const RATE_WAITS: u32 = 12;
const LONGEST_WAIT: Duration = Duration::from_secs(900);

/// How a [`super::Hub`] works.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// Address of the Hub, without a slash at the end.
    pub endpoint: String,
    /// Sent to the host of `endpoint` and to no other.
    pub token: Option<Token>,
    /// The folder that holds `datasets--OWNER--NAME` and `.locks`.
    pub cache_dir: PathBuf,
    /// Whether the cache has to do.
    pub offline: bool,
    /// Limits on silence.
    pub timeouts: Timeouts,
    /// Idle connections to a host that are kept for the next request.
    pub connections: usize,
    /// Bytes asked for at a time; what a crash can cost at most.
    pub range_bytes: u64,
    /// Attempts in a row without a new byte before a transfer fails.
    pub retries: u32,
    /// Waits for a rate limit before a request fails.
    pub rate_waits: u32,
    /// The longest wait that a server may ask for.
    pub longest_wait: Duration,
    /// Proxies by scheme.
    pub proxies: Proxies,
    /// PEM file with the certificates to trust in place of the built-in ones.
    pub certificates: Option<PathBuf>,
    /// The time and how to wait.
    pub clock: Arc<dyn Clock>,
    /// Set from outside to end all transfers at the next buffer.
    pub stop: Arc<AtomicBool>,
    /// Where [`super::Hub::log_to`] writes the log.
    pub log_file: Arc<OnceLock<PathBuf>>,
}

/// A secret. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: String,
    source: String,
}

/// Limits on silence: there is none on the time of a whole transfer that moves.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Looking up a name, connecting, and the TLS handshake, each.
    pub connect: Duration,
    /// From the request to the end of the response's head.
    pub response: Duration,
    /// Between two reads of a body.
    pub idle: Duration,
}

/// Proxies as the environment has them.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// For `http` addresses.
    pub http: Option<String>,
    /// For `https` addresses.
    pub https: Option<String>,
    /// Hosts that are reached directly: names, suffixes, `*`.
    pub no_proxy: Vec<String>,
}

impl HubConfig {
    /// A client of the public Hub without a token, with its cache in `cache_dir`.
    pub fn new(cache_dir: PathBuf) -> HubConfig {
        HubConfig {
            endpoint: ENDPOINT.to_owned(),
            token: None,
            cache_dir,
            offline: false,
            timeouts: Timeouts::default(),
            connections: CONNECTIONS,
            range_bytes: RANGE_BYTES,
            retries: RETRIES,
            rate_waits: RATE_WAITS,
            longest_wait: LONGEST_WAIT,
            proxies: Proxies::default(),
            certificates: None,
            clock: Arc::new(SystemClock),
            stop: Arc::default(),
            log_file: Arc::default(),
        }
    }

    /// Reads `HF_ENDPOINT`, `HF_TOKEN`, `HF_TOKEN_PATH`, `HF_HOME`, `HF_HUB_CACHE`,
    /// `HF_HUB_OFFLINE`, `HF_HUB_DISABLE_IMPLICIT_TOKEN`, `HF_HUB_ETAG_TIMEOUT`,
    /// `HF_HUB_DOWNLOAD_TIMEOUT`, `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`
    /// and `REQUESTS_CA_BUNDLE`, with the meaning that they have for Python's `huggingface_hub`.
    ///
    /// # Errors
    /// An address that is none, a token with characters that no token has, a token file that is
    /// there and cannot be read.
    pub fn from_env() -> Result<HubConfig, HubError> {
        HubConfig::from_vars(|name| std::env::var(name).ok())
    }

    /// [`HubConfig::from_env`] with the variables from elsewhere.
    ///
    /// # Errors
    /// As [`HubConfig::from_env`].
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<HubConfig, HubError> {
        let set = |name: &str| var(name).filter(|value| !value.trim().is_empty());
        let home = home(&set)?;
        // hf-hub's `Cache::from_env` knows neither HF_HUB_CACHE nor XDG_CACHE_HOME, and its default
        // panics where there is no home, so the folder is found here.
        let cache = set("HF_HUB_CACHE").or_else(|| set("HUGGINGFACE_HUB_CACHE"));
        let mut config = HubConfig::new(cache.map_or_else(|| home.join("hub"), PathBuf::from));
        if let Some(endpoint) = set("HF_ENDPOINT") {
            config.endpoint = checked_endpoint(&endpoint)?;
        }
        config.token = token(&set, &home)?;
        config.timeouts.response = seconds(&set, "HF_HUB_ETAG_TIMEOUT", config.timeouts.response)?;
        config.timeouts.idle = seconds(&set, "HF_HUB_DOWNLOAD_TIMEOUT", config.timeouts.idle)?;
        config.offline = set("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value));
        let either = |upper: &str| set(&upper.to_lowercase()).or_else(|| set(upper));
        config.proxies = Proxies {
            http: either("HTTP_PROXY").or_else(|| either("ALL_PROXY")),
            https: either("HTTPS_PROXY").or_else(|| either("ALL_PROXY")),
            no_proxy: either("NO_PROXY")
                .map(|list| {
                    let hosts = list.split(',').map(|host| host.trim().to_lowercase());
                    hosts.filter(|host| !host.is_empty()).collect()
                })
                .unwrap_or_default(),
        };
        config.certificates = set("SSL_CERT_FILE").or_else(|| set("REQUESTS_CA_BUNDLE")).map(PathBuf::from);
        Ok(config)
    }
}

impl Token {
    /// A token and where it came from, for messages.
    ///
    /// # Errors
    /// Characters that no token has; the message does not show them.
    pub fn new(secret: &str, source: &str) -> Result<Token, HubError> {
        let secret = secret.trim();
        if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(HubError::Config {
                name: "HF_TOKEN",
                reason: format!("the token from {source} has characters that no token has"),
            });
        }
        Ok(Token { secret: secret.to_owned(), source: source.to_owned() })
    }

    /// Where it came from: a variable or a file.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(from {})", self.source)
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(20),
            response: Duration::from_secs(60),
            idle: Duration::from_secs(60),
        }
    }
}

fn home(set: &impl Fn(&str) -> Option<String>) -> Result<PathBuf, HubError> {
    if let Some(home) = set("HF_HOME") {
        return Ok(PathBuf::from(home));
    }
    if let Some(cache) = set("XDG_CACHE_HOME") {
        return Ok(PathBuf::from(cache).join("huggingface"));
    }
    let home = set("HOME").or_else(|| set("USERPROFILE"));
    home.map(|home| PathBuf::from(home).join(".cache").join("huggingface")).ok_or_else(|| HubError::Config {
        name: "HF_HOME",
        reason: "neither it nor HOME is set, so there is no place for downloads".to_owned(),
    })
}

fn checked_endpoint(text: &str) -> Result<String, HubError> {
    let endpoint = text.trim().trim_end_matches('/');
    let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    let sound = host.is_some_and(|host| {
        !host.is_empty() && !host.starts_with('/') && !host.contains(['?', '#', '@', ' '])
    });
    if sound {
        return Ok(endpoint.to_owned());
    }
    Err(HubError::Config {
        name: "HF_ENDPOINT",
        reason: format!(
            "`{endpoint}` is not an address; it starts with `https://` or `http://`, then a host"
        ),
    })
}

fn token(set: &impl Fn(&str) -> Option<String>, home: &std::path::Path) -> Result<Option<Token>, HubError> {
    for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
        if let Some(secret) = set(name) {
            return Token::new(&secret, name).map(Some);
        }
    }
    if set("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_some_and(|value| is_true(&value)) {
        return Ok(None);
    }
    // Not hf-hub's `Cache::token`: it knows no HF_TOKEN_PATH, looks beside the cache and not in
    // HF_HOME, and takes a file that cannot be read for no file.
    let path = set("HF_TOKEN_PATH").map_or_else(|| home.join("token"), PathBuf::from);
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Token::new(&text, &path.display().to_string()).map(Some),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(HubError::Config {
            name: "HF_TOKEN_PATH",
            reason: format!("cannot read the token file `{}`: {e}", path.display()),
        }),
    }
}

fn seconds(
    set: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    default: Duration,
) -> Result<Duration, HubError> {
    let Some(text) = set(name) else { return Ok(default) };
    let sound = text.trim().parse::<u64>().ok().filter(|seconds| *seconds > 0);
    let wrong = || HubError::Config { name, reason: format!("`{text}` is not a number of seconds") };
    sound.map(Duration::from_secs).ok_or_else(wrong)
}

fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&value.trim().to_lowercase().as_str())
}
