//! The tree of entries: paths and children. Iterative throughout: chains may be a hundred thousand entries long.

use super::projection::{Entries, Pos};
use super::store::Session;
use crate::entry::json;

impl Session {
    /// Returns the path from a root to an entry. Ends where a parent is missing, and at the first repeated entry.
    pub fn path_to(&self, leaf: Option<Pos>) -> Vec<Pos> {
        let mut path = Vec::new();
        let mut seen = Seen::new(self.len());
        let mut next = leaf;
        while let Some(pos) = next.filter(|pos| seen.insert(*pos)) {
            path.push(pos);
            next = self.parent(pos);
        }
        path.reverse();
        path
    }

    /// Returns the path to an entry by id; for an unknown id the path to the last entry of the file.
    pub fn path_to_id(&self, id: &str) -> Vec<Pos> {
        self.path_to(self.find(id).or(self.positions().next_back()))
    }

    /// Returns roots and children of the whole tree.
    pub fn tree(&self) -> Tree {
        Tree::new(self)
    }

    /// Returns the tree as JSON text: an array of `{entry, children, label?, labelTimestamp?}`. Text and not a value:
    /// a chain of many entries nests deeper than any value may.
    pub fn tree_json(&self) -> String {
        let tree = self.tree();
        let mut out = String::from("[");
        // What is left to write: nodes, or the end of a node.
        enum Step {
            Node(Pos, bool),
            Close(Pos),
        }
        let push_all = |list: &[Pos], stack: &mut Vec<Step>| {
            for (at, pos) in list.iter().enumerate().rev() {
                stack.push(Step::Node(*pos, at > 0));
            }
        };
        let mut stack = Vec::new();
        push_all(tree.roots(), &mut stack);
        while let Some(step) = stack.pop() {
            match step {
                Step::Node(pos, comma) => {
                    if comma {
                        out.push(',');
                    }
                    out.push_str("{\"entry\":");
                    let entry = Entries::entry(self, pos);
                    out.push_str(entry.as_ref().map_or("null", |entry| entry.text()));
                    out.push_str(",\"children\":[");
                    stack.push(Step::Close(pos));
                    push_all(tree.children(pos), &mut stack);
                }
                Step::Close(pos) => {
                    out.push(']');
                    let label = Entries::id(self, pos).and_then(|id| self.label(id));
                    if let Some(label) = label {
                        out.push_str(",\"label\":");
                        json::write_string(&label.text, &mut out);
                        out.push_str(",\"labelTimestamp\":");
                        json::write_string(&label.time, &mut out);
                    }
                    out.push('}');
                }
            }
        }
        out.push(']');
        out
    }
}

/// A set of positions, one bit each.
#[derive(Debug, Default)]
pub(super) struct Seen(Vec<u64>);

impl Seen {
    pub(super) fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// Adds a position; false when it was there already.
    pub(super) fn insert(&mut self, pos: Pos) -> bool {
        let (word, bit) = (pos as usize / 64, 1u64 << (pos % 64));
        match self.0.get_mut(word) {
            Some(bits) if *bits & bit == 0 => {
                *bits |= bit;
                true
            }
            _ => false,
        }
    }

    /// Whether a position is in the set.
    pub(super) fn contains(&self, pos: Pos) -> bool {
        let (word, bit) = (pos as usize / 64, 1u64 << (pos % 64));
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

/// Roots and children. Children stand in the order of their own times, ties in file order.
#[derive(Debug)]
pub struct Tree {
    roots: Vec<Pos>,
    /// Children of all entries one after another; `starts[p]..starts[p + 1]` are those of `p`.
    children: Vec<Pos>,
    starts: Vec<u32>,
}

impl Tree {
    fn new(session: &Session) -> Self {
        let parents = acyclic_parents(session);
        let nodes: Vec<Pos> = session
            .positions()
            .filter(|pos| session.is_current(*pos))
            .collect();
        let mut starts = vec![0u32; session.len() + 1];
        let parent_of = |pos: Pos| parents.get(pos as usize).copied().flatten();
        for pos in &nodes {
            if let Some(count) =
                parent_of(*pos).and_then(|parent| starts.get_mut(parent as usize + 1))
            {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut cursor = starts.clone();
        let mut children = vec![0; sum as usize];
        let mut roots = Vec::new();
        for pos in nodes {
            let Some(parent) = parent_of(pos) else {
                roots.push(pos);
                continue;
            };
            if let Some(at) = cursor.get_mut(parent as usize) {
                if let Some(slot) = children.get_mut(*at as usize) {
                    *slot = pos;
                }
                *at += 1;
            }
        }
        let mut tree = Self {
            roots,
            children,
            starts,
        };
        tree.sort_children(session);
        tree
    }

    fn sort_children(&mut self, session: &Session) {
        let time = |pos: &Pos| Entries::facts(session, *pos).and_then(|facts| facts.time_ms);
        for pair in self.starts.windows(2) {
            if let [from, to] = *pair
                && to - from > 1
                && let Some(list) = self.children.get_mut(from as usize..to as usize)
            {
                list.sort_by_key(time);
            }
        }
    }

    /// Returns the roots in file order.
    pub fn roots(&self) -> &[Pos] {
        &self.roots
    }

    /// Returns the children of an entry.
    pub fn children(&self, pos: Pos) -> &[Pos] {
        let at = pos as usize;
        let range = self.starts.get(at).zip(self.starts.get(at + 1));
        range
            .and_then(|(from, to)| self.children.get(*from as usize..*to as usize))
            .unwrap_or_default()
    }
}

/// Parents of all entries; the members of a cycle have none. Each entry is looked at twice at most.
fn acyclic_parents(session: &Session) -> Vec<Option<Pos>> {
    let mut parents: Vec<Option<Pos>> =
        session.positions().map(|pos| session.parent(pos)).collect();
    let mut done = Seen::new(session.len());
    for start in session.positions() {
        let mut walk = Vec::new();
        let mut next = Some(start);
        while let Some(pos) = next.filter(|pos| done.insert(*pos)) {
            walk.push(pos);
            next = session.parent(pos);
        }
        // A walk that ran into itself closed a ring; one that ran into an older walk did not.
        let Some(first) = next.and_then(|pos| walk.iter().position(|own| *own == pos)) else {
            continue;
        };
        for pos in walk.get(first..).unwrap_or_default() {
            if let Some(parent) = parents.get_mut(*pos as usize) {
                *parent = None;
            }
        }
    }
    parents
}
