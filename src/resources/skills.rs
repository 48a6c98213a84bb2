//! Skills: folders with a `SKILL.md` that a model reads when the task needs it, or a person calls as `/skill:name`.
//!
//! Entry points: [`files_in`] finds, [`Loader`] reads and checks, [`listing`] tells the model, [`expand`] carries out a
//! call.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::frontmatter::{Document, trim};
use super::ignore_rules::{IgnoreRules, sorted_entries};
use super::{Collision, Diagnostic, DiagnosticCode, Source};
use crate::files::agent_dir::real_path;

const NAME_MAX: usize = 64;
const DESCRIPTION_MAX: usize = 1024;
const SKILL_FILE: &str = "SKILL.md";

/// A skill that was found and is fit for use.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    /// Name, from the head or else from the folder.
    pub name: String,
    /// When to use it; for the model and for completion.
    pub description: String,
    /// The Markdown file.
    pub path: PathBuf,
    /// Folder that relative references in it start from.
    pub base_dir: PathBuf,
    /// True: only a person may call it, the model is not told.
    pub hidden_from_model: bool,
    /// Where it comes from.
    pub source: Source,
}

/// What loose Markdown files mean below a root of skills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// `skills/` of Pi: `*.md` directly in the root are skills.
    Pi,
    /// `.agents/skills/`: not in the root, but in the group folders below it.
    Agents,
}

/// Returns the files below `root` that may be skills. A folder with a `SKILL.md` is one skill and nothing else.
pub fn files_in(root: &Path, kind: RootKind) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut seen = HashSet::new();
    walk(
        root,
        root,
        kind,
        &mut IgnoreRules::new(root),
        &mut seen,
        &mut out,
    );
    out
}

fn walk(
    dir: &Path,
    root: &Path,
    kind: RootKind,
    rules: &mut IgnoreRules,
    seen: &mut HashSet<PathBuf>,
    out: &mut Vec<PathBuf>,
) {
    // Links are followed, so a folder may contain itself.
    if !seen.insert(real_path(dir)) {
        return;
    }
    rules.enter(dir);
    let own = dir.join(SKILL_FILE);
    if own.is_file() && !rules.ignores(&own, false) {
        out.push(own);
        return;
    }
    let loose = (dir == root) == (kind == RootKind::Pi);
    for entry in sorted_entries(dir) {
        let skipped = entry.name.starts_with('.') || entry.name == "node_modules";
        if skipped || rules.ignores(&entry.path, entry.is_dir) {
            continue;
        }
        if entry.is_dir {
            walk(&entry.path, root, kind, rules, seen, out);
        } else if loose && entry.is_file && entry.name.ends_with(".md") {
            out.push(entry.path);
        }
    }
}

/// Reads skill files one after the other; of two with one name the first wins.
#[derive(Debug, Default)]
pub struct Loader {
    /// What is fit for use.
    pub skills: Vec<Skill>,
    /// What is not, and why.
    pub diagnostics: Vec<Diagnostic>,
    seen: HashSet<PathBuf>,
}

impl Loader {
    /// Adds all skills of a folder or the one of a file, as a person may name it.
    pub fn add_path(&mut self, path: &Path, kind: RootKind, source: &Source) {
        let problem = |code, what: &str| Diagnostic::new(code, path, what);
        match std::fs::metadata(path) {
            Err(_) => self
                .diagnostics
                .push(problem(DiagnosticCode::PathMissing, "does not exist")),
            Ok(meta) if meta.is_dir() => {
                for file in files_in(path, kind) {
                    self.add_file(&file, source);
                }
            }
            Ok(_) if path.extension().is_some_and(|ext| ext == "md") => self.add_file(path, source),
            Ok(_) => self.diagnostics.push(problem(
                DiagnosticCode::NotMarkdown,
                "is no skill: the file name must end in .md",
            )),
        }
    }

    /// Adds one file. One that was added under another name before is passed over in silence.
    pub fn add_file(&mut self, path: &Path, source: &Source) {
        if !self.seen.insert(real_path(path)) {
            return;
        }
        let Some(skill) = self.read(path, source) else {
            return;
        };
        match self.skills.iter().find(|other| other.name == skill.name) {
            Some(winner) => self.diagnostics.push(Diagnostic::collision(Collision {
                kind: "skill",
                name: skill.name,
                winner: winner.path.clone(),
                loser: skill.path,
            })),
            None => self.skills.push(skill),
        }
    }

    fn read(&mut self, path: &Path, source: &Source) -> Option<Skill> {
        // Other Markdown beside skills (a README) is nobody's mistake.
        let declared = path.file_name().is_some_and(|name| name == SKILL_FILE);
        let doc = match crate::files::read_text(path) {
            Ok(text) => Document::parse(&text).map_err(|err| {
                let what = format!("skipped, its head is not valid YAML: {err}");
                Diagnostic::new(DiagnosticCode::Yaml, path, &what)
            }),
            Err(err) => {
                let what = format!("cannot be read: {err}");
                Err(Diagnostic::new(DiagnosticCode::Io, path, &what))
            }
        };
        let doc = match doc {
            Ok(doc) => doc,
            Err(diagnostic) => {
                self.diagnostics.extend(declared.then_some(diagnostic));
                return None;
            }
        };
        let description = doc
            .text("description")
            .filter(|text| !trim(text).is_empty());
        let Some(description) = description else {
            let what = "skipped, its head has no description";
            let diagnostic = Diagnostic::new(DiagnosticCode::DescriptionRequired, path, what);
            self.diagnostics.extend(declared.then_some(diagnostic));
            return None;
        };
        let base_dir = path.parent().unwrap_or(path).to_owned();
        let folder = base_dir.file_name().unwrap_or_default().to_string_lossy();
        let name = doc
            .text("name")
            .filter(|name| !name.is_empty())
            .unwrap_or(&folder);
        self.warn_about(path, name, description);
        Some(Skill {
            name: name.to_owned(),
            description: description.to_owned(),
            path: path.to_owned(),
            hidden_from_model: doc.fields.get("disable-model-invocation") == Some(&true.into()),
            source: source.clone(),
            base_dir,
        })
    }

    fn warn_about(&mut self, path: &Path, name: &str, description: &str) {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let checks = [
            (
                description.encode_utf16().count() > DESCRIPTION_MAX,
                DiagnosticCode::DescriptionTooLong,
                "the description is longer than 1024 characters",
            ),
            (
                name.encode_utf16().count() > NAME_MAX,
                DiagnosticCode::NameTooLong,
                "the name is longer than 64 characters",
            ),
            (
                !name.chars().all(allowed),
                DiagnosticCode::NameInvalidChars,
                "the name may only have a-z, 0-9 and hyphens",
            ),
            (
                name.starts_with('-') || name.ends_with('-'),
                DiagnosticCode::NameEdgeHyphen,
                "the name begins or ends with a hyphen",
            ),
            (
                name.contains("--"),
                DiagnosticCode::NameDoubleHyphen,
                "the name has two hyphens in a row",
            ),
        ];
        let broken = checks.into_iter().filter(|(is_broken, ..)| *is_broken);
        self.diagnostics
            .extend(broken.map(|(_, code, what)| Diagnostic::new(code, path, what)));
    }
}

/// How the model gets at a skill's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader<'a> {
    /// With this tool.
    Tool(&'a str),
    /// With a tool that is active but not declared; the text names none.
    Unnamed,
}

/// Returns the text that tells the model which skills there are; `None` when there is none it may use.
pub fn listing(skills: &[Skill], reader: Reader<'_>) -> Option<String> {
    let visible: Vec<&Skill> = skills
        .iter()
        .filter(|skill| !skill.hidden_from_model)
        .collect();
    if visible.is_empty() {
        return None;
    }
    let how = match reader {
        Reader::Tool(tool) => format!("load its file with the {tool} tool"),
        Reader::Unnamed => "load its file".to_owned(),
    };
    let mut text = format!(
        "Skills hold instructions for special tasks. When a task fits a description, {how} before you begin. \
         Paths inside a skill are relative to the folder of its file.\n\n<available_skills>\n"
    );
    for skill in visible {
        for line in [
            "  <skill>".to_owned(),
            format!("    <name>{}</name>", escape_xml(&skill.name)),
            format!(
                "    <description>{}</description>",
                escape_xml(&skill.description)
            ),
            format!(
                "    <location>{}</location>",
                escape_xml(&skill.path.to_string_lossy())
            ),
            "  </skill>".to_owned(),
        ] {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text.push_str("</available_skills>");
    Some(text)
}

fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            other => out.push(other),
        }
    }
    out
}

/// Returns what a `/skill:name args` becomes, `None` when it is no call of a known skill.
///
/// # Errors
/// One line when the skill's file cannot be read; the text then goes on as it was typed.
pub fn expand(text: &str, skills: &[Skill]) -> Result<Option<String>, String> {
    let Some(call) = text.strip_prefix("/skill:") else {
        return Ok(None);
    };
    // Only a space ends the name; that is what the reference does, and what completion inserts.
    let (name, arguments) = call.split_once(' ').unwrap_or((call, ""));
    let Some(skill) = skills.iter().find(|skill| skill.name == name) else {
        return Ok(None);
    };
    let read = |err| {
        format!(
            "skill {name}: {} cannot be read: {err}",
            skill.path.display()
        )
    };
    let file = crate::files::read_text(&skill.path).map_err(read)?;
    let doc = Document::parse(&file)
        .map_err(|err| format!("skill {name}: {}: {err}", skill.path.display()))?;
    let mut out = format!(
        "<skill name=\"{name}\" location=\"{}\">\nReferences are relative to {}.\n\n{}\n</skill>",
        skill.path.display(),
        skill.base_dir.display(),
        trim(&doc.body)
    );
    let arguments = trim(arguments);
    if !arguments.is_empty() {
        out.push_str("\n\n");
        out.push_str(arguments);
    }
    Ok(Some(out))
}
