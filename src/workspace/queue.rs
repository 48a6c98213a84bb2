//! The mutation queue: one line of waiting changes per real file, for all sessions of the process.
//!
//! Entry point: [`MutationQueue::enter`], which takes a place *before it returns*, so that changes of one file run in the
//! order in which they were asked for. A [`Place`] is held through review and write and frees the file when it is
//! dropped, however its change ended. Independent of the places there is a short lock per file
//! ([`MutationQueue::write_lock`]) that a commit and a person's undo take for the moment of writing.
//! A file with several names (hard links) has one line and one lock. Invariant: a wait is only ever for an earlier
//! change, so there is no cycle.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::disk::real_path;

/// How long finding the real path may take; a file system that hangs fails the call and no other.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(5);

/// Why a place could not be had.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The real path is not known in time.
    #[error("look up {}: no answer within 5 s", .0.display())]
    Slow(PathBuf),
    /// The path has no real path (a loop of links, a name that is too long).
    #[error("look up {}", path.display())]
    LookUp {
        /// As asked for.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The call that made this one holds the file itself and would wait for it.
    #[error("{} is held by the call that made this one", .0.display())]
    HeldByAncestor(PathBuf),
}

/// Who asks for a place.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Session; look-ups of one session keep their order.
    pub session: String,
    /// Tool call.
    pub call_id: String,
    /// Calls that this one was made by.
    pub ancestors: Vec<String>,
}

/// Waiting changes per real file. Cloning gives another handle of the same queue.
#[derive(Clone, Default)]
pub struct MutationQueue {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Files with a holder; the entry goes when nobody is left.
    lanes: HashMap<FileId, Lane>,
    /// The end of each session's chain of look-ups: fires when the last one asked for has joined its lane.
    chains: HashMap<String, oneshot::Receiver<()>>,
    write_locks: HashMap<FileId, Arc<tokio::sync::Mutex<()>>>,
    next_id: u64,
}

/// What makes two names the same file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FileId {
    /// Its real path.
    Path(PathBuf),
    /// Device and inode of a file with several hard links.
    Links(u64, u64),
}

impl FileId {
    /// Looks at the file; blocks.
    fn of(real_path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        match std::fs::symlink_metadata(real_path) {
            Ok(meta) if meta.is_file() && meta.nlink() > 1 => Self::Links(meta.dev(), meta.ino()),
            _ => Self::Path(real_path.to_owned()),
        }
    }
}

struct Lane {
    /// First the holder, then those who wait.
    line: VecDeque<Stand>,
}

struct Stand {
    id: u64,
    call_id: String,
    /// Taken when the place is given.
    turn: Option<oneshot::Sender<()>>,
}

impl MutationQueue {
    /// Asks for a place. The order of calls is the order of places, for each file and session; the look-up of the real
    /// path goes on by itself, on a blocking thread. Must be called inside a tokio runtime.
    pub fn enter(&self, caller: Caller, path: &Path) -> Ticket {
        let (joined, joined_rx) = oneshot::channel();
        let (send, receive) = oneshot::channel();
        let before = {
            let mut state = self.shared.state.lock();
            state.chains.insert(caller.session.clone(), joined_rx)
        };
        let looked_up = look_up(path.to_owned());
        let shared = Arc::clone(&self.shared);
        // Ends by itself: at the latest when the look-ups before it have, each within its limit.
        tokio::spawn(async move {
            let looked_up = looked_up.await;
            if let Some(before) = before {
                // An error means that the one before is gone without joining; it is no longer waited for.
                before.await.ok();
            }
            let joined_lane = looked_up.and_then(|found| Shared::join(&shared, &caller, found));
            // Nobody listening means the ticket was given up; the lane is then left by the drop of what was sent.
            drop(send.send(joined_lane));
            drop(joined);
            shared.forget_finished_chain(&caller.session);
        });
        Ticket { receive }
    }

    /// Locks the file for the moment of a write. Never held while a person thinks.
    pub async fn write_lock(&self, key: &Path) -> WriteLock {
        let path = key.to_owned();
        let looked = tokio::task::spawn_blocking(move || FileId::of(&path)).await;
        let file = looked.unwrap_or_else(|_| FileId::Path(key.to_owned()));
        let lock = {
            let mut state = self.shared.state.lock();
            // Locks nobody holds or waits for are dropped here, so the map stays as small as what goes on.
            state
                .write_locks
                .retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(state.write_locks.entry(file).or_default())
        };
        WriteLock {
            _guard: lock.lock_owned().await,
        }
    }

    /// Returns how many files have a holder.
    pub fn files_held(&self) -> usize {
        self.shared.state.lock().lanes.len()
    }
}

/// Starts the look-up at once and gives its end.
fn look_up(path: PathBuf) -> impl Future<Output = Result<(PathBuf, FileId), QueueError>> + Send {
    let work = {
        let path = path.clone();
        tokio::task::spawn_blocking(move || {
            let real = real_path(&path)?;
            let file = FileId::of(&real);
            Ok::<_, io::Error>((real, file))
        })
    };
    async move {
        match tokio::time::timeout(LOOK_UP_LIMIT, work).await {
            Err(_) => Err(QueueError::Slow(path)),
            Ok(done) => done
                .map_err(io::Error::other)
                .flatten()
                .map_err(|source| QueueError::LookUp { path, source }),
        }
    }
}

impl Shared {
    fn join(
        shared: &Arc<Self>,
        caller: &Caller,
        (key, file): (PathBuf, FileId),
    ) -> Result<Queued, QueueError> {
        let mut state = shared.state.lock();
        state.next_id += 1;
        let id = state.next_id;
        let lane = state.lanes.entry(file.clone()).or_insert_with(|| Lane {
            line: VecDeque::new(),
        });
        let holder = lane.line.front();
        if holder.is_some_and(|stand| caller.ancestors.contains(&stand.call_id)) {
            return Err(QueueError::HeldByAncestor(key));
        }
        let (turn, turn_rx) = oneshot::channel();
        let mut stand = Stand {
            id,
            call_id: caller.call_id.clone(),
            turn: Some(turn),
        };
        let behind = holder.map(|stand| stand.call_id.clone());
        if behind.is_none() {
            stand.call_turn();
        }
        lane.line.push_back(stand);
        drop(state);
        let place = Place {
            shared: Arc::clone(shared),
            key,
            file,
            id,
        };
        Ok(Queued {
            place,
            turn: turn_rx,
            behind,
        })
    }

    fn leave(&self, file: &FileId, id: u64) {
        let mut state = self.state.lock();
        let Some(lane) = state.lanes.get_mut(file) else {
            return;
        };
        lane.line.retain(|stand| stand.id != id);
        match lane.line.front_mut() {
            Some(next) => next.call_turn(),
            None => {
                state.lanes.remove(file);
            }
        }
    }

    fn forget_finished_chain(&self, session: &str) {
        let mut state = self.state.lock();
        let finished = state.chains.get_mut(session).is_some_and(|last| {
            !matches!(last.try_recv(), Err(oneshot::error::TryRecvError::Empty))
        });
        if finished {
            state.chains.remove(session);
        }
    }
}

impl Stand {
    fn call_turn(&mut self) {
        if let Some(turn) = self.turn.take() {
            // Nobody listening: the place is being given up and its drop calls the next.
            turn.send(()).ok();
        }
    }
}

/// A place asked for, whose file is still being looked up.
pub struct Ticket {
    receive: oneshot::Receiver<Result<Queued, QueueError>>,
}

impl Ticket {
    /// Waits until the real path is known and the place is in its line. Dropping this gives the place up.
    ///
    /// # Errors
    /// See [`QueueError`].
    pub async fn queued(self) -> Result<Queued, QueueError> {
        self.receive.await.unwrap_or_else(|_| {
            Err(QueueError::LookUp {
                path: PathBuf::new(),
                source: io::Error::other("the program is ending"),
            })
        })
    }
}

/// A place in the line of a file.
pub struct Queued {
    place: Place,
    turn: oneshot::Receiver<()>,
    behind: Option<String>,
}

impl Queued {
    /// Returns the real path.
    pub fn key(&self) -> &Path {
        &self.place.key
    }

    /// Returns the call that held the file when this place was taken.
    pub fn behind(&self) -> Option<&str> {
        self.behind.as_deref()
    }

    /// Waits for the head of the line. Dropping this gives the place up.
    pub async fn head(self) -> Place {
        // The sender lives in the lane until it has fired or this place left it, so an error cannot come.
        self.turn.await.ok();
        self.place
    }
}

/// The head of a file's line; the file is free when this is dropped.
pub struct Place {
    shared: Arc<Shared>,
    key: PathBuf,
    file: FileId,
    id: u64,
}

impl Place {
    /// Returns the real path.
    pub fn key(&self) -> &Path {
        &self.key
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.leave(&self.file, self.id);
    }
}

/// The moment of a write.
pub struct WriteLock {
    _guard: OwnedMutexGuard<()>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(call_id: &str) -> Caller {
        Caller {
            session: "s".to_owned(),
            call_id: call_id.to_owned(),
            ancestors: Vec::new(),
        }
    }

    async fn head(ticket: Ticket) -> Place {
        ticket.queued().await.unwrap().head().await
    }

    #[tokio::test]
    async fn places_are_given_in_the_order_of_calls_whatever_is_polled_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let queue = MutationQueue::default();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for n in 0..20 {
            let ticket = queue.enter(caller(&n.to_string()), &path);
            let order = Arc::clone(&order);
            tasks.push(async move {
                let _place = head(ticket).await;
                order.lock().push(n);
                tokio::task::yield_now().await;
            });
        }
        tasks.reverse();
        futures::future::join_all(tasks).await;
        assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
        assert_eq!(queue.files_held(), 0);
        assert!(queue.shared.state.lock().chains.is_empty());
    }

    #[tokio::test]
    async fn other_files_do_not_wait_and_links_share_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("l"));
        std::os::unix::fs::symlink("f", &link).unwrap();
        let queue = MutationQueue::default();
        let first = head(queue.enter(caller("1"), &path)).await;
        let mut second = Box::pin(head(queue.enter(caller("2"), &link)));
        let other = head(queue.enter(caller("3"), &dir.path().join("g"))).await;
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        let second = second.await;
        assert_eq!(queue.files_held(), 2);
        drop((second, other));
        assert_eq!(queue.files_held(), 0);
    }

    #[tokio::test]
    async fn hard_links_share_a_line_and_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("l"));
        std::fs::write(&path, "").unwrap();
        std::fs::hard_link(&path, &link).unwrap();
        let queue = MutationQueue::default();
        let first = head(queue.enter(caller("1"), &path)).await;
        let second = queue.enter(caller("2"), &link).queued().await.unwrap();
        assert_eq!(second.behind(), Some("1"));
        assert_ne!(second.key(), first.key());
        drop(first);
        drop(second.head().await);
        assert_eq!(queue.files_held(), 0);
        let held = queue.write_lock(&path).await;
        let again = tokio::spawn({
            let queue = queue.clone();
            async move { drop(queue.write_lock(&link).await) }
        });
        while queue
            .shared
            .state
            .lock()
            .write_locks
            .values()
            .all(|lock| Arc::strong_count(lock) < 3)
        {
            tokio::task::yield_now().await;
        }
        assert!(!again.is_finished());
        drop(held);
        again.await.unwrap();
    }

    #[tokio::test]
    async fn a_place_given_up_while_waiting_lets_the_next_through() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let queue = MutationQueue::default();
        let first = head(queue.enter(caller("1"), &path)).await;
        let second = queue.enter(caller("2"), &path).queued().await.unwrap();
        assert_eq!(second.behind(), Some("1"));
        let third = queue.enter(caller("3"), &path);
        drop(queue.enter(caller("4"), &path));
        drop(second);
        drop(first);
        drop(head(third).await);
        // The ticket given up at once may still be on its way into the line.
        while queue.files_held() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_call_made_by_the_holder_fails_instead_of_waiting_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let queue = MutationQueue::default();
        let outer = head(queue.enter(caller("outer"), &path)).await;
        let nested = Caller {
            ancestors: vec!["outer".to_owned()],
            ..caller("inner")
        };
        let error = queue.enter(nested.clone(), &path).queued().await.err();
        assert!(matches!(error, Some(QueueError::HeldByAncestor(_))));
        let elsewhere = head(queue.enter(nested, &dir.path().join("g"))).await;
        drop((outer, elsewhere));
        assert_eq!(queue.files_held(), 0);
    }

    #[tokio::test]
    async fn a_loop_of_links_fails_its_own_call_only() {
        let dir = tempfile::tempdir().unwrap();
        let (bad, good) = (dir.path().join("l"), dir.path().join("f"));
        std::os::unix::fs::symlink("l", &bad).unwrap();
        let queue = MutationQueue::default();
        let bad = queue.enter(caller("1"), &bad);
        let good = queue.enter(caller("2"), &good);
        assert!(matches!(bad.queued().await, Err(QueueError::LookUp { .. })));
        drop(head(good).await);
    }

    #[tokio::test]
    async fn write_locks_exclude_each_other_per_file_and_are_forgotten() {
        let queue = MutationQueue::default();
        let a = queue.write_lock(Path::new("/a")).await;
        let b = queue.write_lock(Path::new("/b")).await;
        let mut again = Box::pin(queue.write_lock(Path::new("/a")));
        assert!(futures::poll!(&mut again).is_pending());
        drop((a, b));
        drop(again.await);
        drop(queue.write_lock(Path::new("/c")).await);
        assert_eq!(queue.shared.state.lock().write_locks.len(), 1);
    }
}
