//! Which proxy a request goes through: the usual environment variables, `NO_PROXY` lists, and never one for loopback.

use std::net::IpAddr;

use reqwest::Url;

/// A proxy that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("proxy {scheme}:// is not supported; use an http:// or https:// proxy")]
pub struct UnsupportedProxy {
    /// Scheme of the proxy's URL.
    pub scheme: String,
}

/// The proxies of one process. `setting` is the settings' `httpProxy`: it counts for both schemes when their own is unset.
#[derive(Clone, Debug, Default)]
pub struct ProxyRules {
    http: Option<String>,
    https: Option<String>,
    all: Option<String>,
    except: Vec<String>,
}

impl ProxyRules {
    /// Reads the variables; the lower-case spelling wins.
    pub fn read(env: &dyn Fn(&str) -> Option<String>, setting: Option<&str>) -> Self {
        let get = |name: &str| {
            [name.to_lowercase(), name.to_uppercase()]
                .iter()
                .find_map(|name| env(name).filter(|value| !value.is_empty()))
        };
        let except = get("no_proxy").unwrap_or_default();
        let split = except.split(|c: char| c == ',' || c.is_whitespace());
        Self {
            http: get("http_proxy").or_else(|| setting.map(str::to_owned)),
            https: get("https_proxy").or_else(|| setting.map(str::to_owned)),
            all: get("all_proxy"),
            except: split
                .filter(|item| !item.is_empty())
                .map(str::to_lowercase)
                .collect(),
        }
    }

    /// Returns the proxy for a URL.
    pub fn proxy_for(&self, url: &Url) -> Result<Option<Url>, UnsupportedProxy> {
        let own = if url.scheme() == "https" {
            &self.https
        } else {
            &self.http
        };
        let Some(proxy) = own.as_ref().or(self.all.as_ref()) else {
            return Ok(None);
        };
        if is_loopback(url) || self.excepts(url) {
            return Ok(None);
        }
        let text = if proxy.contains("://") {
            proxy.clone()
        } else {
            format!("http://{proxy}")
        };
        match Url::parse(&text) {
            Ok(proxy) if matches!(proxy.scheme(), "http" | "https") => Ok(Some(proxy)),
            Ok(proxy) => Err(UnsupportedProxy {
                scheme: proxy.scheme().to_owned(),
            }),
            Err(_) => Err(UnsupportedProxy {
                scheme: "invalid".to_owned(),
            }),
        }
    }

    fn excepts(&self, url: &Url) -> bool {
        let host = url
            .host_str()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
            .to_lowercase();
        let port = url.port_or_known_default();
        self.except.iter().any(|item| {
            if item == "*" {
                return true;
            }
            let (name, wanted) = split_port(item);
            let name = name
                .trim_matches(['[', ']'])
                .trim_start_matches("*.")
                .trim_start_matches('.');
            let same = host == name
                || host
                    .strip_suffix(name)
                    .is_some_and(|rest| rest.ends_with('.'));
            same && !name.is_empty() && wanted.is_none_or(|wanted| Some(wanted) == port)
        })
    }
}

/// Splits `host:port`; an IPv6 address without brackets has no port.
fn split_port(item: &str) -> (&str, Option<u16>) {
    match item.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => match port.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => (item, None),
        },
        _ => (item, None),
    }
}

/// Whether a URL names this machine.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let address: Option<IpAddr> = host.parse().ok();
    host.eq_ignore_ascii_case("localhost") || address.is_some_and(|address| address.is_loopback())
}
