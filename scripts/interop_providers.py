"""Runs the providers against programs of others, on loopback:

1. two independent mock model servers (npm @copilotkit/aimock, PyPI llmock): text, tools, follow-up turn, thinking, 429,
   truncated, malformed and broken streams, for all four wire APIs;
2. the request types of the vendors' own SDKs (PyPI openai, anthropic, google-genai): every body that the recorded cases
   make us send must validate, without keys the types do not know.

Installs what it needs under $PI_NVIM_TOOLS (default .tools/); says so in one line and leaves with 0 when a registry
cannot be reached.
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = pathlib.Path(os.environ.get("PI_NVIM_TOOLS", ROOT / ".tools")).resolve() / "interop_providers"
PYTHON_PACKAGES = ["openai==3.57.0", "anthropic==2.14.0", "google-genai==3.6.1", "llmock==0.2.2"]
NPM_PACKAGE = "@copilotkit/aimock@1.43"

FIXTURES = {
    "fixtures": [
        {"match": {"userMessage": "read the file", "hasToolResult": True}, "response": {"content": "The file says A."}},
        # The real Gemini API ends tool calls with STOP.
        {
            "match": {"userMessage": "read the file", "model": "gemini-interop"},
            "response": {
                "content": "Reading.",
                "toolCalls": [
                    {"name": "read", "arguments": '{"path":"a"}'},
                    {"name": "read", "arguments": '{"path":"b"}'},
                ],
                "finishReason": "stop",
            },
        },
        {
            "match": {"userMessage": "read the file"},
            "response": {
                "content": "Reading.",
                "toolCalls": [
                    {"name": "read", "arguments": '{"path":"a"}'},
                    {"name": "read", "arguments": '{"path":"b"}'},
                ],
            },
        },
        {"match": {"userMessage": "think"}, "response": {"reasoning": "let me see", "content": "done"}},
        {
            "match": {"userMessage": "limit"},
            "response": {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429},
        },
        {"match": {"userMessage": "hello"}, "response": {"content": "Hello from the mock, grüße 🙂"}},
    ]
}


def skip(why):
    print(f"skipped: {why}")
    sys.exit(0)


def install(command, done, cwd=None):
    """Runs an installer unless its result is there."""
    if done.exists():
        return
    try:
        result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        skip(f"{command[0]} could not run ({error})")
    if result.returncode != 0 or not done.exists():
        last = (result.stderr or result.stdout).strip().splitlines()
        skip(f"{' '.join(map(str, command[:3]))} failed ({last[-1] if last else 'no output'})")


def tools():
    TOOLS.mkdir(parents=True, exist_ok=True)
    python = TOOLS / "venv/bin/python"
    install([sys.executable, "-m", "venv", TOOLS / "venv"], python)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PYTHON_PACKAGES]
    install(pip, TOOLS / "venv/bin/llmock")
    npm = TOOLS / "npm"
    npm.mkdir(exist_ok=True)
    (npm / "package.json").write_text('{"private":true}')
    aimock = npm / "node_modules/.bin/llmock"
    install(["npm", "install", "--no-audit", "--no-fund", NPM_PACKAGE], aimock, cwd=npm)
    return python, TOOLS / "venv/bin/llmock", aimock


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, process):
    for _ in range(150):
        if process.poll() is not None:
            raise RuntimeError(f"a mock server ended at once: {process.args}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"a mock server did not come up: {process.args}")


def start(command, port, cwd, running):
    log = open(pathlib.Path(cwd) / f"{port}.log", "w")
    process = subprocess.Popen([str(part) for part in command], cwd=cwd, stdout=log, stderr=log)
    running.append(process)
    return port, process


def mock_servers(llmock, aimock, folder, running):
    (folder / "fixtures.json").write_text(json.dumps(FIXTURES))
    port = free_port()
    started = {"aimock": start(["node", aimock, "-p", port, "-f", folder / "fixtures.json", "--chunk-size", 3], port, folder, running)}
    kinds = {
        "llmock": [],
        "limited": ["--error-rate", "429=1"],
        "truncate": ["--stream-fault", "truncate=1"],
        "malformed": ["--stream-fault", "malformed=1"],
        "disconnect": ["--stream-fault", "disconnect=1"],
    }
    for name, options in kinds.items():
        port = free_port()
        started[name] = start([llmock, "serve", "--port", port, *options], port, folder, running)
    for port, process in started.values():
        wait_for(port, process)
    return {name: f"http://127.0.0.1:{port}" for name, (port, _) in started.items()}


def cargo_test(names, extra):
    command = ["cargo", "test", "--quiet", "--all-features", "--test", "it", *names, "--", "--nocapture"]
    result = subprocess.run(command, cwd=ROOT, env={**os.environ, "RUST_BACKTRACE": "0", **extra}, capture_output=True, text=True)
    for line in result.stdout.splitlines():
        line = line.lstrip(".")
        if line.startswith(("ok ", "skipped", "providers/")):
            print(line)
    if result.returncode != 0:
        print(result.stdout[-4000:], "\n".join(l for l in result.stderr.splitlines()[-12:]))
    return result.returncode == 0


def main():
    python, llmock, aimock = tools()
    running = []
    good = True
    with tempfile.TemporaryDirectory() as folder:
        try:
            addresses = mock_servers(llmock, aimock, pathlib.Path(folder), running)
            good &= cargo_test(["providers::interop"], {"PI_NVIM_INTEROP": json.dumps(addresses)})
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
    good &= cargo_test(["providers::wire"], {})
    checker = ROOT / "scripts/vendor_types.py"
    good &= subprocess.run([python, checker, ROOT / "target/provider-bodies"]).returncode == 0
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
