"""Measures pi-nvim beside the reference program in one run, on loopback and in temporary folders.

    bench_peer.py [PI_NVIM_BINARY]      (default: target/release/pi-nvim)

Start-up (process start to the first `get_state`), idle memory, CPU of a prompt and of a turn with a tool, against a model
server that answers at once. Prints a table with the ratios and leaves with 1 when one is over twice its target.
"""
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from http.server import ThreadingHTTPServer

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.argv = [sys.argv[0], *(sys.argv[1:] or [str(ROOT / "target/release/pi-nvim")])]
import interop_peer as peer  # noqa: E402  reads the binary from the arguments

PROMPTS = 60
ROUNDS = 3
TARGETS = {"start-up CPU": 1 / 50, "idle memory": 1 / 10, "CPU a tool turn": 1 / 15}


class Model(peer.Model):
    """The same server; it also reads, and every write has another text: the file is written in every turn."""
    turns = itertools.count()

    def wanted_call(self, text):
        if "read a file" in text:
            return "read", {"path": "there.txt"}
        if "write a file" in text:
            return "write", {"path": "made.txt", "content": f"made {next(self.turns)}\n"}
        return None


def send(process, number, record):
    process.stdin.write(json.dumps({"id": str(number), **record}).encode() + b"\n")
    process.stdin.flush()
    settled = record["type"] != "prompt"
    answered = False
    while not (answered and settled):
        got = json.loads(process.stdout.readline())
        answered |= got.get("type") == "response" and got.get("id") == str(number)
        settled |= got.get("type") == "agent_settled"


def run(ours: bool, url: str, records: list[dict]) -> tuple[float, float]:
    """CPU seconds of the process and its children, and its resident memory in MB before the end."""
    home, env = peer.area(url)
    (home / "work/there.txt").write_text("some text\n" * 40)
    process = subprocess.Popen([*peer.command(ours), "--mode", "rpc", "--no-session"], cwd=home / "work", env=env,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for number, record in enumerate(records):
        send(process, number, record)
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    memory = int(status.split("VmRSS:")[1].split()[0]) / 1024
    process.stdin.close()
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime, memory


if __name__ == "__main__":
    if peer.NODE is None or not peer.CLI.exists():
        sys.exit("bench-peer: the reference program is not installed (scripts/setup.sh peer)")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    state = {"type": "get_state"}
    words = [{"type": "prompt", "message": f"prompt {n}"} for n in range(PROMPTS)]
    reads = [{"type": "prompt", "message": f"{n}: read a file"} for n in range(PROMPTS)]
    writes = [{"type": "prompt", "message": f"{n}: write a file"} for n in range(PROMPTS)]
    best = {True: {}, False: {}}
    with tempfile.TemporaryDirectory(prefix="pi-bench-peer-") as folder:
        peer.BASE = folder
        # In turns, and the best of each: other work on the machine meets both alike and is left out as far as it can be.
        for _ in range(ROUNDS):
            for ours, found in best.items():
                for name, records in (("start", [state]), ("talk", words), ("read", reads), ("write", writes)):
                    cpu, memory = run(ours, url, records)
                    before = found.get(name, (cpu, memory))
                    found[name] = (min(cpu, before[0]), min(memory, before[1]))
    figures = {}
    for ours, found in best.items():
        start, idle = found["start"]
        figures[ours] = {"start-up CPU": (start * 1000, "ms"), "idle memory": (idle, "MB"),
                         f"memory after {PROMPTS} prompts": (found["talk"][1], "MB"),
                         "CPU a prompt": ((found["talk"][0] - start) * 1000 / PROMPTS, "ms"),
                         "CPU a tool turn": ((found["read"][0] - start) * 1000 / PROMPTS, "ms"),
                         "CPU a turn that writes": ((found["write"][0] - start) * 1000 / PROMPTS, "ms")}
    over = False
    print("| figure | pi-nvim | Pi 1.6.0 | ratio | target |\n|---|---|---|---|---|")
    for name, (mine, unit) in figures[True].items():
        theirs = figures[False][name][0]
        ratio = mine / theirs
        target = TARGETS.get(name)
        over |= target is not None and ratio > 2 * target
        wanted = f"1/{1 / target:.0f}" if target else ""
        print(f"| {name} | {mine:.1f} {unit} | {theirs:.1f} {unit} | 1/{1 / max(ratio, 1e-9):.0f} | {wanted} |")
    sys.exit(over)
