#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command on the stand-in GPU and reads what the judge wrote.

usage: judged.py COMMAND...

Exit status: that of the command; 1 if it is 0 and a process broke a rule, or came to its end with
something left. One that was killed, or that called _exit, may have something left.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def findings(report):
    for found in report["violations"]:
        yield f"{found['kind']}: {found['detail']} ({found['count']} times)"
    for what, count in report["left"].items() if report["end"] == "exit" else ():
        yield f"left at the end: {count} {what}"


def main(command):
    # Reports are written over and over: on a disk a small test waits seconds for that.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fake_gpu_", dir=memory) as folder:
        status = subprocess.run(command, env=dict(os.environ, FAKE_GPU_REPORTS=folder),
                                check=False).returncode
        paths = sorted(pathlib.Path(folder).glob("*.json"))
        reports = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    wrong = [f"process {report['pid']}: {text}" for report in reports for text in findings(report)]
    print("\n".join(wrong), file=sys.stderr)
    print(f"judged: {len(reports)} processes, {len(wrong)} findings", file=sys.stderr)
    return status or bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
