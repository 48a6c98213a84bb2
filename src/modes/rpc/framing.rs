//! Lines in and out. Blocking reads and writes live in threads of their own, so that a client that neither writes nor
//! reads holds up nobody but itself.

use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

/// Splits bytes into lines on LF alone (U+2028 and the like are data); a CR before it is dropped. Bytes that are no
/// UTF-8 become U+FFFD.
#[derive(Debug, Default)]
pub struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    /// Takes in a piece, which may end anywhere; returns the lines that are complete.
    pub fn push(&mut self, piece: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            self.pending.extend_from_slice(line);
            lines.push(self.take());
            rest = after.get(1..).unwrap_or_default();
        }
        self.pending.extend_from_slice(rest);
        lines
    }

    /// Returns a last line without its end, if there is one.
    pub fn finish(&mut self) -> Option<String> {
        (!self.pending.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> String {
        let mut bytes = std::mem::take(&mut self.pending);
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

/// Lines of a client.
pub struct Source {
    lines: mpsc::Receiver<String>,
}

impl Source {
    /// Reads `input` in a thread until it ends. The thread may outlive everything: a blocking read cannot be called off.
    pub fn new(mut input: impl Read + Send + 'static) -> Self {
        // When it is full the thread waits, and with it the client.
        let (out, lines) = mpsc::channel(64);
        thread::spawn(move || {
            let mut split = Lines::default();
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let count = match input.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    Err(_) => break,
                };
                for line in split.push(buffer.get(..count).unwrap_or_default()) {
                    if out.blocking_send(line).is_err() {
                        return;
                    }
                }
            }
            if let Some(line) = split.finish() {
                // The receiver may be gone already.
                drop(out.blocking_send(line));
            }
        });
        Self { lines }
    }

    /// Returns the next line; `None` at the end.
    pub async fn next(&mut self) -> Option<String> {
        self.lines.recv().await
    }
}

/// Lines for a client.
pub struct Sink {
    lines: mpsc::Sender<String>,
    done: oneshot::Receiver<io::Result<()>>,
}

impl Sink {
    /// Writes to `output` in a thread; what stands in line is written together.
    pub fn new(mut output: impl Write + Send + 'static) -> Self {
        // When it is full the one who writes waits: back-pressure down to the run.
        let (lines, mut waiting) = mpsc::channel::<String>(64);
        let (tell, done) = oneshot::channel();
        thread::spawn(move || {
            let written = (|| {
                while let Some(line) = waiting.blocking_recv() {
                    let mut text = line;
                    text.push('\n');
                    while let Ok(line) = waiting.try_recv() {
                        text.push_str(&line);
                        text.push('\n');
                    }
                    write_all(&mut output, text.as_bytes())?;
                    output.flush()?;
                }
                Ok(())
            })();
            // Nobody may wait for it.
            drop(tell.send(written));
        });
        Self { lines, done }
    }

    /// Puts a line on its way.
    ///
    /// # Errors
    /// When nothing can be written any more.
    pub async fn write(&self, line: String) -> io::Result<()> {
        let sent = self.lines.send(line).await;
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// Why it could not be.
    pub async fn finish(self) -> io::Result<()> {
        drop(self.lines);
        self.done
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

/// Writes everything, also to an output that does not block and is full at times.
fn write_all(output: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    || error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) =>
            {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_line_feeds_only() {
        let mut lines = Lines::default();
        assert_eq!(
            lines.push("a\u{2028}b\r\n{\"x\":\"\u{00e4}".as_bytes()),
            ["a\u{2028}b"]
        );
        let bytes = "\u{1F600}".as_bytes();
        assert!(lines.push(&bytes[..2]).is_empty());
        assert!(lines.push(&bytes[2..]).is_empty());
        assert_eq!(
            lines.push(b"\"}\n\n"),
            ["{\"x\":\"\u{00e4}\u{1F600}\"}", ""]
        );
        assert_eq!(lines.finish(), None);
        assert!(lines.push(b"tail").is_empty());
        assert_eq!(lines.finish().as_deref(), Some("tail"));
    }
}
