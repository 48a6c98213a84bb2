use pi_nvim::ai::SystemMessage;
use pi_nvim::resources::context_files::ContextFile;
use pi_nvim::resources::skills::Skill;
use pi_nvim::resources::system_prompt::{
    DEFAULT_TOOLS, PromptInput, PromptTool, RULE_CONCISE, RULE_PATHS, RULE_SHELL_BASH,
    RULE_SHELL_BOTH, RULE_SHELL_POWERSHELL, Sections,
};
use pi_nvim::resources::{Source, SourceScope};
use serde_json::{Value, json};

use super::{recorded, run, same};

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => list
            .iter()
            .map(|it| it.as_str().unwrap().to_owned())
            .collect(),
        _ => Vec::new(),
    }
}

struct Input {
    tools: Vec<PromptTool>,
    custom: Option<String>,
    addendum: Vec<String>,
    context_files: Vec<ContextFile>,
    skills: Vec<Skill>,
    guidelines: Vec<String>,
    cwd: String,
    extra: Vec<(String, String)>,
}

impl Input {
    fn read(input: &Value, all: &Value) -> Self {
        let selected = match &input["selectedTools"] {
            Value::Null => DEFAULT_TOOLS.map(str::to_owned).to_vec(),
            list => texts(list),
        };
        let hidden = texts(&input["hiddenTools"]);
        let tool = |name: String| PromptTool {
            snippet: all["toolSnippets"][&name].as_str().map(str::to_owned),
            guidelines: texts(&all["toolGuidelines"][&name]),
            hidden: hidden.contains(&name),
            name,
        };
        let list = |key: &str| input[key].as_array().cloned().unwrap_or_default();
        let text = |value: &Value, key: &str| value[key].as_str().unwrap().to_owned();
        Self {
            tools: selected.into_iter().map(tool).collect(),
            custom: input["customPrompt"].as_str().map(str::to_owned),
            addendum: texts(&input["appendSystemPrompt"]),
            context_files: list("contextFiles")
                .iter()
                .map(|it| ContextFile {
                    path: text(it, "path").into(),
                    content: text(it, "content"),
                })
                .collect(),
            skills: list("skills")
                .iter()
                .map(|it| Skill {
                    name: text(it, "name"),
                    description: text(it, "description"),
                    path: text(it, "filePath").into(),
                    base_dir: text(it, "baseDir").into(),
                    hidden_from_model: it["disableModelInvocation"] == true,
                    source: Source::top_level(SourceScope::User, "auto", None),
                })
                .collect(),
            guidelines: texts(&input["promptGuidelines"]),
            cwd: input["cwd"].as_str().unwrap_or("/p").to_owned(),
            extra: input["sections"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, text)| (name.clone(), text.as_str().unwrap().to_owned()))
                .collect(),
        }
    }

    fn prompt(&self) -> PromptInput<'_> {
        PromptInput {
            tools: &self.tools,
            custom: self.custom.as_deref(),
            addendum: &self.addendum,
            context_files: &self.context_files,
            skills: &self.skills,
            guidelines: &self.guidelines,
            cwd: &self.cwd,
            extra: &self.extra,
        }
    }
}

/// Items of a section's list.
fn items<'a>(sections: &'a Sections, name: &str) -> Vec<&'a str> {
    let text = sections.get(name).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.strip_prefix("- "))
        .collect()
}

fn rule_id(rule: &str) -> &str {
    match rule {
        RULE_SHELL_BASH => "builtin:shell-bash",
        RULE_SHELL_POWERSHELL => "builtin:shell-powershell",
        RULE_SHELL_BOTH => "builtin:shell-both",
        RULE_CONCISE => "builtin:concise",
        RULE_PATHS => "builtin:paths",
        other => other,
    }
}

fn report(sections: &Sections, forced: bool) -> Value {
    let mut out = json!({
        "sections": sections.names().collect::<Vec<_>>(),
        "forced": forced,
        "cwdText": sections.get("cwd"),
    });
    if sections.get("tools").is_some() {
        let tools = items(sections, "tools");
        let names = tools.iter().map(|line| line.split(':').next().unwrap());
        out["listedTools"] = names.collect::<Vec<_>>().into();
        let rules = items(sections, "rules");
        out["rules"] = rules.into_iter().map(rule_id).collect::<Vec<_>>().into();
    }
    if let Some(skills) = sections.get("skills") {
        let named = ["read", "bash"]
            .into_iter()
            .find(|tool| skills.contains(&format!("the {tool} tool")));
        out["skillsReader"] = named.unwrap_or("none").into();
    }
    out
}

#[test]
fn recorded_sections() {
    let all = recorded("system-prompt.json");
    run("resources", "system-prompt.json", "sections", |case| {
        let input = Input::read(&case["input"], &all);
        let got = match input.prompt().sections() {
            Ok(sections) => report(&sections, case["input"]["forceSystemPrompt"].is_string()),
            Err(_) => json!({"error": true}),
        };
        same(&got, &case["expected"])
    });
}

fn sections(value: &Value) -> Sections {
    value.as_object().unwrap().clone().into()
}

#[test]
fn recorded_patches() {
    run("resources", "system-prompt.json", "patches", |case| {
        let (previous, current) = (sections(&case["previous"]), sections(&case["current"]));
        let patch = current.patch_from(&previous);
        let message = |map| SystemMessage {
            sections: Some(map),
            ..SystemMessage::default()
        };
        let mut messages = vec![message(previous.into_map())];
        messages.extend(patch.clone().map(message));
        let replayed = Sections::replay(&messages).into_map();
        assert_eq!(
            Value::from(replayed),
            case["current"],
            "a patch leads to the new state"
        );
        same(&patch.map_or(Value::Null, Value::from), &case["expected"])
    });
}

#[test]
fn what_the_prompt_must_say() {
    let all = recorded("system-prompt.json");
    let input = Input::read(
        &json!({
            "appendSystemPrompt": ["one", "two"],
            "contextFiles": [{"path": "/p/AGENTS.md", "content": "CTX\n"}],
        }),
        &all,
    );
    let sections = input.prompt().sections().unwrap();
    let has = |name: &str, what: &str| {
        let text = sections.get(name).unwrap();
        assert!(text.contains(what), "{name} lacks {what}:\n{text}");
    };
    has("preamble", "coding agent");
    has("preamble", "review every change");
    has("tools", "- read: S_READ\n");
    has("tools", "more tools");
    has("docs", ":help pi");
    has("addendum", "<addendum>\none\n\ntwo\n</addendum>");
    has(
        "project_context",
        "\n\n<project_instructions path=\"/p/AGENTS.md\">\nCTX\n\n</project_instructions>\n</project_context>",
    );
    let prompt = sections.render();
    assert!(prompt.len() < 2_500, "short: {} bytes", prompt.len());
    assert!(
        !prompt.contains("20"),
        "no date: the cache must hold\n{prompt}"
    );
}

#[test]
fn a_section_that_comes_back_goes_to_the_end() {
    let patch = |value: Value| SystemMessage {
        sections: value.as_object().cloned(),
        ..SystemMessage::default()
    };
    let messages = [
        patch(json!({"a": "1", "b": "2"})),
        patch(json!({"a": null})),
        patch(json!({"a": "3", "b": "4"})),
    ];
    let sections = Sections::replay(&messages);
    assert_eq!(sections.render(), "4\n\n3");
}
