//! Settings of the object stores, from the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::error::StoreError;
use crate::source::hub::clock::{Clock, SystemClock};

/// What the variables of Amazon's and Google's tools say, and how patient the client is.
#[derive(Clone)]
pub struct StoreConfig {
    /// Variables of the environment; those that begin with `AWS_` and `GOOGLE_`, and few others.
    vars: BTreeMap<String, String>,
    /// Waits between attempts.
    pub clock: Arc<dyn Clock>,
    /// Ends all waiting when it becomes true.
    pub stop: Arc<AtomicBool>,
    /// How often a request is repeated.
    pub retries: u32,
    /// Patience with an answer, and between two of its bytes.
    pub timeout: Duration,
}

impl std::fmt::Debug for StoreConfig {
    /// Without the variables: secrets are among them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreConfig").field("retries", &self.retries).finish_non_exhaustive()
    }
}

impl StoreConfig {
    /// The settings of this process.
    ///
    /// # Errors
    /// A variable that makes no sense.
    pub fn from_env() -> Result<Self, StoreError> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        StoreConfig::new(std::env::vars_os().filter_map(text), Arc::new(SystemClock))
    }

    /// Settings by the given variables.
    ///
    /// # Errors
    /// A variable that makes no sense.
    pub fn new(
        vars: impl IntoIterator<Item = (String, String)>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let wanted = |name: &str| {
            name.starts_with("AWS_")
                || name.starts_with("GOOGLE_")
                || name.starts_with("POTABLE_STORE_")
                || matches!(name, "HOME" | "SSL_CERT_FILE" | "STORAGE_EMULATOR_HOST" | "SERVICE_ACCOUNT")
        };
        let vars: BTreeMap<String, String> =
            vars.into_iter().filter(|(name, value)| wanted(name) && !value.is_empty()).collect();
        let number = |name: &'static str, default: u64| match vars.get(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| StoreError::Config { name, reason: format!("`{text}` is not a number") }),
        };
        let retries = number("POTABLE_STORE_RETRIES", 8)?.min(1000) as u32;
        let timeout = Duration::from_secs(number("POTABLE_STORE_TIMEOUT", 60)?.max(1));
        let mut config = StoreConfig { vars, clock, stop: Arc::default(), retries, timeout };
        config.check_http()?;
        config.read_profile();
        Ok(config)
    }

    /// A variable that is set and not empty.
    pub(super) fn var(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str)
    }

    /// The variables whose names begin with `prefix`, in lower case.
    pub(super) fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = (String, &str)> {
        let prefix = prefix.to_owned();
        let fits = move |(name, _): &(&String, &String)| name.starts_with(&prefix);
        self.vars.iter().filter(fits).map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()))
    }

    /// The region that requests to S3 are signed for.
    pub(super) fn region(&self) -> &str {
        self.var("AWS_REGION").or_else(|| self.var("AWS_DEFAULT_REGION")).unwrap_or("us-east-1")
    }

    /// Whether a variable says yes.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.var(name)
            .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes"))
    }

    /// Plain HTTP leaves the machine only on demand.
    fn check_http(&self) -> Result<(), StoreError> {
        for (name, allow) in [
            ("AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP"),
            ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"),
            ("GOOGLE_BASE_URL", "GOOGLE_ALLOW_HTTP"),
        ] {
            let Some(url) = self.var(name) else { continue };
            if url.contains('@') {
                return Err(StoreError::Config { name, reason: "holds credentials".to_owned() });
            }
            let Some(rest) = url.strip_prefix("http://") else {
                if url.starts_with("https://") {
                    continue;
                }
                let reason = "is not an address that begins with `https://` or `http://`".to_owned();
                return Err(StoreError::Config { name, reason });
            };
            if !is_loopback(rest) && !self.is_on(allow) {
                let reason = format!("`{url}` is not encrypted; set {allow}=true if it is meant");
                return Err(StoreError::Config { name, reason });
            }
        }
        Ok(())
    }

    /// Keys and region of the profile, where the environment itself names none.
    fn read_profile(&mut self) {
        let home = self.var("HOME").map(PathBuf::from);
        let file = |var: &str, name: &str| {
            let named = self.var(var).map(PathBuf::from);
            let path = named.or_else(|| Some(home.as_ref()?.join(".aws").join(name)))?;
            read_ini(&path)
        };
        let profile = self.var("AWS_PROFILE").unwrap_or("default").to_owned();
        let keys = file("AWS_SHARED_CREDENTIALS_FILE", "credentials")
            .and_then(|mut sections| sections.remove(&profile));
        let config = file("AWS_CONFIG_FILE", "config").and_then(|mut sections| {
            sections.remove(&format!("profile {profile}")).or_else(|| sections.remove(&profile))
        });
        if let Some(region) = config.as_ref().and_then(|section| section.get("region"))
            && self.var("AWS_REGION").is_none()
            && self.var("AWS_DEFAULT_REGION").is_none()
        {
            self.vars.insert("AWS_REGION".to_owned(), region.clone());
        }
        let own =
            ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"].iter().any(|name| self.var(name).is_some());
        let Some(section) = keys.or(config).filter(|_| !own) else { return };
        for (key, name) in [
            ("aws_access_key_id", "AWS_ACCESS_KEY_ID"),
            ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"),
            ("aws_session_token", "AWS_SESSION_TOKEN"),
        ] {
            if let Some(value) = section.get(key) {
                self.vars.insert(name.to_owned(), value.clone());
            }
        }
    }
}

/// Whether an address (without its scheme) is of this machine.
fn is_loopback(rest: &str) -> bool {
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    host == "localhost" || host == "[::1]" || host.starts_with("127.")
}

/// Sections of an INI file as Amazon's tools write it. A file that is not there has none.
fn read_ini(path: &Path) -> Option<BTreeMap<String, BTreeMap<String, String>>> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut sections: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.trim().clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=')
            && !line.starts_with(['#', ';'])
        {
            let entry = sections.entry(section.clone()).or_default();
            entry.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    Some(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(vars: &[(&str, &str)]) -> Result<StoreConfig, StoreError> {
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        StoreConfig::new(vars, Arc::new(SystemClock))
    }

    #[test]
    fn plain_http_beyond_this_machine_has_to_be_asked_for() {
        assert!(config(&[("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")]).is_ok());
        assert!(config(&[("AWS_ENDPOINT_URL", "http://store.test")]).is_err());
        assert!(config(&[("AWS_ENDPOINT_URL", "http://store.test"), ("AWS_ALLOW_HTTP", "true")]).is_ok());
        assert!(config(&[("AWS_ENDPOINT_URL", "store.test")]).is_err());
    }

    #[test]
    fn an_address_with_a_password_is_refused_without_printing_it() {
        let error = config(&[("AWS_ENDPOINT_URL", "https://me:hunter2@store.test")]).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn a_profile_gives_keys_and_region_unless_the_environment_has_them() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".aws");
        crate::store::Store::at(&folder)
            .put(
                "credentials",
                b"[default]\naws_access_key_id = A\n[lab]\naws_access_key_id=L\naws_secret_access_key=S\n",
            )
            .unwrap();
        crate::store::Store::at(&folder).put("config", b"[profile lab]\nregion = eu-west-1\n").unwrap();
        let home = home.path().to_str().unwrap();
        let lab = config(&[("HOME", home), ("AWS_PROFILE", "lab")]).unwrap();
        assert_eq!(lab.var("AWS_ACCESS_KEY_ID"), Some("L"));
        assert_eq!(lab.var("AWS_SECRET_ACCESS_KEY"), Some("S"));
        assert_eq!(lab.region(), "eu-west-1");
        let own = config(&[("HOME", home), ("AWS_ACCESS_KEY_ID", "E"), ("AWS_REGION", "x")]).unwrap();
        assert_eq!((own.var("AWS_ACCESS_KEY_ID"), own.region()), (Some("E"), "x"));
    }
}
