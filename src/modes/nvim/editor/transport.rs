//! Standard input and output as the protocol's streams, with everything else kept away from them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// The protocol's own copies of standard input and output. Standard output itself points at standard error from then
/// on: one stray printed line would end the connection.
#[derive(Debug)]
pub struct Stdio {
    input: OwnedFd,
    output: OwnedFd,
}

/// A readable end, boxed.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// A writable end, boxed.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

impl Stdio {
    /// Takes both over. Call it before any thread starts.
    ///
    /// # Errors
    /// When a descriptor is closed.
    pub fn take() -> io::Result<Self> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdout(io::stderr())?;
        Ok(Self { input, output })
    }

    /// Makes streams of them, inside a runtime.
    ///
    /// # Errors
    /// When they cannot be watched.
    pub fn streams(self) -> io::Result<(Reader, Writer)> {
        Ok((reader(self.input)?, writer(self.output)?))
    }
}

enum Kind {
    Socket,
    Pipe,
    Other,
}

fn kind(fd: &OwnedFd) -> io::Result<Kind> {
    let stat = rustix::fs::fstat(fd)?;
    Ok(match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Socket => Kind::Socket,
        rustix::fs::FileType::Fifo => Kind::Pipe,
        _ => Kind::Other,
    })
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdUnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

fn reader(fd: OwnedFd) -> io::Result<Reader> {
    Ok(match kind(&fd)? {
        Kind::Socket => Box::new(socket(fd)?),
        Kind::Pipe => Box::new(pipe::Receiver::from_owned_fd(fd)?),
        Kind::Other => Box::new(tokio::fs::File::from_std(File::from(fd))),
    })
}

fn writer(fd: OwnedFd) -> io::Result<Writer> {
    Ok(match kind(&fd)? {
        Kind::Socket => Box::new(socket(fd)?),
        Kind::Pipe => Box::new(pipe::Sender::from_owned_fd(fd)?),
        Kind::Other => Box::new(tokio::fs::File::from_std(File::from(fd))),
    })
}
