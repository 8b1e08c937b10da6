//! One exchange with a server: who gets the token, which proxy, how long to wait, when to try again.
//! Redirects are not followed here.

use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ureq::http::{HeaderMap, Response};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Proxy};

use super::clock::http_date;
use super::config::HubConfig;
use super::error::HubError;

/// Longest text of a refusal that is read.
const REFUSAL_BYTES: u64 = 64 << 10;
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// The agents and the settings that every request needs.
#[derive(Debug)]
pub(super) struct Http {
    pub(super) config: HubConfig,
    /// Scheme and authority of the endpoint, in lower case.
    origin: String,
    direct: Agent,
    http_proxy: Option<Agent>,
    https_proxy: Option<Agent>,
}

/// An answer of any status.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) url: String,
    headers: HeaderMap,
    body: Body,
}

/// A request without a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) url: &'a str,
    /// `HEAD` or `GET`.
    pub(super) head: bool,
    /// First byte and one after the last.
    pub(super) range: Option<(u64, u64)>,
}

/// How often something was tried. Bytes that are new set the failures in a row back to 0.
#[derive(Debug, Default)]
pub(super) struct Tries {
    failures: u32,
    waits: u32,
    pub(super) retries: u32,
}

impl Http {
    pub(super) fn new(config: HubConfig) -> Result<Http, HubError> {
        let tls = tls(config.certificates.as_deref())?;
        let agent = |proxy: Option<Proxy>| agent(&config, &tls, proxy);
        let through = |name: &'static str, address: &Option<String>| {
            let proxy = address.as_deref().map(Proxy::new).transpose();
            let proxy = proxy.map_err(|e| HubError::Config { name, reason: format!("not a proxy: {e}") })?;
            Ok(proxy.map(|proxy| agent(Some(proxy))))
        };
        Ok(Http {
            origin: origin(&config.endpoint).to_lowercase(),
            direct: agent(None),
            http_proxy: through("HTTP_PROXY", &config.proxies.http)?,
            https_proxy: through("HTTPS_PROXY", &config.proxies.https)?,
            config,
        })
    }

    /// Host and port of the Hub.
    pub(super) fn host(&self) -> &str {
        authority(&self.origin)
    }

    /// Whether an address is one of the Hub itself: same scheme, host and port. Nothing else gets
    /// the token.
    pub(super) fn is_hub(&self, url: &str) -> bool {
        origin(url).eq_ignore_ascii_case(&self.origin)
    }

    /// One exchange. An answer of any status is an `Ok`.
    pub(super) fn once(&self, ask: Ask<'_>) -> Result<Reply, io::Error> {
        let agent = self.agent_for(ask.url);
        let mut request = if ask.head { agent.head(ask.url) } else { agent.get(ask.url) };
        // A compressed body has another length, and a cache on the way may then ignore ranges.
        request = request.header("accept-encoding", "identity");
        if let Some((start, end)) = ask.range {
            request = request.header("range", format!("bytes={start}-{}", end.saturating_sub(1)));
        }
        if let Some(token) = &self.config.token
            && self.is_hub(ask.url)
        {
            request = request.header("authorization", format!("Bearer {}", token.secret()));
        }
        let response: Response<Body> = request.call().map_err(ureq::Error::into_io)?;
        let (parts, body) = response.into_parts();
        Ok(Reply { status: parts.status.as_u16(), url: ask.url.to_owned(), headers: parts.headers, body })
    }

    /// One exchange, repeated as long as the trouble is one that passes: broken connections, 408,
    /// 429, 5xx.
    pub(super) fn ask(&self, ask: Ask<'_>, tries: &mut Tries) -> Result<Reply, HubError> {
        loop {
            match self.once(ask) {
                Err(e) => tries.failed(self, ask.url, e)?,
                Ok(reply) if reply.is_passing_trouble() => tries.trouble(self, &reply)?,
                Ok(reply) => return Ok(reply),
            }
        }
    }

    pub(super) fn check_stop(&self) -> Result<(), HubError> {
        if self.config.stop.load(Ordering::Relaxed) { Err(HubError::Interrupted) } else { Ok(()) }
    }

    fn agent_for(&self, url: &str) -> &Agent {
        let proxy = if url.starts_with("https:") { &self.https_proxy } else { &self.http_proxy };
        let host = authority(url);
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host).to_lowercase();
        let direct = self.config.proxies.no_proxy.iter().any(|entry| bypasses(entry, &host));
        proxy.as_ref().filter(|_| !direct).unwrap_or(&self.direct)
    }

    fn wait(&self, time: Duration) -> Result<(), HubError> {
        self.config.clock.sleep(time, &self.config.stop);
        self.check_stop()
    }
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.header(name)?.parse().ok()
    }

    pub(super) fn is_redirect(&self) -> bool {
        matches!(self.status, 301 | 302 | 303 | 307 | 308)
    }

    pub(super) fn is_passing_trouble(&self) -> bool {
        matches!(self.status, 408 | 429 | 500..=599)
    }

    /// The address of a redirect, absolute.
    pub(super) fn location(&self) -> Result<String, HubError> {
        let location =
            self.header("location").ok_or_else(|| bad(&self.url, "a redirect without an address"))?;
        join(&self.url, location).ok_or_else(|| bad(&self.url, "a redirect to something that is no address"))
    }

    pub(super) fn into_reader(self) -> impl Read + Send + 'static {
        self.body.into_reader()
    }

    /// The whole body, refused above `limit` bytes.
    pub(super) fn read(mut self, limit: u64) -> Result<Vec<u8>, io::Error> {
        self.body.with_config().limit(limit).read_to_vec().map_err(ureq::Error::into_io)
    }

    /// The server's own words about a refusal, with its request id. Reads the body, so that the
    /// connection can be used again.
    pub(super) fn message(&mut self) -> String {
        let body = self.body.with_config().limit(REFUSAL_BYTES).lossy_utf8(true).read_to_string();
        let body = body.unwrap_or_default();
        let json: Option<serde_json::Value> = serde_json::from_str(&body).ok();
        let json = json.as_ref().and_then(|value| value.get("error")?.as_str());
        let mut message = self
            .header("x-error-message")
            .or(json)
            .or_else(|| body.lines().next().map(str::trim).filter(|line| !line.starts_with('<')))
            .unwrap_or_default()
            .chars()
            .take(300)
            .collect::<String>();
        if message.is_empty() {
            "no reason given".clone_into(&mut message);
        }
        if let Some(id) = self.header("x-request-id") {
            message += &format!(" (request {id})");
        }
        message
    }

    /// Seconds to wait before a limited request may be made again, as the server says.
    fn seconds_to_wait(&self, now: u64) -> Option<u64> {
        let limit = self.header("ratelimit").and_then(exhausted_for).map(|seconds| seconds + 1);
        let after = self.header("retry-after").and_then(|text| {
            text.parse().ok().or_else(|| http_date(text).map(|date| date.saturating_sub(now)))
        });
        limit.or(after)
    }
}

impl Tries {
    /// New bytes have come: what failed before does not count any more.
    pub(super) fn progress(&mut self) {
        self.failures = 0;
        self.waits = 0;
    }

    /// Waits before the next attempt, or gives up.
    pub(super) fn failed(&mut self, http: &Http, url: &str, cause: io::Error) -> Result<(), HubError> {
        http.check_stop()?;
        self.failures += 1;
        // A certificate does not get better by waiting.
        let lasting = cause.to_string().contains("invalid peer certificate");
        if lasting || self.failures > http.config.retries {
            let source = cause;
            return Err(HubError::Transport { url: bare(url).to_owned(), attempts: self.failures, source });
        }
        self.retries += 1;
        let doublings = (self.failures - 1).min(16);
        http.wait(FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF))
    }

    /// As [`Tries::failed`], for an answer: a rate limit is waited for as the server says.
    pub(super) fn trouble(&mut self, http: &Http, reply: &Reply) -> Result<(), HubError> {
        let told = reply.seconds_to_wait(http.config.clock.now());
        let Some(seconds) = told.filter(|_| matches!(reply.status, 429 | 503)) else {
            return self.failed(http, &reply.url, io::Error::other(format!("status {}", reply.status)));
        };
        if self.waits >= http.config.rate_waits || seconds > http.config.longest_wait.as_secs() {
            let host = authority(&reply.url).to_owned();
            return Err(HubError::RateLimited { host, seconds, waits: self.waits });
        }
        self.waits += 1;
        self.retries += 1;
        http.wait(Duration::from_secs(seconds))
    }
}

/// An error of the protocol.
pub(super) fn bad(url: &str, reason: impl Into<String>) -> HubError {
    HubError::BadReply { url: bare(url).to_owned(), reason: reason.into() }
}

/// An address without query and fragment: signatures stand there.
pub(super) fn bare(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

/// Host and port of an address.
pub(super) fn authority(url: &str) -> &str {
    let origin = origin(url);
    origin.split_once("://").map_or(origin, |(_, authority)| authority)
}

/// Percent-encodes all but the characters that stand for themselves in any address, and `keep`.
pub(super) fn encode(text: &str, keep: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep.as_bytes().contains(&byte) {
            out.push(char::from(byte));
        } else {
            out += &format!("%{byte:02X}");
        }
    }
    out
}

/// `scheme://host:port` of an address.
fn origin(url: &str) -> &str {
    let Some((scheme, rest)) = url.split_once("://") else { return "" };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    url.get(..scheme.len() + 3 + authority.len()).unwrap_or_default()
}

/// An address as seen from another one.
pub(super) fn join(base: &str, location: &str) -> Option<String> {
    if location.starts_with("https://") || location.starts_with("http://") {
        return Some(location.to_owned());
    }
    if location.is_empty() || location.split(['/', '?']).next().is_some_and(|head| head.contains(':')) {
        return None;
    }
    if let Some(rest) = location.strip_prefix("//") {
        return Some(format!("{}://{rest}", base.split_once("://")?.0));
    }
    if location.starts_with('/') {
        return Some(format!("{}{location}", origin(base)));
    }
    if location.starts_with('?') {
        return Some(format!("{}{location}", bare(base)));
    }
    let folder = bare(base).rsplit_once('/')?.0;
    Some(format!("{folder}/{location}"))
}

/// Seconds until a window of `"resolvers";r=0;t=55` opens again, if it is exhausted.
fn exhausted_for(header: &str) -> Option<u64> {
    let window = |entry: &str| {
        let value = |name: &str| {
            let part = entry.split(';').map(str::trim).find_map(|part| part.strip_prefix(name))?;
            part.strip_prefix('=')?.parse::<u64>().ok()
        };
        (value("r")? == 0).then(|| value("t"))?
    };
    header.split(',').filter_map(window).max()
}

fn bypasses(entry: &str, host: &str) -> bool {
    let entry = entry.trim_start_matches('*').trim_start_matches('.');
    if entry.is_empty() {
        // `*`; an empty entry is none, and the list holds none.
        return true;
    }
    host.strip_suffix(entry).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn agent(config: &HubConfig, tls: &TlsConfig, proxy: Option<Proxy>) -> Agent {
    let agent = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("potable/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls.clone())
        .proxy(proxy)
        .max_idle_connections_per_host(config.connections)
        .timeout_resolve(Some(config.timeouts.connect))
        .timeout_connect(Some(config.timeouts.connect))
        .timeout_send_request(Some(config.timeouts.response))
        .timeout_recv_response(Some(config.timeouts.response))
        .timeout_per_read(Some(config.timeouts.idle))
        .build();
    agent.new_agent()
}

pub(crate) fn tls(certificates: Option<&Path>) -> Result<TlsConfig, HubError> {
    let Some(path) = certificates else { return Ok(TlsConfig::default()) };
    let wrong = |reason: String| HubError::Config {
        name: "SSL_CERT_FILE",
        reason: format!("`{}` cannot be used: {reason}", path.display()),
    };
    let pem = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
    let mut trusted = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|e| wrong(e.to_string()))? {
            trusted.push(certificate);
        }
    }
    if trusted.is_empty() {
        return Err(wrong("it holds no certificate".to_owned()));
    }
    Ok(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&trusted)).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_joined_as_browsers_do() {
        let base = "https://hub.test/a/b?c";
        for (location, whole) in [
            ("https://x.test/y?z", Some("https://x.test/y?z")),
            ("//x.test/y", Some("https://x.test/y")),
            ("/y?z", Some("https://hub.test/y?z")),
            ("y", Some("https://hub.test/a/y")),
            ("?z", Some("https://hub.test/a/b?z")),
            ("ftp://x.test/y", None),
            ("", None),
        ] {
            assert_eq!(join(base, location).as_deref(), whole, "{location}");
        }
    }

    #[test]
    fn an_exhausted_window_says_when_it_opens() {
        assert_eq!(exhausted_for("\"resolvers\";r=0;t=55"), Some(55));
        assert_eq!(exhausted_for("\"api\";r=3;t=9, \"resolvers\";r=0;t=7"), Some(7));
        assert_eq!(exhausted_for("\"api\";r=3;t=9"), None);
        assert_eq!(exhausted_for("nonsense"), None);
    }

    #[test]
    fn hosts_that_bypass_a_proxy() {
        for (entry, host, yes) in [
            ("*", "a.test", true),
            ("a.test", "a.test", true),
            (".a.test", "b.a.test", true),
            ("a.test", "b.a.test", true),
            ("a.test", "ba.test", false),
        ] {
            assert_eq!(bypasses(entry, host), yes, "{entry} {host}");
        }
    }

    #[test]
    fn names_are_encoded_for_addresses() {
        assert_eq!(encode("refs/convert/parquet", ""), "refs%2Fconvert%2Fparquet");
        assert_eq!(encode("a b/ü#?.txt", "/"), "a%20b/%C3%BC%23%3F.txt");
    }
}
