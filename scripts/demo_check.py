"""Rebuilds what the demo must have left on disk and compares bytes.

    demo_check.py SAMPLE_DIR PROJECT_DIR SESSION_FILE

Shares no code with the program: it reads the sample, and from the session file the proposals (arguments of `edit` and `write`
calls) and the decisions (`details.review.hunks[].state` of their results), splits each proposal into hunks with a line
diff of its own, applies the accepted ones, and looks whether the project holds exactly these bytes and nothing else.
Leaves with 1 and says what differs otherwise.
"""
import difflib
import json
import pathlib
import sys


def lines_of(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True) if b"\r" not in data else data.replace(b"\n", b"\n\0").split(b"\0")


def hunks_of(old: list[bytes], new: list[bytes], join: int = 1):
    """Changed ranges (old start, old end, new start, new end); ranges at most `join` equal lines apart are one."""
    ranges = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if ranges and a - ranges[-1][1] <= join:
            ranges[-1] = (ranges[-1][0], b, ranges[-1][2], d)
        else:
            ranges.append((a, b, c, d))
    return ranges


def target_of(call: dict, base: bytes) -> bytes:
    args = call["arguments"]
    if call["name"] == "write":
        return args["content"].encode()
    spots = []
    for edit in args["edits"]:
        old, new = edit["oldText"].encode(), edit["newText"].encode()
        if base.count(old) != 1:
            raise SystemExit(f"check: the call {call['id']} does not match exactly once, yet it has a result without error")
        spots.append((base.index(old), old, new))
    out, at = b"", 0
    for start, old, new in sorted(spots):
        out += base[at:start] + new
        at = start + len(old)
    return out + base[at:]


def apply(base: bytes, target: bytes, states: list[str] | None) -> tuple[bytes, int, int]:
    old, new = lines_of(base), lines_of(target)
    ranges = hunks_of(old, new)
    if states is None:
        return target, len(ranges), len(ranges)
    if len(ranges) != len(states):
        raise SystemExit(f"check: {len(states)} decisions for {len(ranges)} hunks")
    out, at, taken = [], 0, 0
    for (a, b, c, d), state in zip(ranges, states):
        out += old[at:a]
        if state == "accepted":
            out += new[c:d]
            taken += 1
        else:
            out += old[a:b]
        at = b
    return b"".join(out + old[at:]), taken, len(ranges)


def main(sample: pathlib.Path, project: pathlib.Path, session: pathlib.Path) -> int:
    def tree(root: pathlib.Path) -> dict[str, bytes]:
        found = {}
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not name.startswith(".git/") and "__pycache__" not in name:
                found[name] = path.read_bytes()
        return found

    expected = tree(sample)
    entries = [json.loads(line) for line in session.read_bytes().split(b"\n") if line.strip()]
    messages = [entry["message"] for entry in entries if entry.get("type") == "message"]
    calls = {block["id"]: block for m in messages if m["role"] == "assistant"
             for block in m["content"] if block["type"] == "toolCall"}
    proposals = decided = 0
    for result in (m for m in messages if m["role"] == "toolResult"):
        call = calls[result["toolCallId"]]
        if call["name"] not in ("edit", "write"):
            continue
        path = call["arguments"]["path"]
        review = (result.get("details") or {}).get("review")
        if result["isError"] and review is None:
            continue
        proposals += 1
        base = expected.get(path, b"")
        states = None if review is None else [hunk["state"] for hunk in review["hunks"]]
        after, taken, total = apply(base, target_of(call, base), states)
        decided += total
        print(f"check: {path}: {taken} of {total} hunks of {call['id']}")
        if taken or path in expected:
            expected[path] = after
    actual = tree(project)
    wrong = [name for name in sorted(expected.keys() | actual.keys()) if expected.get(name) != actual.get(name)]
    for name in wrong:
        state = "missing" if name not in actual else "not expected" if name not in expected else "other bytes"
        print(f"check: WRONG {name}: {state}")
    if not proposals:
        print("check: WRONG no proposal in the session")
        return 1
    if not wrong:
        print(f"check: {proposals} proposals, {decided} hunks, {len(expected)} files: every byte as decided")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(pathlib.Path, sys.argv[1:4])))
