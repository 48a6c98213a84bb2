//! The Neovim face: a bridge to the Lua plugin over msgpack-rpc.
//!
//! [`run`] connects, greets, and serves until Neovim is gone. [`editor`] is the adapter to the running Neovim, and the
//! only module that names nvim-rs; [`outbox`] batches what is drawn; [`face`] takes the requests of the Lua side;
//! [`slot`] follows one session; [`chat_view`] is the model of what a chat shows.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::workspace::disk::DiskWorkspace;

mod admin;
mod changes;
pub mod chat_view;
mod dialog;
mod edit;
pub mod editor;
mod events;
pub mod face;
pub mod hello;
mod json;
mod mention;
pub mod opener;
mod opening;
pub mod outbox;
mod prompt;
mod requests;
pub mod review_view;
mod sessions;
pub mod slot;
pub mod status;
mod tree;
pub mod workspace;
mod written;

use editor::transport::Stdio;
use editor::{Editor, Notification};
use face::{Face, Panel};
use opener::Opener;
pub use opening::Begin;
use outbox::Outbox;
use review_view::{Limits, ReviewView};
use workspace::EditorWorkspace;

/// How long the end may take: Neovim waits for this process when it quits.
const FAREWELL: Duration = Duration::from_millis(250);

/// Where the running Neovim is.
#[derive(Debug)]
pub enum Connection {
    /// It started this process: `jobstart({'pi-nvim', '--mode', 'nvim'}, {rpc = true})`.
    Stdio(Stdio),
    /// It listens on this socket: `pi-nvim --attach PATH`.
    Attach(PathBuf),
}

/// Serves a Neovim until it is gone or SIGTERM comes; then everything ends within 300 ms.
///
/// # Errors
/// One line, when the two could not get together.
pub async fn run(
    connection: Connection,
    opener: crate::session::Opener,
    begin: Begin,
) -> Result<(), String> {
    let (editor, notes) = connect(connection).await?;
    let hello = hello::greet(&editor, begin.word()).await?;
    let workspace = Arc::new(EditorWorkspace::new(
        editor.clone(),
        DiskWorkspace::default(),
    ));
    let opener = Opener::new(opener, workspace.clone(), &hello.config, &hello.cwd)?;
    let outbox = Outbox::default();
    let review = ReviewView::new(
        opener.gate().clone(),
        workspace,
        &hello.cwd,
        outbox.clone(),
        Limits::of(&hello.config),
    );
    // Ends with the gate, that is with the process.
    tokio::spawn(review.clone().run());
    let panels = HashMap::from([("review", review as Arc<dyn Panel>)]);
    let drawing = tokio::spawn(outbox.clone().run(editor.clone()));
    let face = Face::new(editor, outbox, opener, hello.config, begin, panels);
    serve(&face, notes).await;
    // A session that does not end in time is ended with the process: its file is whole after every entry.
    tokio::time::timeout(FAREWELL, face.shutdown()).await.ok();
    drawing.abort();
    Ok(())
}

async fn connect(
    connection: Connection,
) -> Result<(Editor, mpsc::UnboundedReceiver<Notification>), String> {
    match connection {
        Connection::Stdio(stdio) => {
            let streams = stdio.streams();
            let (reader, writer) = streams
                .map_err(|error| format!("speak over standard input and output: {error}"))?;
            Ok(Editor::connect(reader, writer))
        }
        Connection::Attach(path) => {
            let connected = Editor::connect_path(&path).await;
            let (editor, notes) = connected
                .map_err(|error| format!("no Neovim listens on {}: {error}", path.display()))?;
            hello::same_machine(&editor).await?;
            Ok((editor, notes))
        }
    }
}

/// Takes requests until Neovim is gone.
async fn serve(face: &Arc<Face>, mut notes: mpsc::UnboundedReceiver<Notification>) {
    let mut terminate =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
    let terminated = async {
        match &mut terminate {
            Some(signal) => signal.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(terminated);
    loop {
        tokio::select! {
            biased;
            _ = face.editor.closed() => return,
            _ = &mut terminated => return,
            note = notes.recv() => match note {
                Some(note) => face.take(&note),
                None => return,
            },
        }
    }
}
