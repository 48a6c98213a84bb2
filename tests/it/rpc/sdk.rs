//! The example of the library runs and stays short.

use std::process::Command;

#[test]
fn the_sdk_example_runs_and_is_short() {
    let source = include_str!("../../../examples/sdk.rs");
    let body = source.split("async fn main()").nth(1).unwrap();
    let body = body.split("\n}\n").next().unwrap();
    assert!(body.lines().count() <= 20, "{} lines", body.lines().count());
    // Built beside this test, unless only parts of the project were built.
    let exe = std::env::current_exe().unwrap();
    let example = exe.parent().unwrap().parent().unwrap().join("examples/sdk");
    assert!(
        example.exists(),
        "{} is not built: `cargo build --example sdk --all-features` first",
        example.display()
    );
    let output = Command::new(example).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains("Hello from the model."),
        "{text}"
    );
}
