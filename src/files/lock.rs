//! The lock of files that Pi writes too: a folder `<file>.lock`, made with one `mkdir`.
//!
//! While it is held its modification time is refreshed every half stale time; a lock older than the stale time belongs
//! to a dead process and is taken over. Operating-system locks would not meet Pi's, so this protocol it is. Blocking:
//! async callers go through `spawn_blocking`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How long a lock lives without a sign of life, and how long one waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRules {
    /// Age after which a lock is taken over. Part of the protocol: both programs must agree.
    pub stale: Duration,
    /// How often to try.
    pub attempts: u32,
    /// Pause between two tries.
    pub pause: Duration,
}

impl LockRules {
    /// `settings.json`, `trust.json`, `mcp.json`: 10 tries, 20 ms apart.
    pub const SETTINGS: Self = Self {
        stale: Duration::from_secs(10),
        attempts: 10,
        pause: Duration::from_millis(20),
    };
    /// `auth.json`: waits up to 30 s, because a holder may be refreshing a login over the network.
    pub const AUTH: Self = Self {
        stale: Duration::from_secs(30),
        attempts: 600,
        pause: Duration::from_millis(50),
    };
}

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error(
        "{} is locked by another process; try again, or remove {} if no other one runs",
        file.display(),
        lock.display()
    )]
    Busy {
        /// The file to protect.
        file: PathBuf,
        /// The folder that is the lock.
        lock: PathBuf,
    },
    /// The lock folder could not be made.
    #[error("lock {}", file.display())]
    Io {
        /// The file to protect.
        file: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub struct DirLock {
    path: PathBuf,
    lost: Arc<AtomicBool>,
    stop: Option<Sender<()>>,
    refresher: Option<JoinHandle<()>>,
}

impl DirLock {
    /// Takes the lock of `file`, which need not exist; its folder is made when missing. A symbolic link is followed
    /// first, so that everybody who reaches the file by another name meets the same lock.
    ///
    /// # Errors
    /// [`LockError::Busy`] when the tries are used up, [`LockError::Io`] when the folder cannot be written.
    pub fn acquire(file: &Path, rules: LockRules) -> Result<Self, LockError> {
        let trouble = |source| LockError::Io {
            file: file.to_owned(),
            source,
        };
        let path = lock_path(file);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(trouble)?;
        }
        for attempt in 0..rules.attempts.max(1) {
            if attempt > 0 {
                std::thread::sleep(rules.pause);
            }
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self::hold(path, rules.stale)),
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
                    if take_away_stale(&path, rules.stale) && fs::create_dir(&path).is_ok() {
                        return Ok(Self::hold(path, rules.stale));
                    }
                }
                Err(err) => return Err(trouble(err)),
            }
        }
        Err(LockError::Busy {
            file: file.to_owned(),
            lock: path,
        })
    }

    /// Tells whether the lock is still ours. It is lost when this process slept longer than the stale time and another
    /// one took over: what was read under the lock is no longer worth writing.
    pub fn is_held(&self) -> bool {
        !self.lost.load(Ordering::Acquire)
    }

    fn hold(path: PathBuf, stale: Duration) -> Self {
        let lost = Arc::new(AtomicBool::new(false));
        let (stop, stopped) = mpsc::channel();
        let beat = {
            let (path, lost) = (path.clone(), Arc::clone(&lost));
            let mut seen = modified(&path);
            move || {
                while stopped.recv_timeout(stale / 2) == Err(RecvTimeoutError::Timeout) {
                    if modified(&path) != seen || touch(&path).is_err() {
                        lost.store(true, Ordering::Release);
                        return;
                    }
                    seen = modified(&path);
                }
            }
        };
        // Without the thread the lock merely turns stale sooner.
        let refresher = std::thread::Builder::new()
            .name("lock".into())
            .spawn(beat)
            .ok();
        Self {
            path,
            lost,
            stop: Some(stop),
            refresher,
        }
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.refresher.take() {
            // A panic in the refresher leaves nothing to undo.
            drop(thread.join());
        }
        if self.is_held() {
            // Gone already, or not removable: it turns stale by itself.
            drop(fs::remove_dir(&self.path));
        }
    }
}

fn lock_path(file: &Path) -> PathBuf {
    let mut name = super::agent_dir::real_path(file).into_os_string();
    name.push(".lock");
    PathBuf::from(name)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|meta| meta.modified()).ok()
}

fn touch(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.set_modified(SystemTime::now())
}

fn is_stale(path: &Path, stale: Duration) -> bool {
    modified(path)
        .and_then(|time| SystemTime::now().duration_since(time).ok())
        .is_some_and(|age| age > stale)
}

/// Removes a dead process's lock. It is moved aside first and looked at again: of two processes that both saw it stale
/// only one moves the old folder, the other would move the first one's new lock and puts it back.
fn take_away_stale(path: &Path, stale: Duration) -> bool {
    if !is_stale(path, stale) {
        return false;
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(
        ".{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let aside = PathBuf::from(aside);
    if fs::rename(path, &aside).is_err() {
        return false;
    }
    if is_stale(&aside, stale) {
        return fs::remove_dir_all(&aside).is_ok();
    }
    // When this fails somebody else has locked meanwhile, and the moved folder is of no use to anyone.
    if fs::rename(&aside, path).is_err() {
        drop(fs::remove_dir(&aside));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: LockRules = LockRules {
        stale: Duration::from_secs(10),
        attempts: 2,
        pause: Duration::from_millis(1),
    };

    fn age(path: &Path, by: Duration) {
        fs::File::open(path)
            .unwrap()
            .set_modified(SystemTime::now() - by)
            .unwrap();
    }

    #[test]
    fn a_second_one_waits_and_then_says_who_to_ask() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("settings.json");
        let held = DirLock::acquire(&file, QUICK).unwrap();
        assert!(dir.path().join("settings.json.lock").is_dir());
        let err = DirLock::acquire(&file, QUICK).unwrap_err();
        assert!(matches!(&err, LockError::Busy { .. }), "{err}");
        drop(held);
        assert!(!dir.path().join("settings.json.lock").exists());
        drop(DirLock::acquire(&file, QUICK).unwrap());
    }

    #[test]
    fn a_dead_lock_is_taken_over_and_a_young_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        let lock = dir.path().join("f.lock");
        fs::create_dir(&lock).unwrap();
        age(&lock, Duration::from_secs(9));
        assert!(DirLock::acquire(&file, QUICK).is_err());
        age(&lock, Duration::from_secs(11));
        let held = DirLock::acquire(&file, QUICK).unwrap();
        assert!(held.is_held());
        drop(held);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_holder_shows_that_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        let rules = LockRules {
            stale: Duration::from_millis(40),
            ..QUICK
        };
        let held = DirLock::acquire(&file, rules).unwrap();
        let lock = dir.path().join("f.lock");
        let first = modified(&lock).unwrap();
        let deadline = SystemTime::now() + Duration::from_secs(5);
        while modified(&lock).unwrap() == first {
            assert!(SystemTime::now() < deadline, "never refreshed");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(held.is_held());
    }

    #[test]
    fn a_lost_lock_is_noticed_and_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        let rules = LockRules {
            stale: Duration::from_millis(20),
            ..QUICK
        };
        let held = DirLock::acquire(&file, rules).unwrap();
        let lock = dir.path().join("f.lock");
        age(&lock, Duration::from_secs(3600));
        let deadline = SystemTime::now() + Duration::from_secs(5);
        while held.is_held() {
            assert!(SystemTime::now() < deadline, "never noticed");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(held);
        assert!(lock.is_dir(), "the lock of the new holder stays");
    }

    #[test]
    fn a_link_and_its_target_share_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real.json");
        fs::write(&real, "{}").unwrap();
        let link = dir.path().join("link.json");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let held = DirLock::acquire(&link, QUICK).unwrap();
        assert!(DirLock::acquire(&real, QUICK).is_err());
        drop(held);
    }

    #[test]
    fn many_threads_count_without_losing_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("n");
        fs::write(&file, "0").unwrap();
        let rules = LockRules {
            attempts: 5_000,
            ..QUICK
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let _held = DirLock::acquire(&file, rules).unwrap();
                        let n: u32 = fs::read_to_string(&file).unwrap().parse().unwrap();
                        fs::write(&file, (n + 1).to_string()).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_to_string(&file).unwrap(), "40");
    }
}
