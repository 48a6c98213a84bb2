//! What `grep` and `find` have in common: a tree visited by several threads, whose answer is in path order all the same.
//!
//! Threads visit in any order. [`First`] keeps what comes first in path order, as much as a limit asks for, and tells
//! [`Bound`] behind which path nothing can be shown any more; what lies behind it is not visited. So the same tree always
//! gives the same answer, and a search that reaches its limit leaves most of a large tree alone.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ignore::{DirEntry, WalkBuilder, WalkState};
use parking_lot::Mutex;

use super::declare::Ground;
use crate::files::errno::describe;

/// Most threads of a walk.
const MAX_THREADS: usize = 12;

/// Something met on a walk.
pub(super) struct Met<'a> {
    /// Its path from the root of the walk.
    pub(super) relative: &'a Path,
    pub(super) entry: &'a DirEntry,
}

/// A tree to visit.
pub(super) struct Walk<'a> {
    pub(super) ground: &'a Ground,
    pub(super) rules: WalkBuilder,
    pub(super) bound: &'a Bound,
}

impl Walk<'_> {
    /// Visits everything below the root but what is ignored, lies behind the bound, or comes after an abort.
    /// `make_visitor` is called once per thread. Returns the first trouble, if some part could not be visited.
    pub(super) fn visit<V: FnMut(Met<'_>) + Send>(
        &mut self,
        make_visitor: impl Fn() -> V + Sync,
    ) -> Option<String> {
        let threads = thread::available_parallelism().map_or(2, |n| n.get().min(MAX_THREADS));
        let (ground, bound) = (self.ground, self.bound);
        let root = ground.place.as_path();
        let trouble: Mutex<Option<String>> = Mutex::default();
        self.rules.threads(threads).build_parallel().run(|| {
            let mut visitor = make_visitor();
            let trouble = &trouble;
            Box::new(move |entry| {
                if ground.cancel.is_cancelled() {
                    return WalkState::Quit;
                }
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        note(trouble, trouble_of(&error));
                        return WalkState::Continue;
                    }
                };
                let relative = entry.path().strip_prefix(root).unwrap_or(entry.path());
                if entry.depth() == 0 {
                    return WalkState::Continue;
                }
                if bound.is_behind(relative) {
                    return WalkState::Skip;
                }
                visitor(Met {
                    relative,
                    entry: &entry,
                });
                WalkState::Continue
            })
        });
        trouble.into_inner()
    }
}

/// Keeps the least of all troubles, so that the same tree always has the same.
pub(super) fn note(trouble: &Mutex<Option<String>>, new: Option<String>) {
    let Some(new) = new else { return };
    let mut kept = trouble.lock();
    if kept.as_ref().is_none_or(|kept| new < *kept) {
        *kept = Some(new);
    }
}

/// What went wrong, unless only something was deleted after it was listed.
fn trouble_of(error: &ignore::Error) -> Option<String> {
    let cause = error.io_error();
    if cause.is_some_and(is_gone) {
        return None;
    }
    Some(match (path_of(error), cause) {
        (Some(path), Some(cause)) => format!("{}: {}", path.display(), describe(cause)),
        _ => error.to_string(),
    })
}

fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
            path_of(err)
        }
        _ => None,
    }
}

/// Whether an error says that there is no such file.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// The path behind which nothing is needed any more.
#[derive(Default)]
pub(super) struct Bound {
    is_set: AtomicBool,
    path: Mutex<PathBuf>,
}

impl Bound {
    /// Whether a path, and with it everything below it, comes after the bound.
    pub(super) fn is_behind(&self, relative: &Path) -> bool {
        self.is_set.load(Ordering::Acquire) && relative > self.path.lock().as_path()
    }

    fn set(&self, path: &Path) {
        path.clone_into(&mut self.path.lock());
        self.is_set.store(true, Ordering::Release);
    }
}

/// The first of all results in path order: whole files, until they hold more results than the limit.
pub(super) struct First<T> {
    limit: usize,
    count: usize,
    held: BTreeMap<PathBuf, (usize, T)>,
}

impl<T> First<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            count: 0,
            held: BTreeMap::new(),
        }
    }

    /// Adds a file with its number of results. Returns what is not needed any more.
    pub(super) fn add(&mut self, path: PathBuf, results: usize, item: T, bound: &Bound) -> Vec<T> {
        self.count += results;
        let mut dropped = Vec::new();
        // A file that was added twice (it was written meanwhile) counts once.
        if let Some((before, item)) = self.held.insert(path, (results, item)) {
            self.count -= before;
            dropped.push(item);
        }
        while let Some(last) = self.held.last_entry() {
            let without = self.count - last.get().0;
            if without <= self.limit {
                break;
            }
            self.count = without;
            dropped.push(last.remove().1);
        }
        if self.count > self.limit
            && let Some((last, _)) = self.held.last_key_value()
        {
            bound.set(last);
        }
        dropped
    }

    /// What was kept, in path order.
    pub(super) fn into_files(self) -> impl Iterator<Item = (PathBuf, T)> {
        self.held.into_iter().map(|(path, (_, item))| (path, item))
    }
}

/// Unsaved buffers below `root` whose files are not on disk yet, by path from the root. What the rules ignore is left
/// out, as it would be once it is written.
pub(super) fn unwritten(ground: &Ground, rules: &WalkBuilder) -> Vec<(PathBuf, Arc<[u8]>)> {
    let Ok(root) = ground.place.canonicalize() else {
        return Vec::new();
    };
    let below = ground
        .buffers
        .iter()
        .filter_map(|(path, bytes)| Some((path.strip_prefix(&root).ok()?, bytes)))
        .filter(|(relative, _)| std::fs::symlink_metadata(root.join(relative)).is_err());
    let mut below = below.peekable();
    if below.peek().is_none() {
        return Vec::new();
    }
    let mut matchers = rules.build_matchers();
    let Some(matcher) = matchers.first_mut() else {
        return Vec::new();
    };
    below
        .filter(|(relative, _)| !matcher.matched(relative, false).is_ignore())
        .map(|(relative, bytes)| (relative.to_owned(), Arc::clone(bytes)))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_kept_are_the_first_files_whatever_the_order(
            files in prop::collection::btree_map("[ab]{1,2}(/[ab.]{1,2}x){0,2}", 1usize..4, 0..20),
            limit in 1usize..12,
            seed in any::<u64>(),
        ) {
            let mut wanted = Vec::new();
            let mut count = 0;
            let mut sorted: Vec<_> = files.iter().map(|(path, n)| (PathBuf::from(path), *n)).collect();
            sorted.sort();
            for (path, n) in &sorted {
                if count > limit {
                    break;
                }
                count += n;
                wanted.push(path.clone());
            }
            // Any order: by a hash of place and seed.
            let mut shuffled: Vec<_> = sorted.iter().enumerate().collect();
            shuffled.sort_by_key(|(at, _)| (*at as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
            let (mut first, bound) = (First::new(limit), Bound::default());
            for (_, (path, n)) in shuffled {
                // What lies behind the bound is not visited.
                if !bound.is_behind(path) {
                    first.add(path.clone(), *n, (), &bound);
                }
            }
            let kept: Vec<PathBuf> = first.into_files().map(|(path, ())| path).collect();
            prop_assert_eq!(kept, wanted);
        }
    }
}
