//! The way to a server: proxies, exceptions from them, certificates of private authorities.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use pi_nvim::ai::http::HttpSettings;
use pi_nvim::ai::{AssistantMessage, ModelRegistry, retry};
use pi_nvim::testing::http::{Response, Server};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::support::{self, env};
use super::transport::{free_url, last, request, said, text};

#[tokio::test]
async fn proxies_are_used_where_they_should_be() {
    let proxy = Server::start(vec![Response::ok(text(&["via proxy"]))])
        .await
        .unwrap();
    let with_user = proxy.url().replace("http://", "http://user:PROXYPASS1@");
    let dir = tempfile::tempdir().unwrap();
    let registry = ModelRegistry::load(dir.path(), env(&[("HTTP_PROXY", &with_user)]));
    let message = last(&registry, request("http://model.test/v1", json!({}))).await;
    assert_eq!(said(&message), "via proxy", "{message:?}");
    let seen = proxy.requests();
    assert_eq!(seen[0].path, "http://model.test/v1/chat/completions");
    assert!(
        seen[0]
            .header("proxy-authorization")
            .unwrap()
            .starts_with("Basic ")
    );
    // On loopback it sees nothing.
    let server = Server::start(vec![Response::ok(text(&["direct"]))])
        .await
        .unwrap();
    assert_eq!(
        said(&last(&registry, request(&server.url(), json!({}))).await),
        "direct"
    );
    assert_eq!(proxy.requests().len(), 1);
    // A dead one is named without its password.
    let dead = free_url().replace("http://", "http://user:PROXYPASS1@");
    let registry = ModelRegistry::load(dir.path(), env(&[("HTTP_PROXY", &dead)]));
    let why = last(&registry, request("http://model.test/v1", json!({})))
        .await
        .error_message
        .unwrap();
    assert!(
        why.contains("through the proxy 127.0.0.1:") && !why.contains("PROXYPASS1"),
        "{why}"
    );
    let registry = ModelRegistry::load(
        dir.path(),
        env(&[("ALL_PROXY", "socks5://user:PROXYPASS1@p:1")]),
    );
    let why = last(&registry, request("http://model.test/v1", json!({})))
        .await
        .error_message
        .unwrap();
    assert!(
        why.contains("socks5") && !why.contains("PROXYPASS1"),
        "{why}"
    );
}

/// A TLS server of this name that gives every connection one answer; its authority's certificate as PEM.
async fn tls_server(name: &str, body: String) -> (u16, String) {
    let names = vec![name.to_owned()];
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let ca = rcgen::CertifiedIssuer::self_signed(params, ca_key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let cert = rcgen::CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &ca)
        .unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, body) = (acceptor.clone(), body.clone());
            tokio::spawn(async move {
                // A client that does not trust us ends here.
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut seen = [0; 16384];
                assert!(stream.read(&mut seen).await.is_ok_and(|count| count > 0));
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                stream
                    .write_all(format!("{head}{body}").as_bytes())
                    .await
                    .ok();
                stream.shutdown().await.ok();
            });
        }
    });
    (port, ca.pem())
}

#[tokio::test]
async fn a_private_authority_is_trusted_when_named() {
    let (port, pem) = tls_server("localhost", text(&["secure"])).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, pem).unwrap();
    let base = format!("https://localhost:{port}/v1");
    for variable in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
        let registry = ModelRegistry::load(dir.path(), env(&[(variable, file.to_str().unwrap())]));
        let message = last(&registry, request(&base, json!({}))).await;
        assert_eq!(said(&message), "secure", "{variable}: {message:?}");
    }
    let (_dir, registry) = support::registry();
    let message = last(&registry, request(&base, json!({"maxRetries": 3}))).await;
    let why = message.error_message.clone().unwrap();
    assert!(
        why.contains("certificate of localhost is not trusted") && why.contains("SSL_CERT_FILE"),
        "{why}"
    );
    assert!(!retry::is_retryable(&message, 0), "{why}");
    let registry =
        ModelRegistry::load(dir.path(), env(&[("SSL_CERT_FILE", "/nonexistent/ca.pem")]));
    let why = last(&registry, request(&base, json!({})))
        .await
        .error_message
        .unwrap();
    assert!(
        why.contains("/nonexistent/ca.pem") && why.contains("SSL_CERT_FILE"),
        "{why}"
    );
}

/// A proxy that only tunnels: every `CONNECT` leads to one port on loopback, whatever it names.
struct Tunnel {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tunnel {
    /// `to` = `None` refuses everybody with 407.
    async fn start(to: Option<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                // A client that goes away is part of the tests.
                tokio::spawn(async move { tunnel(stream, to, &seen).await.ok() });
            }
        });
        Self { port, heads, task }
    }

    fn url(&self) -> String {
        format!("http://user:PROXYPASS1@127.0.0.1:{}", self.port)
    }

    /// What was asked of it in clear text.
    fn seen(&self) -> Vec<String> {
        self.heads.lock().clone()
    }
}

async fn tunnel(
    stream: TcpStream,
    to: Option<u16>,
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await? == 0 {
            break;
        }
    }
    seen.lock().push(head);
    let Some(to) = to else {
        let refusal =
            "HTTP/1.1 407 Who are you\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n";
        return stream.write_all(refusal.as_bytes()).await;
    };
    let mut target = TcpStream::connect(("127.0.0.1", to)).await?;
    stream.write_all(b"HTTP/1.1 200 Go\r\n\r\n").await?;
    tokio::io::copy_bidirectional(&mut stream, &mut target).await?;
    Ok(())
}

/// A registry with these variables that trusts this authority.
fn trusting(dir: &Path, pem: &str, variables: &[(&str, &str)]) -> ModelRegistry {
    let file = dir.join("ca.pem");
    std::fs::write(&file, pem).unwrap();
    let mut all = variables.to_vec();
    all.push(("SSL_CERT_FILE", file.to_str().unwrap()));
    ModelRegistry::load(dir, env(&all))
}

async fn ask(registry: &ModelRegistry, base: &str) -> AssistantMessage {
    last(registry, request(base, json!({}))).await
}

#[tokio::test]
async fn a_secure_server_is_reached_through_a_tunnel() {
    let (port, pem) = tls_server("model.test", text(&["through the tunnel"])).await;
    let proxy = Tunnel::start(Some(port)).await;
    let dir = tempfile::tempdir().unwrap();
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
        let registry = trusting(dir.path(), &pem, &[(variable, &proxy.url())]);
        let message = ask(&registry, "https://model.test/v1").await;
        assert_eq!(
            said(&message),
            "through the tunnel",
            "{variable}: {message:?}"
        );
    }
    // The settings' proxy counts for both schemes, and less than the environment.
    let by_settings = HttpSettings {
        proxy: Some(proxy.url()),
        ..HttpSettings::default()
    };
    let registry = trusting(dir.path(), &pem, &[]);
    registry.configure(by_settings.clone());
    let message = ask(&registry, "https://model.test/v1").await;
    assert_eq!(said(&message), "through the tunnel", "{message:?}");
    let heads = proxy.seen();
    assert_eq!(heads.len(), 4);
    for head in heads {
        let lower = head.to_lowercase();
        assert!(
            head.starts_with("CONNECT model.test:443 HTTP/1.1\r\n"),
            "{head}"
        );
        assert!(lower.contains("\r\nproxy-authorization: basic "), "{head}");
        assert!(
            !head.contains("SECRET123"),
            "the key left the tunnel: {head}"
        );
    }
    let dead = free_url();
    let registry = trusting(dir.path(), &pem, &[("HTTPS_PROXY", &dead)]);
    registry.configure(by_settings);
    let why = ask(&registry, "https://model.test/v1").await.error_message;
    assert!(why.unwrap().contains("through the proxy 127.0.0.1:"));
    assert_eq!(proxy.seen().len(), 4);
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_password_and_not_asked_again() {
    let proxy = Tunnel::start(None).await;
    let dir = tempfile::tempdir().unwrap();
    let variables = [("HTTPS_PROXY", proxy.url()), ("HTTP_PROXY", proxy.url())];
    let variables = variables
        .each_ref()
        .map(|(name, url)| (*name, url.as_str()));
    let registry = ModelRegistry::load(dir.path(), env(&variables));
    for base in ["https://model.test/v1", "http://model.test/v1"] {
        let message = ask(&registry, base).await;
        let why = message.error_message.clone().unwrap();
        let named = format!("the proxy 127.0.0.1:{} refused us", proxy.port);
        assert!(why.contains(&named), "{base}: {why}");
        assert!(!why.contains("PROXYPASS1"), "{base}: {why}");
        assert!(!retry::is_retryable(&message, 0), "{base}: {why}");
    }
}

/// `0.0.0.0` leads to this machine without being one of its loopback names, so nothing has to be looked up.
#[tokio::test]
async fn exceptions_and_this_machine_bypass_the_proxy() {
    let proxy = Server::start(vec![Response::ok(text(&["via proxy"]))]);
    let server = Server::start(vec![Response::ok(text(&["direct"]))]);
    let (proxy, server) = (proxy.await.unwrap(), server.await.unwrap());
    let dir = tempfile::tempdir().unwrap();
    let way = async |no_proxy: &str, host: &str| {
        let proxy = proxy.url();
        let variables = [("http_proxy", proxy.as_str()), ("no_proxy", no_proxy)];
        let registry = ModelRegistry::load(dir.path(), env(&variables));
        said(&ask(&registry, &format!("http://{host}:{}/v1", server.port())).await)
    };
    let with_port = format!("0.0.0.0:{}", server.port());
    for no_proxy in ["0.0.0.0", "*", "other.test, 0.0.0.0", &with_port] {
        assert_eq!(way(no_proxy, "0.0.0.0").await, "direct", "{no_proxy}");
    }
    for no_proxy in ["", "0.0.0.1", "other.test", "0.0.0.0:1"] {
        assert_eq!(way(no_proxy, "0.0.0.0").await, "via proxy", "{no_proxy}");
    }
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(way("", host).await, "direct", "{host}");
    }
    // Nobody listens there; the proxy would have answered.
    assert_eq!(way("", "[::1]").await, "");
}
