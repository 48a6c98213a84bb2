//! The session tree as flat rows for a window: filtered, ordered, indented. Pure.
//!
//! [`TreeView::refresh`] lays out all rows from the index alone (no entry is loaded); [`TreeView::rows`] makes the texts of
//! the rows that are shown. Rows carry their connectors, so a face only draws them. Nothing recurses.

mod text;

use std::collections::HashSet;
use std::ops::Range;

use super::projection::{Entries, Pos, unedited_messages};
use super::store::{Load, Session};
use super::tree::{Seen, Tree};
use crate::entry::{Ended, Entry, EntryId, Facts, Kind, Role};

/// Which entries are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// Everything but bookkeeping.
    #[default]
    Default,
    /// [`Filter::Default`] without tool results.
    NoTools,
    /// Messages of the person.
    UserOnly,
    /// Entries with a label.
    LabeledOnly,
    /// Everything but usage records.
    All,
}

impl Filter {
    /// All filters in the order of cycling.
    pub const ALL: [Self; 5] = [
        Self::Default,
        Self::NoTools,
        Self::UserOnly,
        Self::LabeledOnly,
        Self::All,
    ];

    /// Returns the word used in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::NoTools => "no-tools",
            Self::UserOnly => "user-only",
            Self::LabeledOnly => "labeled-only",
            Self::All => "all",
        }
    }

    /// Reads the word used in settings.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|filter| filter.as_str() == word)
    }

    fn shows(self, facts: &Facts, labeled: bool) -> bool {
        let bookkeeping = matches!(
            facts.kind,
            Kind::Label
                | Kind::ContextEdit
                | Kind::Custom
                | Kind::ModelChange
                | Kind::ThinkingLevelChange
                | Kind::SessionInfo
        );
        match self {
            Self::Default => !bookkeeping,
            Self::NoTools => !bookkeeping && !facts.is_message(Role::ToolResult),
            Self::UserOnly => facts.is_message(Role::User),
            Self::LabeledOnly => labeled,
            Self::All => true,
        }
    }
}

/// Which characters draw the connectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// Box drawing.
    #[default]
    Unicode,
    /// Plain ASCII.
    Ascii,
}

/// One row of the window.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeRow {
    /// The entry.
    pub id: EntryId,
    /// Indent and connectors.
    pub prefix: String,
    /// The entry's type, or the role of a message.
    pub kind: String,
    /// Its label.
    pub label: Option<String>,
    /// When the label was set.
    pub label_time: Option<String>,
    /// What the row says, on one line.
    pub text: String,
    /// Whether it is on the path to the leaf.
    pub on_path: bool,
    /// Whether it is the leaf.
    pub is_leaf: bool,
    /// Whether its descendants are folded away.
    pub folded: bool,
    /// Whether it can be folded.
    pub foldable: bool,
    /// Number of visible children.
    pub children: usize,
    /// Number of rows that folding hides.
    pub hidden: usize,
    /// The entry's time in Unix milliseconds.
    pub time_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    pos: Pos,
    /// Index of the visible parent in `nodes`.
    parent: u32,
    children: u32,
    /// Nodes below this one.
    below: u32,
    indent: u32,
    /// Stands under a branch point and so has a connector.
    branch: bool,
    /// Last of its siblings.
    last: bool,
    /// Innermost gutter that runs past this node.
    gutter: u32,
}

/// A vertical line beside the rows of a branch.
#[derive(Clone, Copy, Debug)]
struct Gutter {
    level: u32,
    /// More siblings follow below, so the line goes on.
    runs: bool,
    outer: u32,
}

const NONE: u32 = u32::MAX;

/// Deepest indent that is drawn; deeper branches stay at it.
const MAX_INDENT: u32 = 24;

/// The rows of one session.
#[derive(Debug, Default)]
pub struct TreeView {
    filter: Filter,
    charset: Charset,
    query: Vec<String>,
    folded: HashSet<EntryId>,
    nodes: Vec<Node>,
    gutters: Vec<Gutter>,
    /// Indices into `nodes` of the rows that are not folded away.
    shown: Vec<u32>,
    /// Row of each position; [`NONE`] for those without one.
    row_at: Vec<u32>,
    total: usize,
    on_path: Seen,
    leaf: Option<Pos>,
    /// Lower-case heads of texts for searching, made at the first search and kept: each entry is read once.
    haystacks: Vec<Option<Box<str>>>,
    /// The reading of the file that the texts belong to.
    load: Option<Load>,
}

impl TreeView {
    /// Makes an empty view; [`TreeView::refresh`] fills it.
    pub fn new(filter: Filter, charset: Charset) -> Self {
        Self {
            filter,
            charset,
            ..Self::default()
        }
    }

    /// Returns the filter.
    pub fn filter(&self) -> Filter {
        self.filter
    }

    /// Sets the filter; takes effect with the next refresh.
    pub fn set_filter(&mut self, filter: Filter) {
        self.filter = filter;
    }

    /// Sets the words that rows must hold; takes effect with the next refresh. While there are any, folds are open.
    pub fn set_query(&mut self, query: &str) {
        self.query = query.split_whitespace().map(str::to_lowercase).collect();
    }

    /// Folds or opens the rows below an entry; takes effect with the next refresh.
    pub fn set_folded(&mut self, id: &EntryId, folded: bool) {
        if folded {
            self.folded.insert(id.clone());
        } else {
            self.folded.remove(id.as_str());
        }
    }

    /// Folds every branch (`true`) or opens all; takes effect with the next refresh.
    pub fn fold_all(&mut self, session: &Session, folded: bool) {
        self.folded.clear();
        if folded {
            let foldable = self.nodes.iter().filter(|node| is_foldable(node));
            let ids = foldable.filter_map(|node| Entries::id(session, node.pos).cloned());
            self.folded = ids.collect();
        }
    }

    /// Lays out the rows anew.
    pub fn refresh(&mut self, session: &Session) {
        self.leaf = session.leaf();
        self.on_path = Seen::new(session.len());
        for pos in session.path() {
            self.on_path.insert(pos);
        }
        self.read_texts(session, usize::MAX);
        let tree = session.tree();
        self.lay_out(session, &tree);
        self.indent();
        self.fold(session);
    }

    /// Reads texts that a search looks at, of at most so many entries; returns how many it read, none when all are known
    /// or nothing is searched. For a long session a caller asks again and again before [`TreeView::refresh`], and lets
    /// others at the session in between.
    pub fn read_texts(&mut self, session: &Session, at_most: usize) -> usize {
        if self.load != Some(session.load()) {
            self.load = Some(session.load());
            self.haystacks = Vec::new();
        }
        if self.query.is_empty() {
            return 0;
        }
        let known = self.haystacks.len();
        for pos in session.positions().skip(known).take(at_most) {
            let text = session
                .entry(pos)
                .map(|entry| text::haystack(&entry).into_boxed_str());
            self.haystacks.push(text);
        }
        self.haystacks.len() - known
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.shown.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// Number of entries that could be shown without filter, query and folds.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns the row of an entry, or of its nearest ancestor that has one.
    pub fn row_of(&self, session: &Session, id: &str) -> Option<usize> {
        let mut next = session.find(id);
        let mut seen = Seen::new(session.len());
        while let Some(pos) = next.filter(|pos| seen.insert(*pos)) {
            let row = self
                .row_at
                .get(pos as usize)
                .copied()
                .filter(|row| *row != NONE);
            if let Some(row) = row {
                return Some(row as usize);
            }
            next = session.parent(pos);
        }
        None
    }

    /// Returns the row where the previous or next branch beside an entry ends. From the end of a branch the way back leads
    /// to where it begins: its branch point. Without a next branch the way on leads to the end of the first below.
    pub fn beside(&self, session: &Session, id: &str, next: bool) -> Option<usize> {
        let row = self.row_of(session, id)?;
        let start = *self.shown.get(row)?;
        let ends = self.nodes.get(start as usize)?.children == 0;
        let mut at = start;
        let found = loop {
            let parent = self.nodes.get(at as usize)?.parent;
            let siblings = self.children_of(parent);
            let place = siblings.iter().position(|it| *it == at)?;
            if siblings.len() > 1 && ends && !next {
                // Several roots have no common point: the first row stands for it.
                break if parent == NONE { 0 } else { parent };
            }
            let beside = match next {
                true => siblings.get(place + 1),
                false => place.checked_sub(1).and_then(|it| siblings.get(it)),
            };
            match beside {
                Some(beside) => break self.end_of(*beside),
                None if parent == NONE && next && !ends => break self.end_of(start),
                None if parent == NONE => return None,
                None => at = parent,
            }
        };
        let pos = self.nodes.get(found as usize)?.pos;
        self.row_of(session, Entries::id(session, pos)?)
    }

    /// Visible children of a node, in their order; of [`NONE`] the roots.
    fn children_of(&self, parent: u32) -> Vec<u32> {
        let mut children = Vec::new();
        let (mut at, end) = match self.nodes.get(parent as usize) {
            Some(node) => (parent + 1, parent + 1 + node.below),
            None => (0, u32::try_from(self.nodes.len()).unwrap_or(NONE)),
        };
        while at < end
            && let Some(node) = self.nodes.get(at as usize)
        {
            children.push(at);
            at += node.below + 1;
        }
        children
    }

    /// The end of the first branch that goes on from a node: of children the first follows at once.
    fn end_of(&self, mut at: u32) -> u32 {
        while let Some(node) = self.nodes.get(at as usize)
            && node.children > 0
        {
            at += 1;
        }
        at
    }

    /// Makes the rows of a window; the range is cut to what there is.
    pub fn rows(&self, session: &Session, range: Range<usize>) -> Vec<TreeRow> {
        let range = range.start.min(self.len())..range.end.min(self.len());
        let shown = self.shown.get(range).unwrap_or_default();
        shown
            .iter()
            .filter_map(|at| self.row(session, *self.nodes.get(*at as usize)?))
            .collect()
    }

    fn row(&self, session: &Session, node: Node) -> Option<TreeRow> {
        let id = Entries::id(session, node.pos)?.clone();
        let facts = session.facts(node.pos)?;
        let label = session.label(&id);
        let entry = session.entry(node.pos);
        let folded = node.children > 0 && self.is_folded(&id);
        Some(TreeRow {
            prefix: self.prefix(&node, folded),
            kind: text::kind(facts, entry.as_ref()),
            label: label.map(|label| label.text.clone()),
            label_time: label.map(|label| label.time.clone()),
            text: entry
                .as_ref()
                .map(|entry| {
                    let edited = match edited(session, entry) {
                        Some(Edited::LeftOut) => "(left out) ",
                        Some(Edited::Replaced) => "(replaced) ",
                        None => "",
                    };
                    format!("{edited}{}", text::of(session, node.pos, entry))
                })
                .unwrap_or_default(),
            on_path: self.on_path.contains(node.pos),
            is_leaf: self.leaf == Some(node.pos),
            folded,
            foldable: is_foldable(&node),
            children: node.children as usize,
            hidden: if folded { node.below as usize } else { 0 },
            time_ms: facts.time_ms,
            id,
        })
    }

    fn is_folded(&self, id: &EntryId) -> bool {
        self.query.is_empty() && self.folded.contains(id)
    }

    fn prefix(&self, node: &Node, folded: bool) -> String {
        let (runs, last, fork, fold, open) = match self.charset {
            Charset::Unicode => ("│  ", "└", "├", "⊞ ", "⊟ "),
            Charset::Ascii => ("|  ", "'", "|", "[+]", "[-]"),
        };
        let line = match self.charset {
            Charset::Unicode => "─ ",
            Charset::Ascii => "- ",
        };
        let indent = node.indent.min(MAX_INDENT) as usize;
        let mut cells = vec!["   ".to_owned(); indent];
        let mut next = node.gutter;
        while let Some(gutter) = self.gutters.get(next as usize) {
            if let Some(cell) = cells.get_mut(gutter.level as usize).filter(|_| gutter.runs) {
                *cell = runs.to_owned();
            }
            next = gutter.outer;
        }
        if let Some(cell) = cells.last_mut().filter(|_| node.branch) {
            let knee = if node.last { last } else { fork };
            let mark = match (is_foldable(node), folded) {
                (true, true) => fold,
                (true, false) => open,
                (false, _) => line,
            };
            *cell = format!("{knee}{mark}");
        }
        cells.concat()
    }

    fn shows(&self, session: &Session, pos: Pos) -> bool {
        let Some(facts) = session.facts(pos) else {
            return false;
        };
        let is_leaf = self.leaf == Some(pos);
        let only_calls =
            facts.is_message(Role::Assistant) && !facts.has_text && facts.ended == Ended::Normally;
        if facts.kind == Kind::Usage || (only_calls && !is_leaf) {
            return false;
        }
        let labeled = Entries::id(session, pos).is_some_and(|id| session.label(id).is_some());
        self.filter.shows(facts, labeled) && self.matches(session, pos)
    }

    fn matches(&self, session: &Session, pos: Pos) -> bool {
        if self.query.is_empty() {
            return true;
        }
        let text = self
            .haystacks
            .get(pos as usize)
            .and_then(Option::as_deref)
            .unwrap_or_default();
        let label = Entries::id(session, pos).and_then(|id| session.label(id));
        let label = label
            .map(|label| label.text.to_lowercase())
            .unwrap_or_default();
        self.query
            .iter()
            .all(|word| text.contains(word) || label.contains(word))
    }

    /// Visible nodes depth first; each hangs under its nearest visible ancestor. Of children the one towards the leaf
    /// comes first.
    fn lay_out(&mut self, session: &Session, tree: &Tree) {
        self.nodes.clear();
        self.total = 0;
        let mut stack: Vec<(Pos, u32)> = Vec::new();
        let push = |list: &[Pos], parent: u32, on_path: &Seen, stack: &mut Vec<(Pos, u32)>| {
            let active = list.iter().position(|pos| on_path.contains(*pos));
            for (at, pos) in list.iter().enumerate().rev() {
                if Some(at) != active {
                    stack.push((*pos, parent));
                }
            }
            stack.extend(active.and_then(|at| list.get(at)).map(|pos| (*pos, parent)));
        };
        push(tree.roots(), NONE, &self.on_path, &mut stack);
        while let Some((pos, parent)) = stack.pop() {
            let is_usage = session
                .facts(pos)
                .is_some_and(|facts| facts.kind == Kind::Usage);
            self.total += usize::from(!is_usage);
            let mut under = parent;
            if self.shows(session, pos) {
                under = u32::try_from(self.nodes.len()).unwrap_or(NONE);
                self.nodes.push(Node {
                    pos,
                    parent,
                    children: 0,
                    below: 0,
                    indent: 0,
                    branch: false,
                    last: true,
                    gutter: NONE,
                });
                if let Some(parent) = self.nodes.get_mut(parent as usize) {
                    parent.children += 1;
                }
            }
            push(tree.children(pos), under, &self.on_path, &mut stack);
        }
        for at in (0..self.nodes.len()).rev() {
            let Some(node) = self.nodes.get(at).copied() else {
                continue;
            };
            if let Some(parent) = self.nodes.get_mut(node.parent as usize) {
                parent.below += node.below + 1;
            }
        }
    }

    /// Indents below branch points and keeps single chains flat.
    fn indent(&mut self) {
        self.gutters.clear();
        // Children still to come of each node: the last one gets the knee.
        let mut left: Vec<u32> = self.nodes.iter().map(|node| node.children).collect();
        for at in 0..self.nodes.len() {
            let Some(node) = self.nodes.get(at).copied() else {
                continue;
            };
            let Some(parent) = self.nodes.get(node.parent as usize).copied() else {
                continue;
            };
            let branch = parent.children > 1;
            let deeper = branch || (parent.branch && parent.indent > 0);
            let indent = (parent.indent + u32::from(deeper)).min(MAX_INDENT);
            let remaining = left.get_mut(node.parent as usize).map_or(0, |count| {
                *count = count.saturating_sub(1);
                *count
            });
            let gutter = if parent.branch {
                self.gutters.push(Gutter {
                    level: parent.indent.saturating_sub(1),
                    runs: !parent.last,
                    outer: parent.gutter,
                });
                u32::try_from(self.gutters.len() - 1).unwrap_or(NONE)
            } else {
                parent.gutter
            };
            if let Some(node) = self.nodes.get_mut(at) {
                node.indent = indent;
                node.branch = branch;
                node.last = remaining == 0;
                node.gutter = gutter;
            }
        }
    }

    fn fold(&mut self, session: &Session) {
        self.shown.clear();
        self.row_at = vec![NONE; session.len()];
        let mut at = 0;
        while let Some(node) = self.nodes.get(at) {
            if let Some(row) = self.row_at.get_mut(node.pos as usize) {
                *row = u32::try_from(self.shown.len()).unwrap_or(NONE);
            }
            self.shown.push(u32::try_from(at).unwrap_or(NONE));
            let folded = Entries::id(session, node.pos).is_some_and(|id| self.is_folded(id));
            at += 1 + if folded { node.below as usize } else { 0 };
        }
    }
}

/// What context edits make of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edited {
    /// The model does not see it.
    LeftOut,
    /// The model reads something else.
    Replaced,
}

/// Returns what the context edits of the active branch make of an entry; nothing when they were taken back.
pub fn edited(session: &Session, entry: &Entry) -> Option<Edited> {
    let context = session.context();
    if context.edit_of(entry.id())?.is_none() {
        return Some(Edited::LeftOut);
    }
    let own = unedited_messages(entry);
    let item = context.item(entry.id())?;
    let same = own.len() == item.messages.len()
        && own
            .iter()
            .zip(&item.messages)
            .all(|(own, read)| *own == **read);
    (!same).then_some(Edited::Replaced)
}

/// Roots and branches can be folded, single chains cannot.
fn is_foldable(node: &Node) -> bool {
    node.children > 0 && (node.branch || node.parent == NONE)
}

#[cfg(test)]
mod tests;
