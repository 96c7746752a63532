"""Checks the one JSON document of `eyas demo --json`: every stage is there, counts add up, the target answers well. Usage: check-demo.py FILE"""

import json
import sys

with open(sys.argv[1]) as file:
    demo = json.load(file)

assert demo["schema"] == "eyas.demo/1", demo["schema"]
prepare, generate, answers = demo["prepare"], demo["generate"], demo["answers"]
assert prepare["read"] == prepare["loaded"] + prepare["rejected"], prepare
assert prepare["loaded"] >= 500, prepare
assert generate["answered"] + generate["failed"] + generate["pending"] == generate["admitted"] == prepare["loaded"], generate
assert generate["failed"] == 0 and generate["pending"] == 0, generate
assert answers["graded"] == generate["answered"], answers
share = answers["right"] / answers["graded"]
assert share > 0.8, f"only {share:.1%} of the answers are right"
print(f"demo: {generate['answered']} answers, {share:.1%} right, {demo['wall_s']:.1f} s")
