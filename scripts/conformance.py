"""Adds up the parts in target/conformance and prints one line an area, as tests/conformance/COUNTS lists them."""
import json, pathlib, sys

root = pathlib.Path(__file__).resolve().parent.parent
counts = [line.rsplit(" ", 1) for line in (root / "tests/conformance/COUNTS").read_text().splitlines()
          if line and not line.startswith("#")]
areas = {name: int(n) for name, n in counts if "/" not in name}
parts = {name: int(n) for name, n in counts if "/" in name}
seen = {}
for file in sorted((root / "target/conformance").glob("*.json")):
    row = json.loads(file.read_text())
    seen[row["part"]] = row

bad = False
for area, total in areas.items():
    mine = [name for name in parts if name.split("/")[0] == area]
    rows = [seen[name] for name in mine if name in seen]
    missing = sum(parts[name] for name in mine if name not in seen)
    passed = sum(row["passed"] for row in rows)
    line = f"{area} {passed} of {total}, {sum(row['differences'] for row in rows)} deliberate differences"
    skipped = sum(row["skipped"] for row in rows) + missing
    if skipped:
        line += f", {skipped} not run"
    failed = sum(row["failed"] for row in rows)
    if failed:
        line += f", {failed} FAILED"
        bad = True
    print(line)
sys.exit(bad)
