"""Compares pi-nvim with the reference program from outside, on loopback and in temporary folders.

    interop_peer.py PI_NVIM_BINARY

1. The reference's RPC client class drives our binary, by changing only the program it starts, and then the reference
   itself; what the calls give has the same shape.
2. Every recorded session file is opened by both; messages, entries and tree are the same.
3. A session written by one is gone on with by the other, and back again.
4. The same with all that a tree can hold: labels, branches, a branch summary, a compaction, context edits that omit,
   replace and take back. Both programs see the same messages, entries and tree after every step.
Needs `scripts/setup.sh peer`; prints one line a check and leaves with 1 when one failed.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = pathlib.Path(os.environ.get("PI_NVIM_TOOLS", ROOT / ".tools"))
MODULES = TOOLS / "peer/node_modules"
PACKAGE = MODULES / "@earendil-works/pi-coding-agent"
CLI = PACKAGE / "dist/bundle/cli.js"
NODE = next(iter(MODULES.glob("node-linux-*/bin/node")), None)
OURS = pathlib.Path(sys.argv[1]).resolve()
failures = []


def check(name: str, good: bool, why: str = "") -> None:
    print(f"interop: {'ok  ' if good else 'FAIL'} {name}{'' if good else ': ' + why}")
    if not good:
        failures.append(name)


class Model(BaseHTTPRequestHandler):
    """A chat-completions server: a tool call for `write a file` where there are tools, else words."""
    protocol_version = "HTTP/1.1"

    def wanted_call(self, text: str) -> tuple[str, dict] | None:
        """The tool and its arguments for a prompt; None for words."""
        return ("write", {"path": "made.txt", "content": "made\n"}) if "write a file" in text else None

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = body["messages"][-1]
        text = last["content"] if isinstance(last.get("content"), str) else json.dumps(last.get("content"))
        wanted = self.wanted_call(text) if last["role"] == "user" and body.get("tools") else None
        if wanted:
            call = {"index": 0, "id": f"call_{len(body['messages'])}", "type": "function",
                    "function": {"name": wanted[0], "arguments": json.dumps(wanted[1])}}
            deltas, reason = [{"tool_calls": [call]}], "tool_calls"
        else:
            deltas, reason = [{"content": word} for word in ("So ", "it ", f"is, {len(body['messages'])}.")], "stop"
        chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in [{"role": "assistant", "content": ""}, *deltas]]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        chunks.append({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for chunk in chunks:
            line = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"], **chunk}
            self.wfile.write(f"data: {json.dumps(line)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, *_):
        pass


def area(url: str) -> tuple[pathlib.Path, dict]:
    """A fresh home with a model, and the environment for it."""
    home = pathlib.Path(tempfile.mkdtemp(prefix="pi-interop-", dir=BASE))
    (home / "agent").mkdir()
    (home / "work").mkdir()
    model = {"id": "mock-1", "contextWindow": 200000, "maxTokens": 8192}
    provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "k", "models": [model]}
    (home / "agent/models.json").write_text(json.dumps({"providers": {"mock": provider}}))
    settings = {"defaultProvider": "mock", "defaultModel": "mock-1", "compaction": {"keepRecentTokens": 1}}
    (home / "agent/settings.json").write_text(json.dumps(settings))
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PI_CODING_AGENT_DIR": str(home / "agent"), "PI_OFFLINE": "1",
           "TMPDIR": str(home), "XDG_STATE_HOME": str(home / "state"), "LANG": "C.UTF-8"}
    return home, env


def command(ours: bool) -> list[str]:
    return [str(OURS)] if ours else [str(NODE), str(CLI)]


def rpc(ours: bool, env: dict, cwd: pathlib.Path, args: list[str], records: list[dict]) -> dict:
    """Sends records one by one, waits for each answer (and for the run to settle after a prompt)."""
    process = subprocess.Popen([*command(ours), "--mode", "rpc", *args], cwd=cwd, env=env,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    watchdog = threading.Timer(30, process.kill)
    watchdog.start()
    answers = {}
    for number, record in enumerate(records):
        process.stdin.write(json.dumps({"id": str(number), **record}).encode() + b"\n")
        process.stdin.flush()
        settled = record["type"] != "prompt"
        answered = False
        while not (answered and settled):
            line = process.stdout.readline()
            if not line:
                break
            got = json.loads(line)
            if got.get("type") == "response" and got.get("id") == str(number):
                answered = True
                answers[number] = got
                settled = settled or not got["success"]
            settled = settled or got.get("type") == "agent_settled"
    process.stdin.close()
    errors = process.stderr.read().decode(errors="replace")
    process.wait()
    watchdog.cancel()
    return {"answers": answers, "code": process.returncode, "stderr": errors}


def shape(value, at: str = "") -> dict[str, str]:
    """Paths and types, without values; all elements of a list share one path, told apart by `type` or `role`."""
    found = {}
    if isinstance(value, dict):
        kind = str(value.get("type") or value.get("role") or "")
        for key, item in value.items():
            name = "child" if key == "children" else key
            found |= shape(item, f"{at}.{name}" if not kind else f"<{kind}>.{name}")
    elif isinstance(value, list):
        for item in value:
            found |= shape(item, f"{at}[]")
    else:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        found[at] = "number" if number else type(value).__name__
    return found


def client_drives_us(url: str) -> None:
    results = {}
    for ours in (True, False):
        home, env = area(url)
        script = CLI
        if ours:
            script = home / "ours.mjs"
            script.write_text(
                'import { spawn } from "node:child_process";\n'
                f"const child = spawn({json.dumps(str(OURS))}, process.argv.slice(2), {{ stdio: 'inherit' }});\n"
                'for (const name of ["SIGTERM", "SIGHUP"]) process.on(name, () => child.kill(name));\n'
                'child.on("exit", (code, signal) => process.exit(code ?? 1));\n')
        done = subprocess.run([NODE, ROOT / "scripts/interop_client.mjs", PACKAGE, script, home / "work"],
                              env={**env, "PATH": f"{NODE.parent}:{env['PATH']}"}, capture_output=True, text=True, timeout=90)
        if done.returncode:
            check(f"client class drives {'us' if ours else 'the reference'}", False, done.stderr.strip()[-600:])
            return
        results[ours] = json.loads(done.stdout)
    check("client class drives us", True)
    ours, theirs = results[True], results[False]
    for name in theirs:
        if name in ("commands", "models"):     # built-in lists differ by design
            check(f"client {name}", isinstance(ours[name], list) or "error" not in (ours[name] or {}), str(ours[name])[:200])
            continue
        if name in ("prompt", "tools"):        # the number of updates depends on timing
            squeeze = lambda events: [e for i, e in enumerate(events) if not i or e != events[i - 1]]
            check(f"client {name}", squeeze(ours[name]) == squeeze(theirs[name]), f"{ours[name]} against {theirs[name]}")
            continue
        mine, other = shape(ours[name]), shape(theirs[name])
        if ".error" in other:
            check(f"client {name}", ".error" in mine, f"no error, but {ours[name]}")
            continue
        check(f"client {name}", mine == other, first_difference(other, mine))


def masked(value, original: str):
    """Ids and times that are not in the file were made on opening it: they differ from run to run."""
    if isinstance(value, dict):
        fresh = isinstance(value.get("id"), str) and value["id"] not in original
        names = ("id", "timestamp") if fresh else ()
        return {key: "NEW" if key in names or (isinstance(item, str) and key in ("parentId", "leafId", "firstKeptEntryId")
                                               and item not in original)
                else masked(item, original) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item, original) for item in value]
    if isinstance(value, str):  # half of a pair cannot be held in our memory; both show a replacement
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def same_files(url: str) -> None:
    queries = [{"type": "get_messages"}, {"type": "get_entries"}, {"type": "get_tree"}, {"type": "get_session_stats"}]
    # By rule: where the reference hangs, fails or repeats itself.
    deviate = {"parent-cycle", "null-content", "duplicate-ids"}
    for file in sorted((ROOT / "tests/conformance/sessions/files").glob("*.jsonl")):
        got = []
        for ours in (False, True):
            home, env = area(url)
            copy = home / "session.jsonl"
            copy.write_bytes(file.read_bytes().replace(b"{cwd}", str(home / "work").encode()))
            result = rpc(ours, env, home / "work", ["--session", str(copy)], queries)
            text = json.dumps([result["answers"].get(n, {}).get("data") for n in range(len(queries))], sort_keys=True)
            got.append(masked(json.loads(text.replace(str(home), "HOME")), file.read_text(errors="replace")))
            if got[-1][0] is None:
                got[-1] = f"refused: {result['stderr'].strip()[-120:]}"
        good = got[0] == got[1] or file.stem in deviate or (isinstance(got[0], str) and isinstance(got[1], str))
        check(f"both open {file.name}", good, difference(got))


def first_difference(theirs, ours, at: str = "") -> str:
    """Where two JSON values part, and what stands there."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            if theirs.get(key, "absent") != ours.get(key, "absent"):
                return first_difference(theirs.get(key, "absent"), ours.get(key, "absent"), f"{at}.{key}")
    if isinstance(theirs, list) and isinstance(ours, list):
        for index, (one, other) in enumerate(zip(theirs, ours)):
            if one != other:
                return first_difference(one, other, f"{at}[{index}]")
        return f"{at}: {len(theirs)} items, ours {len(ours)}"
    return f"{at}: reference {json.dumps(theirs)[:300]} ours {json.dumps(ours)[:300]}"


def difference(got: list) -> str:
    if isinstance(got[0], str) or isinstance(got[1], str):
        return f"reference {str(got[0])[:160]} ours {str(got[1])[:160]}"
    names = ("messages", "entries", "tree", "stats")
    return first_difference(dict(zip(names, got[0])), dict(zip(names, got[1])))


def there_and_back(url: str) -> None:
    home, env = area(url)
    work = home / "work"
    file = None
    texts = []
    for number, ours in enumerate((True, False, True, False)):
        args = ["--session", str(file)] if file else []
        result = rpc(ours, env, work, args, [
            {"type": "prompt", "message": f"turn {number}: write a file" if number < 2 else f"turn {number}"},
            {"type": "get_state"}, {"type": "get_messages"}])
        answers = result["answers"]
        who = "ours" if ours else "the reference"
        if not answers.get(2, {}).get("success"):
            check(f"turn {number} by {who}", False, f"{answers} {result['stderr'][-300:]}")
            return
        file = answers[1]["data"]["sessionFile"]
        texts.append(json.dumps(answers[2]["data"]["messages"]))
        users = [m for m in answers[2]["data"]["messages"] if m["role"] == "user"]
        check(f"turn {number} by {who}: {len(users)} user messages", len(users) == number + 1, texts[-1][:300])
    final = [rpc(ours, env, work, ["--session", file], [{"type": "get_messages"}, {"type": "get_tree"}])["answers"]
             for ours in (True, False)]
    same = [final[0][n]["data"] == final[1][n]["data"] for n in (0, 1)]
    check("both see the same conversation in the end", all(same), str(same))


QUERIES = [{"type": "get_messages"}, {"type": "get_entries"}, {"type": "get_tree"}]


def same_view(name: str, env: dict, work: pathlib.Path, file: str) -> list[dict]:
    """Opens copies of a file in both programs; gives the entries."""
    got = []
    for ours in (False, True):
        copy = pathlib.Path(env["HOME"]) / f"view-{'ours' if ours else 'theirs'}.jsonl"
        shutil.copy(file, copy)
        answers = rpc(ours, env, work, ["--session", str(copy)], QUERIES)["answers"]
        got.append([answers.get(n, {}).get("data") for n in range(len(QUERIES))])
    original = pathlib.Path(file).read_text()
    got = [masked(one, original) for one in got]
    check(name, got[0] == got[1] and got[0][0] is not None, first_difference(got[0], got[1]))
    return got[1][1]["entries"] if got[1][1] else []


def go_on(ours: bool, env: dict, work: pathlib.Path, file: str, text: str) -> None:
    result = rpc(ours, env, work, ["--session", file], [{"type": "prompt", "message": text}])
    good = result["answers"].get(0, {}).get("success", False)
    check(f"{'ours' if ours else 'the reference'} goes on: {text}", good, str(result)[:300])


def whole_tree_from_us(url: str) -> None:
    home, env = area(url)
    work = home / "work"

    def ours(*records: dict) -> dict:
        return rpc(True, env, work, ["--session", file] if file else [], list(records))["answers"]

    file = None
    said = ours({"type": "prompt", "message": "first"}, {"type": "prompt", "message": "second: write a file"},
                {"type": "prompt", "message": "third"}, {"type": "get_state"}, {"type": "get_entries"})
    file = said[3]["data"]["sessionFile"]
    entries = said[4]["data"]["entries"]

    def users() -> dict:
        read = [json.loads(line) for line in open(file, encoding="utf-8")]
        return {e["message"]["content"][0]["text"]: e["id"] for e in read if e.get("message", {}).get("role") == "user"}

    results = [e["id"] for e in entries if e.get("message", {}).get("role") == "toolResult"]
    replies = [e["id"] for e in entries if e.get("message", {}).get("role") == "assistant"]
    steps = ours(
        {"type": "set_label", "entryId": users()["first"], "label": "begin"},
        {"type": "set_label", "entryId": users()["second: write a file"], "label": "gone"},
        {"type": "set_label", "entryId": users()["second: write a file"]},
        {"type": "navigate_tree", "targetId": users()["third"], "summarize": True},
        {"type": "prompt", "message": "another third"},
        {"type": "edit_context", "targetId": results[0], "replacement": None},
        {"type": "edit_context", "targetId": replies[0], "replacement": {"content": "replaced by a person"}},
        {"type": "edit_context", "targetId": users()["first"], "replacement": None},
        {"type": "edit_context", "targetId": users()["first"], "replacement": {"original": True}},
        {"type": "set_session_name", "name": "whole tree"},
        {"type": "prompt", "message": "before compacting"},
        {"type": "compact", "customInstructions": "be brief"},
        {"type": "prompt", "message": "after compacting"})
    bad = {n: a for n, a in steps.items() if not a["success"]}
    check("our tree: labels, branch, edits, compaction", not bad and len(steps) == 13, f"{bad} of {len(steps)}")
    found = {e["type"] for e in same_view("our tree reads the same in both", env, work, file)}
    wanted = {"label", "branch_summary", "context_edit", "session_info", "compaction", "message"}
    check("our tree holds every kind of entry", wanted <= found, str(wanted - found))
    go_on(False, env, work, file, "the reference goes on")
    same_view("our tree after the reference went on", env, work, file)
    go_on(True, env, work, file, "and we again")
    same_view("our tree after both went on", env, work, file)


def whole_tree_from_them(url: str) -> None:
    home, env = area(url)
    work = home / "work"
    script = ROOT / "tests/it/sessions/peer.mjs"
    made = subprocess.run([NODE, script, "write", MODULES, home / "sessions", work], env=env, cwd=work,
                          capture_output=True, text=True, timeout=60, check=False)
    if made.returncode:
        check("the reference writes a whole tree", False, made.stderr.strip()[-300:])
        return
    file = json.loads(made.stdout)["file"]
    same_view("their tree reads the same in both", env, work, file)
    go_on(True, env, work, file, "we go on")
    entries = same_view("their tree after we went on", env, work, file)
    mine = [e["id"] for e in entries if e.get("message", {}).get("role") == "user"][-1]
    done = rpc(True, env, work, ["--session", file], [
        {"type": "edit_context", "targetId": mine, "replacement": {"content": "put otherwise"}},
        {"type": "set_label", "entryId": mine, "label": "ours"}])["answers"]
    check("edits and labels in their tree", all(a["success"] for a in done.values()) and len(done) == 2, str(done)[:300])
    same_view("their tree after our edits", env, work, file)
    go_on(False, env, work, file, "the reference goes on")
    same_view("their tree after both went on", env, work, file)


if __name__ == "__main__":
    if NODE is None or not CLI.exists():
        print("interop: skipped, the reference program is not installed (scripts/setup.sh peer)")
        sys.exit(0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="pi-interop-") as BASE:
        address = f"http://127.0.0.1:{server.server_address[1]}/v1"
        client_drives_us(address)
        there_and_back(address)
        whole_tree_from_us(address)
        whole_tree_from_them(address)
        same_files(address)
    print(f"interop: {len(failures)} failed" if failures else "interop: all checks passed")
    sys.exit(1 if failures else 0)
