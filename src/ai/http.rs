//! The one place that makes HTTP clients, and the words for what goes wrong on the way to a server.
//!
//! No request has a total time limit: a slow local model may stream for many minutes. Limits are on the wait for the
//! headers and on the silence between two pieces of the body.

use std::sync::{Arc, Once};
use std::time::Duration;

use reqwest::{Certificate, Client};

pub use reqwest::Url;
use serde_json::{Map, Value};

use super::proxy::{ProxyRules, UnsupportedProxy};

/// Looks up an environment variable; injected, so that tests never read the process's own.
pub type EnvLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Most bytes of an error body that are read.
const MAX_ERROR_BODY: usize = 64 << 10;

/// What settings say about HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpSettings {
    /// `httpIdleTimeoutMs`: longest silence, for headers and between pieces of the body; `None` = for ever.
    pub idle_timeout: Option<Duration>,
    /// `retry.provider.timeoutMs`: longest wait for the headers, when it is not the idle limit.
    pub header_timeout: Option<Duration>,
    /// `retry.provider.maxRetries`: new attempts before any byte of an answer.
    pub max_retries: u32,
    /// `retry.provider.maxRetryDelayMs`: longest wait a server may ask for; `None` = any.
    pub max_retry_delay: Option<Duration>,
    /// `httpProxy`.
    pub proxy: Option<String>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            idle_timeout: Some(Duration::from_secs(300)),
            header_timeout: None,
            max_retries: 0,
            max_retry_delay: Some(Duration::from_secs(60)),
            proxy: None,
        }
    }
}

impl HttpSettings {
    /// Reads what `settings.json` says; each value that is absent or odd keeps its default. 0 switches a limit off, and so
    /// does `"disabled"` for the silence.
    pub fn from_settings(settings: &Map<String, Value>) -> Self {
        let default = Self::default();
        let provider = settings
            .get("retry")
            .and_then(|retry| retry.get("provider"));
        let number = |key: &str| {
            provider
                .and_then(|group| group.get(key))
                .and_then(Value::as_u64)
        };
        let limit = |ms: Option<u64>, usual: Option<Duration>| match ms {
            Some(0) => None,
            Some(ms) => Some(Duration::from_millis(ms)),
            None => usual,
        };
        let idle = match settings.get("httpIdleTimeoutMs") {
            Some(Value::String(word)) if word == "disabled" => Some(0),
            other => other.and_then(Value::as_u64),
        };
        let retries = number("maxRetries").and_then(|count| u32::try_from(count).ok());
        let proxy = settings
            .get("httpProxy")
            .and_then(Value::as_str)
            .filter(|url| !url.is_empty());
        Self {
            idle_timeout: limit(idle, default.idle_timeout),
            header_timeout: limit(number("timeoutMs"), default.header_timeout),
            max_retries: retries.unwrap_or(default.max_retries),
            max_retry_delay: limit(number("maxRetryDelayMs"), default.max_retry_delay),
            proxy: proxy.map(str::to_owned),
        }
    }
}

/// A client could not be made, or a server not be reached. Each text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// A proxy of a kind we cannot use.
    #[error(transparent)]
    Proxy(#[from] UnsupportedProxy),
    /// A file of certificates that cannot be used.
    #[error("read certificates from {path} (named by {variable}): {why}")]
    Certificates {
        /// The environment variable.
        variable: &'static str,
        /// The file.
        path: String,
        /// Cause.
        why: String,
    },
    /// The client library refused.
    #[error("set up HTTPS: {0}")]
    Setup(String),
    /// The base URL is none.
    #[error("`{0}` is no URL of a model server; check baseUrl in models.json")]
    Url(String),
    /// No connection, or it broke.
    #[error("connection error: {0}")]
    Connection(String),
    /// The other side's certificate is not trusted.
    #[error(
        "certificate of {host} is not trusted: {why}; if a private authority signed it, name its file in SSL_CERT_FILE or NODE_EXTRA_CA_CERTS"
    )]
    Certificate {
        /// Server.
        host: String,
        /// Cause.
        why: String,
    },
    /// The proxy wants to know who asks. Its address comes without what it knows of us already.
    #[error(
        "the proxy {0} refused us without a (right) user and password; put them into its URL, http://user:password@host:port"
    )]
    ProxyLogin(String),
    /// Nothing came for too long.
    #[error("request timed out: {0}")]
    Timeout(String),
}

/// Makes a client. The TLS provider is installed once for the process.
pub fn client(env: &EnvLookup, settings: &HttpSettings) -> Result<Client, HttpError> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Somebody else may have installed one before: then that one is used.
        drop(rustls::crypto::ring::default_provider().install_default());
    });
    let extra = extra_certificates(env)?;
    let rules = ProxyRules::read(&|name| env(name), settings.proxy.as_deref());
    match builder(rules.clone()).tls_certs_merge(extra).build() {
        Ok(client) => Ok(client),
        // A machine without system certificates still reaches plain-HTTP servers.
        Err(_) => builder(rules)
            .tls_certs_only(std::iter::empty())
            .build()
            .map_err(|error| HttpError::Setup(deepest(&error))),
    }
}

fn builder(rules: ProxyRules) -> reqwest::ClientBuilder {
    let proxy = reqwest::Proxy::custom(move |url: &Url| rules.proxy_for(url).ok().flatten());
    // A redirect to another server would carry keys in headers that only we know to be secret.
    let redirects = reqwest::redirect::Policy::custom(|attempt| {
        let same = attempt
            .previous()
            .last()
            .is_some_and(|from| from.origin() == attempt.url().origin());
        if same && attempt.previous().len() < 5 {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    Client::builder()
        .user_agent(user_agent())
        .connect_timeout(Duration::from_secs(20))
        .tcp_keepalive(Duration::from_secs(60))
        .no_proxy()
        .proxy(proxy)
        .redirect(redirects)
}

/// Returns host and port of the proxy for a URL; fails for one that cannot be used, before a request is sent past it.
pub fn proxy_of(
    env: &EnvLookup,
    settings: &HttpSettings,
    url: &Url,
) -> Result<Option<String>, HttpError> {
    let proxy = ProxyRules::read(&|name| env(name), settings.proxy.as_deref()).proxy_for(url)?;
    Ok(proxy.map(|proxy| server_of(&proxy)))
}

/// `host:port`, without what a URL says about users.
fn server_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn user_agent() -> String {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    format!("pi-nvim/{} ({os}; {arch})", env!("CARGO_PKG_VERSION"))
}

fn extra_certificates(env: &EnvLookup) -> Result<Vec<Certificate>, HttpError> {
    let mut found = Vec::new();
    for variable in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
        let Some(path) = env(variable).filter(|path| !path.is_empty()) else {
            continue;
        };
        let refuse = |why: String| HttpError::Certificates {
            variable,
            path: path.clone(),
            why,
        };
        let pem = std::fs::read(&path).map_err(|error| refuse(error.to_string()))?;
        let bundle = Certificate::from_pem_bundle(&pem).map_err(|error| refuse(deepest(&error)))?;
        found.extend(bundle);
    }
    Ok(found)
}

/// Returns the text of the innermost cause.
pub fn deepest(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(next) = at.source() {
        at = next;
    }
    at.to_string()
}

/// Turns an error of the client into ours; `url` names the server, `proxy` the one on the way to it.
pub fn transport_error(error: &reqwest::Error, url: &Url, proxy: Option<&str>) -> HttpError {
    let host = url.host_str().unwrap_or_default();
    let server = match proxy {
        Some(proxy) => format!("{} through the proxy {proxy}", server_of(url)),
        None => server_of(url),
    };
    let why = deepest(error);
    let lower = why.to_lowercase();
    if error.is_timeout() {
        return HttpError::Timeout(format!("no connection to {server}"));
    }
    if let Some(proxy) = proxy.filter(|_| lower.contains("proxy authorization required")) {
        return HttpError::ProxyLogin(proxy.to_owned());
    }
    if lower.contains("certificate") || lower.contains("unknownissuer") {
        return HttpError::Certificate {
            host: host.to_owned(),
            why,
        };
    }
    HttpError::Connection(format!("{why} ({server})"))
}

/// Reads an error body, at most 64 KiB of it and for at most 10 seconds.
pub async fn error_body(mut response: reqwest::Response) -> String {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() >= MAX_ERROR_BODY {
                break;
            }
        }
    };
    // What came before the limit is shown; a slow error body is no second error.
    tokio::time::timeout(Duration::from_secs(10), read)
        .await
        .ok();
    String::from_utf8_lossy(&body).into_owned()
}
