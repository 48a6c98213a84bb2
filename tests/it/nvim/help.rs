//! `doc/pi.txt`: it has a tag for everything a person can name, every link leads somewhere, and it looks as help should.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::harness::Nv;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("doc/pi.txt");
    std::fs::read_to_string(path).unwrap()
}

/// Lines outside of code blocks.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut out = Vec::new();
    for (idx, line) in text.lines().enumerate() {
        // A line that begins at the margin ends the block.
        if in_code && (line.starts_with('<') || line.starts_with(|c: char| !c.is_whitespace())) {
            in_code = false;
        }
        if !in_code {
            out.push((idx + 1, line));
        }
        let last = line.split_whitespace().next_back().unwrap_or_default();
        if last.starts_with('>') && last.chars().skip(1).all(char::is_alphanumeric) {
            in_code = true;
        }
    }
    out
}

/// Texts between two marks that have no white space in them: `*tag*`, `|link|`.
fn marked(text: &str, mark: char) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let pieces: Vec<&str> = line.split(mark).collect();
        for idx in 1..pieces.len().saturating_sub(1) {
            let before = pieces[idx - 1];
            let after = pieces[idx + 1];
            let opens = before.is_empty() || before.ends_with([' ', '(', '\t']);
            let closes =
                after.is_empty() || after.starts_with([' ', '.', ',', ')', ':', ';', '\t']);
            let piece = pieces[idx];
            if opens && closes && !piece.is_empty() && !piece.contains([' ', '\t', '`']) {
                found.insert(piece.to_owned());
            }
        }
    }
    found
}

#[test]
fn the_page_looks_as_help_should() {
    let text = page();
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("*pi.txt*") && first.len() < 80, "{first}");
    assert_eq!(
        text.lines().last(),
        Some(" vim:tw=78:ts=8:noet:ft=help:norl:")
    );
    for (number, line) in text.lines().enumerate().map(|(idx, line)| (idx + 1, line)) {
        assert!(
            line.chars().count() <= 78,
            "line {number} is too long: {line}"
        );
        assert_eq!(line.trim_end(), line, "line {number} ends in blanks");
    }
}

#[test]
fn the_contents_lead_to_every_chapter() {
    let (text, line) = (page(), "=".repeat(78));
    let contents = text.split(&line).nth(1).unwrap();
    let links = marked(contents, '|');
    let chapters = text.split(&line).skip(2);
    for chapter in chapters {
        let heading = chapter.lines().nth(1).unwrap();
        let tags = marked(heading, '*');
        assert!(
            tags.iter().any(|tag| links.contains(tag)),
            "no link to {heading}"
        );
    }
}

#[tokio::test]
async fn tags_are_unique_and_links_lead_somewhere() {
    let nv = Nv::start().await;
    let doc = nv.cwd.join("doc");
    std::fs::create_dir(&doc).unwrap();
    std::fs::write(doc.join("pi.txt"), page()).unwrap();
    let code = "
        local dir, links = ...
        local ok, err = pcall(vim.cmd.helptags, dir)
        if not ok then return err end
        vim.opt.runtimepath:prepend(vim.fs.dirname(dir))
        local lost = {}
        for _, link in ipairs(links) do
          if not vim.list_contains(vim.fn.getcompletion(link, 'help'), link) then
            lost[#lost + 1] = link
          end
        end
        return table.concat(lost, ' ')";
    let links: Vec<String> = marked(&page(), '|').into_iter().collect();
    assert!(links.len() > 20, "{links:?}");
    assert_eq!(nv.lua(code, json!([doc, links])).await, json!(""));
}

/// Event names in the sources: Lua fires some, the program the others.
fn events() -> BTreeSet<String> {
    fn walk(dir: &Path, out: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, out);
            } else {
                out.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = Vec::new();
    walk(&root.join("lua"), &mut texts);
    let program = std::fs::read_to_string(root.join("src/modes/nvim/events.rs")).unwrap();
    let mut found = BTreeSet::new();
    let name = |rest: &str| -> Option<String> {
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
        name.starts_with("Pi").then_some(name)
    };
    for text in &texts {
        for call in ["fire('", "event('"] {
            found.extend(text.split(call).skip(1).filter_map(name));
        }
    }
    let code = program.split("#[cfg(test)]").next().unwrap();
    found.extend(code.split('"').skip(1).step_by(2).filter_map(name));
    found
}

#[tokio::test]
async fn everything_a_person_can_name_has_a_tag() {
    let nv = Nv::start().await;
    let code = "
        local names = {}
        for name in pairs(require('pi.command').subs) do
          names[#names + 1] = ':Pi-' .. name
        end
        require('pi.review').setup()
        for _, mode in ipairs({ 'n', 'x', 'o' }) do
          for _, map in ipairs(vim.api.nvim_get_keymap(mode)) do
            if vim.startswith(map.lhs, '<Plug>(pi-') then
              names[#names + 1] = map.lhs
            end
          end
        end
        require('pi.highlights').setup()
        for _, group in ipairs(vim.fn.getcompletion('Pi', 'highlight')) do
          names[#names + 1] = 'pi-hl-' .. group
        end
        local function options(table, path)
          for key, value in pairs(table) do
            local full = path .. key
            local free = full == 'review.rules' or full == 'tools.approve' or full == 'window.skip_filetypes'
            if type(value) == 'table' and not free then
              options(value, full .. '.')
            else
              names[#names + 1] = 'pi-config-' .. full
            end
          end
        end
        options(require('pi.config').get(), '')
        for name, value in pairs(require('pi')) do
          if type(value) == 'function' then
            names[#names + 1] = 'pi.' .. name .. '()'
          end
        end
        return names";
    let names = nv.lua(code, json!([])).await;
    let names = names
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap().to_owned());
    let mut defined: BTreeSet<String> = names.collect();
    defined.extend(events());
    assert!(defined.len() > 150, "{}", defined.len());
    // Options that are unset at first, and a way to type slash commands.
    defined.extend(["pi-config-bin", "pi-config-tree.filter", ":Pi-slash"].map(str::to_owned));
    let tags = marked(&page(), '*');
    let missing: Vec<&String> = defined.difference(&tags).collect();
    assert!(missing.is_empty(), "no tag for {missing:?}");
    let kinds = [":Pi-", "<Plug>", "pi-hl-", "pi-config-"];
    let stale = tags
        .difference(&defined)
        .filter(|tag| kinds.iter().any(|kind| tag.starts_with(kind)));
    let stale: Vec<&String> = stale.collect();
    assert!(stale.is_empty(), "tags for what is not there: {stale:?}");
}
