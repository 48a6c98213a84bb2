//! `read`: a range of lines of a text file, or a picture.
//!
//! Text is streamed: only the lines that can be shown are kept, whatever the size of the file or of a line
//! (`read/lines.rs`). What a file is comes from its first bytes, never from its name.

mod lines;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::declare::{self, BuiltIn, Sampling, declaration};
use super::image::{self, Profile};
use super::{ToolEnv, paths, truncate};
use crate::agent::{ErrorClass, Sight, ToolContext, ToolError, ToolOutput};
use crate::ai::Block;
use lines::{Range, Scan, Selection};

/// Bytes looked at to tell a picture from text.
const SNIFF: usize = 4100;
/// Bytes read at a time.
const PIECE: usize = 256 * 1024;
/// Largest picture file that is loaded at all.
const MAX_IMAGE_FILE: u64 = 200 * 1024 * 1024;

pub(super) const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "path": {"type": "string", "description": "File to read, relative or absolute"},
    "offset": {"type": "number", "description": "First line, counted from 1"},
    "limit": {"type": "number", "description": "How many lines at most"}
  },
  "required": ["path"]
}"#;

#[derive(Deserialize)]
pub(super) struct Input {
    path: String,
    offset: Option<f64>,
    limit: Option<f64>,
}

/// Makes the tool.
pub(super) fn tool(env: Arc<ToolEnv>) -> BuiltIn {
    let description = "Read a file. Text comes as it is; pictures (jpg, png, gif, webp, bmp) are attached. Text is cut \
         after 2000 lines or 50KB, whichever comes first; go on with `offset` as the closing note says, until you have \
         what you need.";
    BuiltIn {
        env,
        declaration: declaration(
            "read",
            description.to_owned(),
            SCHEMA,
            Sampling::PreferStrict,
        ),
        snippet: Some("Read files, also pictures"),
        guidelines: &["Look at files with read rather than with cat or sed in bash."],
        sight: Sight::Sees,
        prepare: |arguments| arguments,
        start,
    }
}

fn start(
    env: Arc<ToolEnv>,
    arguments: Value,
    cx: ToolContext,
) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
    Box::pin(async move {
        let input: Input = declare::decode("read", arguments)?;
        let given = input.path.clone();
        let (cwd, home) = (cx.cwd.clone(), env.options.get().home.clone());
        let resolved = declare::blocking(&cx, move || {
            let path = paths::resolve_existing(&input.path, &cwd, &home)?;
            let real = path.canonicalize().ok();
            Ok((path, real))
        });
        let (path, real) = resolved.await?;
        let buffer = unsaved(&env, &path, real.as_deref());
        let job = Job {
            buffer: declare::unless_aborted(&cx, buffer).await?,
            profile: Profile::of(
                cx.session.model.as_deref(),
                env.options.get().auto_resize_images,
            ),
            range: Range::new(input.offset, input.limit),
            path,
            given,
        };
        let cancel = cx.cancel.clone();
        let content = declare::blocking(&cx, move || job.run(&cancel));
        Ok(match content.await? {
            Content::Text(output) => {
                if let Some(real) = real {
                    env.gate.read_by_tool(real);
                }
                *output
            }
            Content::Picture(picture) => show(picture, &cx),
        })
    })
}

/// The buffer that stands for the file, under the path as resolved or under its real path.
async fn unsaved(env: &ToolEnv, path: &Path, real: Option<&Path>) -> Option<Arc<[u8]>> {
    let found = env.workspace.unsaved(path).await;
    match real.filter(|real| found.is_none() && *real != path) {
        Some(real) => env.workspace.unsaved(real).await,
        None => found,
    }
}

/// One call, for a blocking thread.
struct Job {
    path: PathBuf,
    given: String,
    range: Range,
    buffer: Option<Arc<[u8]>>,
    profile: Profile,
}

enum Content {
    Text(Box<ToolOutput>),
    Picture(image::Picture),
}

impl Job {
    fn run(self, cancel: &CancellationToken) -> Result<Content, ToolError> {
        let mut source = match &self.buffer {
            Some(bytes) => Source::Buffer(bytes),
            None => Source::open(&self.path).map_err(|error| self.failed(&error))?,
        };
        let mut start = vec![0; SNIFF];
        let length = source
            .fill(&mut start, cancel)
            .map_err(|error| self.failed(&error))?;
        start.truncate(length);
        if let Some(kind) = image::sniff(&start) {
            return self.picture(kind, start, source, cancel);
        }
        let selection = self.select(start, &mut source, cancel)?;
        Ok(Content::Text(Box::new(self.render(selection)?)))
    }

    fn failed(&self, error: &io::Error) -> ToolError {
        match error.kind() {
            io::ErrorKind::Interrupted => ToolError::aborted(),
            _ => declare::io_error("read", &self.given, error),
        }
    }

    fn picture(
        &self,
        kind: image::Kind,
        mut bytes: Vec<u8>,
        mut source: Source<'_>,
        cancel: &CancellationToken,
    ) -> Result<Content, ToolError> {
        let mut piece = vec![0; PIECE];
        loop {
            let length = source
                .fill(&mut piece, cancel)
                .map_err(|error| self.failed(&error))?;
            bytes.extend_from_slice(piece.get(..length).unwrap_or_default());
            if length == 0 {
                break;
            }
            if bytes.len() as u64 > MAX_IMAGE_FILE {
                return Ok(Content::Picture(image::Picture::omitted(
                    kind,
                    "the file is too large",
                )));
            }
        }
        Ok(Content::Picture(image::prepare(kind, bytes, &self.profile)))
    }

    fn select(
        &self,
        start: Vec<u8>,
        source: &mut Source<'_>,
        cancel: &CancellationToken,
    ) -> Result<Selection, ToolError> {
        if let Some(from_end) = self.range.end_from_the_end() {
            // Such an end is known only when all lines are counted.
            let mut count = Scan::counting();
            let mut again = self.reopened().map_err(|error| self.failed(&error))?;
            pour(&mut again, &mut count, cancel).map_err(|error| self.failed(&error))?;
            let end = count.finish().total_lines.saturating_sub(from_end);
            let mut scan = Scan::new(self.range.start(), Some(end));
            scan.feed(&start);
            pour(source, &mut scan, cancel).map_err(|error| self.failed(&error))?;
            return Ok(scan.finish());
        }
        let mut scan = Scan::new(self.range.start(), self.range.end());
        scan.feed(&start);
        pour(source, &mut scan, cancel).map_err(|error| self.failed(&error))?;
        Ok(scan.finish())
    }

    fn reopened(&self) -> io::Result<Source<'_>> {
        match &self.buffer {
            Some(bytes) => Ok(Source::Buffer(bytes)),
            None => Source::open(&self.path),
        }
    }

    fn render(&self, selection: Selection) -> Result<ToolOutput, ToolError> {
        let total = selection.total_lines;
        if self.range.start() >= total {
            let offset = lines::number(self.range.offset.unwrap_or_default());
            return Err(ToolError::new(
                ErrorClass::OffsetBeyondEof,
                format!(
                    "offset {offset} is past the end of {}: it has {total} lines",
                    self.given
                ),
            ));
        }
        let cut = truncate::head_of(
            &selection.text,
            selection.totals,
            truncate::MAX_LINES,
            truncate::MAX_BYTES,
        );
        let first = self.range.first_line();
        let max = truncate::size_text(truncate::MAX_BYTES);
        let mut text = cut.content.clone();
        if cut.first_line_exceeds_limit {
            let (size, given) = (truncate::size_text(selection.first_line_bytes), &self.given);
            let n = lines::number(first);
            text = format!(
                "[Line {n} is {size}, exceeds {max} limit. Use bash: sed -n '{n}p' {given} | head -c {}]",
                truncate::MAX_BYTES
            );
        } else if let Some(by) = cut.by {
            let last = first + cut.output_lines as f64 - 1.0;
            let limit = match by {
                truncate::TruncatedBy::Lines => String::new(),
                truncate::TruncatedBy::Bytes => format!(" ({max} limit)"),
            };
            let [a, b, next] = [first, last, last + 1.0].map(lines::number);
            text.push_str(&format!(
                "\n\n[Showing lines {a}-{b} of {total}{limit}. Use offset={next} to continue.]"
            ));
        } else if let Some(end) = self.range.raw_end().filter(|end| *end < total as f64) {
            let [remaining, next] = [total as f64 - end, end + 1.0].map(lines::number);
            text.push_str(&format!(
                "\n\n[{remaining} more lines in file. Use offset={next} to continue.]"
            ));
        }
        Ok(ToolOutput {
            details: cut
                .truncated()
                .then(|| json!({"truncation": cut.to_value()})),
            structured_content: Some(text.as_str().into()),
            ..ToolOutput::text(text)
        })
    }
}

fn pour(source: &mut Source<'_>, scan: &mut Scan, cancel: &CancellationToken) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = source.fill(&mut piece, cancel)?;
        if length == 0 {
            return Ok(());
        }
        scan.feed(piece.get(..length).unwrap_or_default());
    }
}

/// Bytes of a file or of the buffer that stands for it.
enum Source<'a> {
    Buffer(&'a [u8]),
    /// A regular file ends where it ended when it was opened, so reading one that grows comes to an end.
    Sized(io::Take<File>),
    Endless(File),
}

impl Source<'_> {
    fn open(path: &Path) -> io::Result<Self> {
        // Opening a pipe without a writer must not wait; regular files do not care.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        let meta = file.metadata()?;
        Ok(if meta.is_file() && meta.len() > 0 {
            Self::Sized(file.take(meta.len()))
        } else {
            Self::Endless(file)
        })
    }

    /// Reads until `buf` is full or the source ends; `Interrupted` means aborted.
    fn fill(&mut self, buf: &mut [u8], cancel: &CancellationToken) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            if cancel.is_cancelled() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let read = match self {
                Self::Buffer(bytes) => bytes.read(rest),
                Self::Sized(file) => file.read(rest),
                Self::Endless(file) => file.read(rest),
            };
            match read {
                Ok(0) => break,
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

fn show(picture: image::Picture, cx: &ToolContext) -> ToolOutput {
    let note = picture.text();
    let mut output = ToolOutput::text(note.clone());
    if let Some(data) = picture.data {
        output.structured_content = Some(json!({
            "type": "image", "data": data, "mimeType": picture.mime, "note": note,
        }));
        output.content.push(Block::image(data, picture.mime));
        let blind = cx
            .session
            .model
            .as_ref()
            .filter(|model| !model.reads_images());
        output.details = blind.map(|model| json!({"imageUnsupportedByModel": model.id}));
    }
    output
}
