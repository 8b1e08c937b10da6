//! Requests that are repeated as long as the trouble is one that passes.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::bucket::innermost;
use super::config::StoreConfig;
use super::error::StoreError;
use super::exchange::{Trouble, take_trouble};

const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_TOLD: u64 = 60;

/// Why a request gave nothing.
#[derive(Debug)]
pub(super) enum Fault {
    /// No such object.
    NotFound,
    /// There is an object already, and it was to be new.
    Exists,
    /// The object is not the one of the given tag any more.
    Changed,
    /// The object ends before the range.
    OutOfRange(Range<u64>),
    /// Other than so many bytes came.
    Short { place: String, expected: u64, got: u64 },
    /// Trouble with the exchange, and how often it was tried.
    Refused(Trouble, u32),
    /// An answer that is a success by its status and none by its text, or anything else.
    Other { text: String, passing: bool },
    /// The user stopped it.
    Interrupted,
    /// The runtime cannot be made.
    Runtime(io::Error),
}

/// The count of the attempts of one request.
pub(super) struct Attempts<'a> {
    config: &'a StoreConfig,
    failures: u32,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(config: &'a StoreConfig) -> Self {
        Attempts { config, failures: 0 }
    }

    /// Whether an earlier attempt failed, so that its effect may be there all the same.
    pub(super) fn repeated(&self) -> bool {
        self.failures > 0
    }

    /// Tries until it works, the trouble is a lasting one, or the patience is at its end. Waits grow
    /// from 0.2 s to 10 s, twofold, or are what the store asks for, up to a minute.
    pub(super) fn run<T>(&mut self, mut attempt: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
        loop {
            if self.config.stop.load(Ordering::Relaxed) {
                return Err(Fault::Interrupted);
            }
            let fault = match attempt() {
                Ok(value) => return Ok(value),
                Err(fault) => fault,
            };
            if !fault.is_passing() || self.failures >= self.config.retries {
                return Err(match fault {
                    Fault::Refused(trouble, _) => Fault::Refused(trouble, self.failures + 1),
                    other => other,
                });
            }
            let backoff = FIRST_BACKOFF.saturating_mul(1 << self.failures.min(16)).min(LONGEST_BACKOFF);
            self.failures += 1;
            self.config.clock.sleep(fault.told().unwrap_or(backoff), &self.config.stop);
        }
    }
}

impl Fault {
    fn is_passing(&self) -> bool {
        match self {
            Fault::Refused(trouble, _) => trouble.is_passing(),
            Fault::Short { .. } => true,
            Fault::Other { passing, .. } => *passing,
            _ => false,
        }
    }

    /// The wait that the store asks for.
    fn told(&self) -> Option<Duration> {
        match self {
            Fault::Refused(Trouble::Answer { wait: Some(seconds), .. }, _) => {
                Some(Duration::from_secs((*seconds).min(LONGEST_TOLD)))
            }
            _ => None,
        }
    }

    /// What `object_store` says, with what the exchange said before it.
    fn new(error: &object_store::Error) -> Self {
        match (error, take_trouble()) {
            (object_store::Error::AlreadyExists { .. }, trouble) => match trouble {
                // Two writers at once: neither is told that it is there.
                Some(trouble) if trouble.is_passing() => Fault::Refused(trouble, 1),
                _ => Fault::Exists,
            },
            (object_store::Error::Precondition { .. } | object_store::Error::NotModified { .. }, _) => {
                Fault::Changed
            }
            (_, Some(Trouble::Answer { status: 404, code, .. })) if !is_about_bucket(&code) => {
                Fault::NotFound
            }
            (_, Some(trouble)) => Fault::Refused(trouble, 1),
            (object_store::Error::NotFound { .. }, None) => Fault::NotFound,
            (error, None) => {
                let text = innermost(error);
                // Errors in an answer of status 200, and a range that is not the one that was asked for.
                let passing =
                    ["InternalError", "SlowDown", "Requested "].iter().any(|part| text.contains(part));
                Fault::Other { text, passing }
            }
        }
    }

    /// The error for the user: `bucket` is scheme and name.
    pub(super) fn into_error(self, place: String, bucket: (&'static str, &str), region: &str) -> StoreError {
        match self {
            Fault::NotFound => StoreError::NotFound { place },
            Fault::Exists => StoreError::Client { place, reason: "is there already".to_owned() },
            Fault::Changed => StoreError::Changed { place },
            Fault::OutOfRange(range) => StoreError::OutOfRange { place, start: range.start, end: range.end },
            Fault::Short { place, expected, got } => StoreError::Incomplete { place, expected, got },
            Fault::Other { text, .. } => StoreError::Client { place, reason: text },
            Fault::Interrupted => StoreError::Interrupted,
            Fault::Runtime(source) => StoreError::Io { place, action: "start of the client", source },
            Fault::Refused(Trouble::NoCredentials, _) => {
                StoreError::NoCredentials { place, scheme: bucket.0 }
            }
            Fault::Refused(Trouble::Transport(reason), attempts) => {
                StoreError::Transport { place, attempts, reason }
            }
            Fault::Refused(Trouble::Answer { status, code, message, region: real, .. }, attempts) => {
                let wrong = matches!(status, 301 | 307) || code == "AuthorizationHeaderMalformed";
                if wrong || (status == 400 && real.is_some()) {
                    return StoreError::WrongRegion { place, asked: region.to_owned(), region: real };
                }
                let message = match (code.is_empty(), message.is_empty()) {
                    (true, true) => "no reason given".to_owned(),
                    (true, false) => message,
                    (false, true) => code,
                    (false, false) if is_about_bucket(&code) => code,
                    (false, false) => format!("{code}: {message}"),
                };
                match status {
                    404 => StoreError::NoBucket { place, bucket: bucket.1.to_owned() },
                    401 | 403 => StoreError::Denied { place, status, message },
                    _ if message.starts_with("RequestTimeTooSkewed")
                        || message.starts_with("ExpiredToken") =>
                    {
                        StoreError::Denied { place, status, message }
                    }
                    _ => StoreError::Status { place, status, message, attempts },
                }
            }
        }
    }
}

fn is_about_bucket(code: &str) -> bool {
    code == "NoSuchBucket"
}

/// Runs a request of `object_store` on this thread.
pub(super) fn block_on<T>(request: impl Future<Output = object_store::Result<T>>) -> Result<T, Fault> {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let runtime = match RUNTIME.get() {
        Some(runtime) => runtime,
        None => {
            let made = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let made = made.map_err(Fault::Runtime)?;
            RUNTIME.get_or_init(|| made)
        }
    };
    let _old = take_trouble();
    runtime.block_on(request).map_err(|error| Fault::new(&error))
}
