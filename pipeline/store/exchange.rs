//! HTTP of the object stores, over the client that the Hub uses as well.
//!
//! `object_store` signs requests and reads answers; what goes over the network is here, one exchange
//! at a time, on the thread that asks. So the thread knows afterwards what went wrong and why.

use std::cell::RefCell;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use ureq::Agent;
use ureq::http::{HeaderMap, Method};

use super::config::StoreConfig;
use super::error::StoreError;

/// Longest text of a refusal that is read.
const REFUSAL_BYTES: u64 = 64 << 10;
/// Bytes of a body that are handed on at once.
const PIECE: usize = 1 << 18;
/// Hosts that give credentials to machines in the clouds.
const METADATA_HOSTS: [&str; 4] =
    ["169.254.169.254", "169.254.170.2", "metadata.google.internal", "metadata"];

thread_local! {
    static TROUBLE: RefCell<Option<Trouble>> = const { RefCell::new(None) };
}

/// What went wrong in an exchange.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// An answer that is not a success.
    Answer {
        status: u16,
        /// The store's code, such as `SlowDown`; empty if it gave none.
        code: String,
        /// Its words.
        message: String,
        /// The region of the bucket, where the answer tells it.
        region: Option<String>,
        /// Seconds to wait, as the answer says.
        wait: Option<u64>,
    },
    /// No answer, or half of one.
    Transport(String),
    /// The machine has no credentials to give.
    NoCredentials,
}

impl Trouble {
    /// Whether it may pass.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Trouble::Answer { status, code, .. } => {
                matches!(status, 408 | 429 | 500 | 502..=599)
                    || matches!(
                        code.as_str(),
                        "ConditionalRequestConflict" | "OperationAborted" | "RequestTimeout"
                    )
            }
            // A certificate does not get better by waiting.
            Trouble::Transport(reason) => !reason.contains("invalid peer certificate"),
            Trouble::NoCredentials => false,
        }
    }
}

/// Takes what went wrong on this thread since it was last taken.
pub(super) fn take_trouble() -> Option<Trouble> {
    TROUBLE.with(|trouble| trouble.borrow_mut().take())
}

fn note(trouble: Trouble) {
    TROUBLE.with(|slot| *slot.borrow_mut() = Some(trouble));
}

/// Hands out the client.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    agent: Agent,
    no_metadata: bool,
}

impl Connector {
    pub(super) fn new(config: &StoreConfig) -> Result<Self, StoreError> {
        let bundle =
            ["AWS_CA_BUNDLE", "SSL_CERT_FILE"].into_iter().find_map(|name| Some((name, config.var(name)?)));
        let tls = crate::source::hub::tls(bundle.map(|(_, path)| path.as_ref())).map_err(|e| {
            StoreError::Config {
                name: bundle.map_or("SSL_CERT_FILE", |(name, _)| name),
                reason: e.to_string(),
            }
        })?;
        let patience = Some(config.timeout);
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("potable/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .max_idle_connections_per_host(16)
            .timeout_resolve(patience)
            .timeout_connect(Some(config.timeout.min(std::time::Duration::from_secs(10))))
            .timeout_send_request(patience)
            .timeout_recv_response(patience)
            .timeout_per_read(patience)
            .build()
            .new_agent();
        let no_metadata = config.is_on("AWS_EC2_METADATA_DISABLED");
        Ok(Connector { agent, no_metadata })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let is_metadata = METADATA_HOSTS.contains(&host.as_str());
        if is_metadata && self.no_metadata {
            note(Trouble::NoCredentials);
            return Err(HttpError::new(HttpErrorKind::Unknown, io::Error::other("no credentials")));
        }
        match self.exchange(request) {
            Ok(response) if is_metadata && !response.status().is_success() => {
                note(Trouble::NoCredentials);
                Ok(response)
            }
            Ok(response) => Ok(response),
            Err(error) => {
                let error = error.into_io();
                note(if is_metadata {
                    Trouble::NoCredentials
                } else {
                    Trouble::Transport(error.to_string())
                });
                Err(HttpError::new(HttpErrorKind::Unknown, error))
            }
        }
    }
}

impl Connector {
    fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, ureq::Error> {
        let (mut parts, mut body) = request.into_parts();
        let with_body = matches!(parts.method, Method::PUT | Method::POST);
        let is_head = parts.method == Method::HEAD;
        // A compressed body has another length than the object.
        parts.headers.insert("accept-encoding", ureq::http::HeaderValue::from_static("identity"));
        let response = if with_body {
            let bytes = collect(&mut body);
            // Its length is told by the client below.
            parts.headers.remove("content-length");
            self.agent.run(ureq::http::Request::from_parts(parts, bytes.as_ref()))?
        } else {
            self.agent.run(ureq::http::Request::from_parts(parts, ()))?
        };
        let (parts, mut body) = response.into_parts();
        if !parts.status.is_success() {
            let text = if is_head {
                String::new()
            } else {
                body.with_config().limit(REFUSAL_BYTES).lossy_utf8(true).read_to_string()?
            };
            note(refusal(parts.status.as_u16(), &parts.headers, &text));
            return Ok(HttpResponse::from_parts(parts, text.into()));
        }
        let expected = if is_head { None } else { length(&parts.headers) };
        let body =
            Reply { reader: Mutex::new(Box::new(body.into_reader())), expected, got: 0, ended: is_head };
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// The body of a request in one piece; it is one already, as this module's users make it.
fn collect(body: &mut object_store::client::HttpRequestBody) -> Bytes {
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut pieces = Vec::new();
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut *body).poll_frame(&mut context) {
        pieces.extend(frame.into_data().ok().filter(|data| !data.is_empty()));
    }
    match pieces.len() {
        0 => Bytes::new(),
        1 => pieces.swap_remove(0),
        _ => pieces.concat().into(),
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get("content-length")?.to_str().ok()?.parse().ok()
}

/// What an answer says that is no success. Its text is XML of the S3 protocol, or JSON.
fn refusal(status: u16, headers: &HeaderMap, text: &str) -> Trouble {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
    let code = element(text, "Code").unwrap_or_default();
    let message = element(text, "Message").unwrap_or_else(|| plain(text));
    Trouble::Answer {
        status,
        region: header("x-amz-bucket-region").or_else(|| element(text, "Region")),
        wait: header("retry-after").and_then(|text| text.parse().ok()),
        code,
        message,
    }
}

/// The text of the first element of this name.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inside, _) = rest.split_once(&format!("</{name}>"))?;
    Some(inside.chars().take(200).collect())
}

/// The first line of a text that is no XML, shortened.
fn plain(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    if line.starts_with('<') { String::new() } else { line.chars().take(200).collect() }
}

/// The body of an answer, read when it is asked for; short of what was announced it fails.
struct Reply {
    reader: Mutex<Box<dyn Read + Send>>,
    expected: Option<u64>,
    got: u64,
    ended: bool,
}

impl http_body::Body for Reply {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut piece = vec![0; PIECE];
        let read = {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            read_some(reader.as_mut(), &mut piece)
        };
        let short = |got: u64, expected: u64| {
            let text = format!("the answer ended after {got} of {expected} bytes");
            io::Error::new(io::ErrorKind::UnexpectedEof, text)
        };
        let result = match (read, self.expected) {
            (Ok(0), Some(expected)) if self.got < expected => Err(short(self.got, expected)),
            (other, _) => other,
        };
        match result {
            Ok(0) => {
                self.ended = true;
                Poll::Ready(None)
            }
            Ok(n) => {
                self.got += n as u64;
                piece.truncate(n);
                Poll::Ready(Some(Ok(Frame::data(piece.into()))))
            }
            Err(error) => {
                self.ended = true;
                note(Trouble::Transport(error.to_string()));
                Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Interrupted, error))))
            }
        }
    }
}

fn read_some(reader: &mut (dyn Read + Send), piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(piece) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
