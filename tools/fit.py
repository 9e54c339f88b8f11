#!/usr/bin/env python3
"""tools/fit.py: refit the numbers of topologies/gpus/ and stacks/ to published runs.

Only for changing the data files; nothing needs it to build, run or test.

    tools/fit.py build/release/mcpplan runs.csv runs-small.csv [-p NAME.KEY ...] [--write]

Coordinate descent on the mean of |log(predicted / measured)|, each row capped at
0.6, plus a weak prior: 0.01 times the squared log of a number over its value in
the file. A number is fitted when its source begins with "fitted". Each table's
rows weigh as one set; --write puts the results back into the files.
"""

import argparse
import csv
import json
import math
import os
import re
import subprocess
import tempfile

CAP = 0.6
PRIOR = 0.01
SKIPPED = ("AutoModel", "functional-test", "Trainy")  # scored, never fitted


def load(folder):
    return {name[:-5]: json.load(open(os.path.join(folder, name)))
            for name in sorted(os.listdir(folder)) if name.endswith(".json")}


def flat(stacks, name):
    """The stack with what it inherits written out."""
    own = dict(stacks[name])
    base = own.pop("based_on", None)
    if base is None:
        return own
    whole = flat(stacks, base)
    whole["sources"] = {**whole.get("sources", {}), **own.get("sources", {})}
    whole.update({k: v for k, v in own.items() if k != "sources"})
    return whole


class Files:
    def __init__(self):
        self.gpus = load("topologies/gpus")
        self.stacks = load("stacks")

    def place(self, path):
        """NAME.KEY or NAME.KEY.SUBKEY -> (object that holds the number, its key)."""
        name, *keys = path.split("/")
        at = self.stacks.get(name) or self.gpus[name]
        for key in keys[:-1]:
            at = next(k for k in at if k["name"] == key) if isinstance(at, list) else at[key]
        return at, keys[-1]

    def get(self, path):
        at, key = self.place(path)
        return at[key]

    def set(self, path, value):
        at, key = self.place(path)
        at[key] = round(value) if isinstance(at[key], int) and at[key] > 9 else value

    def write(self, folder):
        for kind, files in (("gpus", self.gpus), ("stacks", self.stacks)):
            os.makedirs(os.path.join(folder, kind), exist_ok=True)
            for name in files:
                data = flat(self.stacks, name) if kind == "stacks" else files[name]
                with open(os.path.join(folder, kind, name + ".json"), "w") as out:
                    json.dump(data, out)


def trusted(tables):
    """Ids that may be fitted: complete, trust A or B."""
    ids = set()
    for table in tables:
        for row in csv.DictReader(open(table)):
            if row["complete"] == "1" and row["trust"] in "AB":
                ids.add(row["id"])
    return ids


class Score:
    def __init__(self, program, tables, source):
        self.program, self.tables, self.source = program, tables, source
        self.ids = trusted(tables)
        self.folder = tempfile.mkdtemp(prefix="fit-")
        self.runs = 0

    def rows(self, files):
        files.write(self.folder)
        self.runs += 1
        for table in self.tables:
            command = [self.program, "validate", table, "--json", "--presets", self.folder]
            if self.source:
                command += ["--source", self.source]
            answer = subprocess.run(command, capture_output=True, text=True)
            if answer.returncode != 0:
                if "no row" in answer.stderr:
                    continue
                raise SystemExit(answer.stderr)
            for row in json.loads(answer.stdout)["rows"]:
                if row["id"] in self.ids and not any(s in row["source"] for s in SKIPPED):
                    yield row

    def loss(self, files):
        total, weight = 0.0, 0.0
        for row in self.rows(files):
            w = 0.1 if "single node" in row["source"] else 1.0  # 900 rows of one sweep
            error = abs(math.log(row["predicted_iteration_s"] / row["measured_iteration_s"]))
            total += w * min(error, CAP)
            weight += w
        return total / weight


def fitted(files):
    paths = []
    for name, data in list(files.gpus.items()) + list(files.stacks.items()):
        for key, text in data.get("sources", {}).items():
            if text.startswith("fitted") and isinstance(data.get(key), (int, float)):
                paths.append(f"{name}/{key}")
    return paths


def limits(path):
    return (0.0, 1.0) if re.search("overlap_frac|exposed_frac|_clock_frac|graph_launch", path) else (0.0, 1e9)


def descend(files, score, paths, rounds):
    start = {p: files.get(p) for p in paths}

    def prior():
        return PRIOR * sum(math.log(max(files.get(p), 1e-12) / max(start[p], 1e-12)) ** 2
                           for p in paths) / 10

    best = score.loss(files) + prior()
    print(f"start {best:.5f}")
    step = {p: 0.08 for p in paths}
    for _ in range(rounds):
        for p in paths:
            old, moved = files.get(p), False
            for factor in (1 + step[p], 1 / (1 + step[p])):
                low, high = limits(p)
                value = min(max(old * factor, low), high)
                files.set(p, value)
                now = score.loss(files) + prior()
                if now < best - 1e-6:
                    best, moved = now, True
                    break
                files.set(p, old)
            step[p] *= 1.4 if moved else 0.5
        print(f"{best:.5f} " + " ".join(f"{p}={files.get(p):.4g}" for p in paths), flush=True)


def put_back(files, paths):
    """Changes numbers in the text of the files, which keeps their layout."""
    for p in paths:
        name, key = p.split("/")[0], p.split("/")[-1]
        folder = "stacks" if name in files.stacks else "topologies/gpus"
        path = os.path.join(folder, name + ".json")
        text = open(path).read()
        text, count = re.subn(rf'("{key}": )[-+.0-9e]+', rf"\g<1>{files.get(p):.4g}", text, count=1)
        if count != 1:
            raise SystemExit(f"{path}: no number {key}")
        open(path, "w").write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("tables", nargs="+")
    parser.add_argument("-p", "--parameter", action="append", help="NAME/KEY; default: all fitted")
    parser.add_argument("--source", help="only rows whose source contains this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="change the files")
    args = parser.parse_args()
    files = Files()
    paths = args.parameter or fitted(files)
    descend(files, Score(args.program, args.tables, args.source), paths, args.rounds)
    if args.write:
        put_back(files, paths)


if __name__ == "__main__":
    main()
