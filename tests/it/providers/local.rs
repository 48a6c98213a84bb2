//! Finding model servers on this machine, with scripted ones on free ports.

use pi_nvim::ai::local::{Kind, LocalServer, Target, probe, targets};
use pi_nvim::testing::http::{Response, Server};
use serde_json::{Value, json};

use super::support;

async fn ask(kind: Kind, answers: Vec<Value>) -> (Server, Vec<LocalServer>) {
    let script = answers
        .into_iter()
        .map(|answer| Response::status(200, answer.to_string()))
        .collect();
    let server = Server::start(script).await.unwrap();
    let (_dir, registry) = support::registry();
    let found = probe(
        &registry,
        &[Target {
            kind,
            port: server.port(),
        }],
    )
    .await
    .unwrap();
    (server, found)
}

fn facts(found: &[LocalServer]) -> Vec<(String, u64, bool, bool)> {
    let models = found.iter().flat_map(|server| &server.models);
    models
        .map(|m| {
            (
                m.id.clone(),
                m.context_window,
                m.reads_images(),
                m.reasoning,
            )
        })
        .collect()
}

#[tokio::test]
async fn llama_cpp_tells_its_context() {
    let props =
        json!({"default_generation_settings": {"n_ctx": 32768}, "modalities": {"vision": true}});
    let models = json!({"data": [{"id": "qwen", "meta": {"n_ctx_train": 131072}}]});
    let (_server, found) = ask(Kind::LlamaCpp, vec![props, models]).await;
    assert_eq!(facts(&found), [("qwen".to_owned(), 32768, true, false)]);
    assert_eq!(found[0].models[0].provider, "llama.cpp");
}

#[tokio::test]
async fn ollama_models_have_the_context_they_run_with() {
    let tags = json!({"models": [{"model": "a:7b"}, {"model": "b:1b"}, {"name": "c"}, {"model": "embed"}]});
    let ps = json!({"models": [{"model": "a:7b", "context_length": 16384}]});
    let show = |parameters: &str, capabilities: Value| json!({"parameters": parameters, "capabilities": capabilities, "model_info": {"x.context_length": 40960}});
    let answers = vec![
        tags,
        ps,
        show("", json!(["completion", "tools", "thinking"])),
        show(
            "stop \"x\"\nnum_ctx                        8192",
            json!(["completion", "vision"]),
        ),
        show("", json!(["completion"])),
        show("", json!(["embedding"])),
    ];
    let (server, found) = ask(Kind::Ollama, answers).await;
    assert_eq!(
        facts(&found),
        [
            ("a:7b".to_owned(), 16384, false, true),
            ("b:1b".to_owned(), 8192, true, false),
            ("c".to_owned(), 4096, false, false),
        ]
    );
    assert_eq!(server.requests()[2].body, br#"{"model":"a:7b"}"#);
}

#[tokio::test]
async fn lm_studio_and_vllm() {
    let listed = json!({"data": [
        {"id": "m", "type": "llm", "max_context_length": 32000, "loaded_context_length": 4000},
        {"id": "v", "type": "vlm", "max_context_length": 9000}, {"id": "e", "type": "embeddings"},
    ]});
    let (_server, found) = ask(Kind::LmStudio, vec![listed]).await;
    assert_eq!(
        facts(&found),
        [
            ("m".to_owned(), 4000, false, false),
            ("v".to_owned(), 9000, true, false)
        ]
    );
    let (_server, found) = ask(
        Kind::Vllm,
        vec![json!({"data": [{"id": "org/m", "max_model_len": 65536}]})],
    )
    .await;
    assert_eq!(facts(&found), [("org/m".to_owned(), 65536, false, false)]);
}

#[tokio::test]
async fn nobody_there_and_somebody_else_are_no_servers() {
    let (_dir, registry) = support::registry();
    let gone = Server::start(Vec::new()).await.unwrap().port();
    let other = Server::start(vec![Response::ok("<html>hello</html>")])
        .await
        .unwrap();
    let targets: Vec<Target> = Kind::ALL
        .into_iter()
        .flat_map(|kind| [gone, other.port()].map(|port| Target { kind, port }))
        .collect();
    assert_eq!(probe(&registry, &targets).await.unwrap(), []);
}

#[tokio::test]
async fn found_models_can_be_used_at_once() {
    let (_server, found) = ask(
        Kind::Vllm,
        vec![json!({"data": [{"id": "m", "max_model_len": 65536}]})],
    )
    .await;
    let (_dir, registry) = support::registry();
    registry.add_local(found[0].models.clone());
    let model = registry.find("vllm", "m").unwrap();
    assert_eq!(registry.why_unusable(&model), None);
    registry.reload();
    assert!(registry.find("vllm", "m").is_some());
}

#[test]
fn the_servers_own_variables_say_where_they_listen() {
    let ports = |pairs: &[(&str, &str)]| -> Vec<u16> {
        let targets = targets(&support::env(pairs));
        targets.iter().map(|target| target.port).collect()
    };
    assert_eq!(ports(&[]), [8080, 11434, 1234, 8000]);
    assert_eq!(
        ports(&[("LLAMA_ARG_PORT", "9001")]),
        [9001, 11434, 1234, 8000]
    );
    for host in [
        "127.0.0.1:7000",
        "http://localhost:7000",
        "0.0.0.0:7000",
        "[::1]:7000",
    ] {
        assert_eq!(ports(&[("OLLAMA_HOST", host)])[1], 7000, "{host}");
    }
    // Another machine is not ours to ask, and what is no address changes nothing.
    for host in [
        "10.0.0.5:7000",
        "gpu.example:7000",
        "localhost",
        "",
        "::",
        "nonsense here",
    ] {
        assert_eq!(ports(&[("OLLAMA_HOST", host)])[1], 11434, "{host}");
    }
}
