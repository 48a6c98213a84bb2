//! A scripted HTTP/1.1 server on loopback: exact borders between pieces, slow bytes, resets, captured requests.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How a response ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// As HTTP says; the connection stays usable when the length is known.
    #[default]
    Close,
    /// The connection is reset after the last byte.
    Reset,
    /// Nothing more comes, the connection stays open.
    Hang,
    /// The connection is closed without any answer.
    NoResponse,
}

/// One scripted response.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers as they are sent.
    pub headers: Vec<(String, String)>,
    /// The body in pieces, each written by itself.
    pub pieces: Vec<Vec<u8>>,
    /// Pause between two pieces.
    pub pause: Duration,
    /// How it ends.
    pub end: End,
    /// Send the body chunked and keep the connection, instead of ending it with the connection.
    pub keep_alive: bool,
}

impl Default for Response {
    fn default() -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            pieces: Vec::new(),
            pause: Duration::from_millis(2),
            end: End::Close,
            keep_alive: true,
        }
    }
}

impl Response {
    /// A complete answer with this body.
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self {
            pieces: vec![body.into()],
            ..Self::default()
        }
    }

    /// An answer with this status and body.
    pub fn status(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
            ..Self::ok(body)
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Splits the body at these byte positions.
    #[must_use]
    pub fn split_at(mut self, at: &[usize]) -> Self {
        let body = self.pieces.concat();
        let mut from = 0;
        self.pieces = at
            .iter()
            .chain([&body.len()])
            .filter_map(|to| {
                let piece = body.get(from..*to)?.to_vec();
                from = *to;
                Some(piece)
            })
            .collect();
        self
    }
}

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// `POST`.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Captured {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(have, _)| have == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// What the server shares with its connections.
#[derive(Debug, Default)]
struct Shared {
    script: Mutex<Vec<Response>>,
    requests: Mutex<Vec<Captured>>,
    connections: Mutex<usize>,
}

/// The server; it ends when dropped.
#[derive(Debug)]
pub struct Server {
    address: std::net::SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts on a free port. The responses are given in order; the last one repeats.
    ///
    /// # Errors
    /// When loopback cannot be listened on.
    pub async fn start(script: Vec<Response>) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script: Mutex::new(script),
            ..Shared::default()
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// Returns `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Captured> {
        self.shared.requests.lock().clone()
    }

    /// Returns how many connections were made.
    pub fn connections(&self) -> usize {
        *self.shared.connections.lock()
    }

    /// Replaces the rest of the script.
    pub fn set_script(&self, script: Vec<Response>) {
        *self.shared.script.lock() = script;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        *shared.connections.lock() += 1;
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            // A client that goes away is part of the tests.
            serve(stream, &shared).await.ok();
        });
    }
}

async fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let Some(request) = read_request(&mut stream).await? else {
            return Ok(());
        };
        shared.requests.lock().push(request);
        let response = {
            let mut script = shared.script.lock();
            match script.len() {
                0 => Response::status(500, "the script is exhausted"),
                1 => script.first().cloned().unwrap_or_default(),
                _ => script.remove(0),
            }
        };
        if !answer(stream.get_mut(), response).await? {
            return Ok(());
        }
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Captured>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let mut request = Captured {
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        ..Captured::default()
    };
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let value = value.trim().to_owned();
        request.headers.push((name.to_lowercase(), value));
    }
    let length = request
        .header("content-length")
        .and_then(|text| text.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    request.body = body;
    Ok(Some(request))
}

/// Writes a response; true when the connection can be used again.
async fn answer(stream: &mut TcpStream, response: Response) -> std::io::Result<bool> {
    if response.end == End::NoResponse {
        reset(stream)?;
        return Ok(false);
    }
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", response.status);
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let chunked = response.keep_alive;
    head.push_str(if chunked {
        "transfer-encoding: chunked\r\n\r\n"
    } else {
        "connection: close\r\n\r\n"
    });
    stream.write_all(head.as_bytes()).await?;
    for (at, piece) in response.pieces.iter().enumerate() {
        if at > 0 {
            stream.flush().await?;
            tokio::time::sleep(response.pause).await;
        }
        if piece.is_empty() {
            continue;
        }
        if chunked {
            let mut framed = format!("{:x}\r\n", piece.len()).into_bytes();
            framed.extend_from_slice(piece);
            framed.extend_from_slice(b"\r\n");
            stream.write_all(&framed).await?;
        } else {
            stream.write_all(piece).await?;
        }
    }
    stream.flush().await?;
    match response.end {
        End::Close if chunked => {
            stream.write_all(b"0\r\n\r\n").await?;
            Ok(true)
        }
        End::Close => {
            stream.shutdown().await?;
            Ok(false)
        }
        End::Hang => {
            // Until the client goes away or the server is dropped.
            stream.read_u8().await.ok();
            Ok(false)
        }
        End::Reset | End::NoResponse => {
            tokio::time::sleep(Duration::from_millis(20)).await;
            reset(stream)?;
            Ok(false)
        }
    }
}

/// Makes the close of the connection a reset.
fn reset(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_zero_linger()
}
