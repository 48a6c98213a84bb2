//! Searching and ordering a list of sessions. Pure.
//!
//! A query is words that must all match, `"a phrase"`, or `re:PATTERN`. A word is looked for in the name, then in id,
//! texts and directory, and last as a scattered sequence of letters in name and directory only, so that long texts do not
//! match everything.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use regex::RegexBuilder;

use super::listing::SessionInfo;

/// How found sessions are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Used last first.
    #[default]
    Recent,
    /// Best match first.
    Relevance,
}

/// Points between the tiers: no score inside a tier reaches this.
const TIER: f64 = 1e6;

/// Returns the indices of the sessions that match, in order. An empty query matches everything.
pub fn search(sessions: &[SessionInfo], query: &str, sort: Sort, named_only: bool) -> Vec<usize> {
    let Some(query) = Query::parse(query) else {
        return Vec::new();
    };
    let named = |session: &SessionInfo| !named_only || session.name.is_some();
    let found = sessions
        .iter()
        .enumerate()
        .filter(|(_, session)| named(session));
    let mut found: Vec<(usize, f64)> = found
        .filter_map(|(at, session)| Some((at, query.score(session)?)))
        .collect();
    let modified = |at: &usize| sessions.get(*at).map_or(0, |session| session.modified_ms);
    found.sort_by(|left, right| {
        let score = match sort {
            Sort::Relevance => left.1.total_cmp(&right.1),
            Sort::Recent => std::cmp::Ordering::Equal,
        };
        score.then_with(|| modified(&right.0).cmp(&modified(&left.0)))
    });
    found.into_iter().map(|(at, _)| at).collect()
}

enum Query {
    Tokens(Vec<Token>),
    Pattern(regex::Regex),
}

enum Token {
    Word(String),
    Phrase(String),
}

impl Query {
    /// `None` for a pattern that is empty or wrong: it finds nothing.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(pattern) = text.strip_prefix("re:") {
            let pattern = pattern.trim();
            let regex = RegexBuilder::new(pattern)
                .case_insensitive(true)
                .size_limit(1 << 20)
                .build();
            return regex
                .ok()
                .filter(|_| !pattern.is_empty())
                .map(Self::Pattern);
        }
        Some(Self::Tokens(tokens(text)))
    }

    fn score(&self, session: &SessionInfo) -> Option<f64> {
        match self {
            Self::Pattern(regex) => {
                let name = session.name.as_deref().unwrap_or_default();
                if regex.is_match(name) {
                    return Some(0.0);
                }
                let others = [&session.id, &session.all_text, &session.cwd];
                others
                    .iter()
                    .any(|text| regex.is_match(text))
                    .then_some(TIER)
            }
            Self::Tokens(tokens) => tokens.iter().map(|token| token.score(session)).sum(),
        }
    }
}

/// Splits a query; with an unbalanced quote everything is plain words.
fn tokens(text: &str) -> Vec<Token> {
    let words = |text: &str| {
        text.split_whitespace()
            .map(|word| Token::Word(word.to_lowercase()))
            .collect::<Vec<_>>()
    };
    if text.matches('"').count() % 2 == 1 {
        return words(text);
    }
    let mut out = Vec::new();
    for (at, part) in text.split('"').enumerate() {
        if at % 2 == 0 {
            out.extend(words(part));
        } else if !part.trim().is_empty() {
            out.push(Token::Phrase(normalised(part)));
        }
    }
    out
}

fn normalised(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

impl Token {
    fn score(&self, session: &SessionInfo) -> Option<f64> {
        let name = session.name.as_deref().unwrap_or_default();
        let others = [&session.id, &session.all_text, &session.cwd];
        match self {
            Self::Phrase(phrase) => {
                let holds = |text: &str| normalised(text).contains(phrase);
                let other = || others.iter().any(|text| holds(text)).then_some(TIER);
                if holds(name) { Some(0.0) } else { other() }
            }
            Self::Word(word) => {
                let holds = |text: &str| text.to_lowercase().contains(word);
                if holds(name) {
                    return Some(0.0);
                }
                if others.iter().any(|text| holds(text)) {
                    return Some(TIER);
                }
                let scores = [name, &session.cwd]
                    .into_iter()
                    .filter_map(|text| scattered(word, text));
                scores
                    .min_by(f64::total_cmp)
                    .map(|score| 2.0 * TIER + score)
            }
        }
    }
}

/// Score of the letters of `word` found in order in `text`; gaps make it worse, beginnings of words better.
fn scattered(word: &str, text: &str) -> Option<f64> {
    let text: Vec<char> = text.to_lowercase().chars().collect();
    let (mut score, mut at) = (0.0, 0);
    let mut previous: Option<usize> = None;
    for letter in word.chars() {
        let found = at + text.get(at..)?.iter().position(|c| *c == letter)?;
        let starts_word = found == 0 || text.get(found - 1).is_some_and(|c| !c.is_alphanumeric());
        score += match previous {
            Some(previous) if found == previous + 1 => -2.0,
            Some(previous) => (found - previous).min(100) as f64,
            None => found.min(100) as f64,
        };
        score -= if starts_word { 3.0 } else { 0.0 };
        previous = Some(found);
        at = found + 1;
    }
    Some(score)
}

/// A row of the threaded list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threaded {
    /// Index of the session.
    pub at: usize,
    /// How deep it stands under the session it was made from.
    pub depth: usize,
}

/// Orders sessions as threads: each under the one it was made from, every level by the latest activity below it.
pub fn threaded(sessions: &[SessionInfo]) -> Vec<Threaded> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let places: HashMap<PathBuf, usize> = sessions
        .iter()
        .enumerate()
        .map(|(at, it)| (real(&it.path), at))
        .collect();
    let parent = |at: usize| {
        let parent = sessions.get(at)?.parent_session.as_ref()?;
        places
            .get(&real(Path::new(parent)))
            .copied()
            .filter(|parent| *parent != at)
    };
    let parents: Vec<Option<usize>> = (0..sessions.len()).map(parent).collect();
    let parent_of = |at: usize| parents.get(at).copied().flatten();
    let mut latest: Vec<i64> = sessions.iter().map(|session| session.modified_ms).collect();
    let mut children: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    for (at, session) in sessions.iter().enumerate() {
        // A ring of parents has no root: the walk is bounded, and its members become roots.
        let (mut next, mut steps) = (parent_of(at), 0);
        while let Some(up) = next.filter(|_| steps <= sessions.len()) {
            if let Some(time) = latest.get_mut(up) {
                *time = session.modified_ms.max(*time);
            }
            next = parent_of(up);
            steps += 1;
        }
        let parent = if steps > sessions.len() {
            None
        } else {
            parent_of(at)
        };
        children.entry(parent).or_default().push(at);
    }
    let newest = |at: &usize| std::cmp::Reverse(latest.get(*at).copied().unwrap_or(0));
    for list in children.values_mut() {
        list.sort_by_key(newest);
    }
    let mut out = Vec::with_capacity(sessions.len());
    let rows = |of: Option<usize>, depth: usize| {
        let list = children.get(&of).into_iter().flatten().rev();
        list.map(move |at| Threaded { at: *at, depth })
            .collect::<Vec<_>>()
    };
    let mut stack = rows(None, 0);
    while let Some(row) = stack.pop() {
        out.push(row);
        stack.extend(rows(Some(row.at), row.depth + 1));
    }
    out
}
