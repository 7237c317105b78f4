#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The ladder must see runs that do not resume from their checkpoint: ladder_test.py PROGRAMS

Each fault is a launcher in c10d-run's place: where a run is to resume, it breaks that, and starts
the training program all the same.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LADDER = Path(__file__).with_name("ladder.py")
DIGEST = "(?!{wanted})[0-9a-f]{{16}}\n"  # of other weights
PROGRAMS = None
RESUMED = {"train_ddp", "train_fsdp", "train_pipeline"}


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def without_position(manifest, _):
    manifest["cursor"] = 0


def without(prefix):
    """Zeros instead of the tensors whose names begin so."""
    def edit(manifest, checkpoint):
        for tensor in manifest["tensors"]:
            for part in tensor["parts"] if tensor["name"].startswith(prefix) else ():
                zeros = bytes(4 * part["count"])
                with (checkpoint / part["file"]).open("r+b") as file:
                    file.seek(part["begin"])
                    file.write(zeros)
                part["crc32c"] = crc32c(zeros)
    return edit


def load(edit):
    """A load of less than was saved: the checkpoint is changed as docs/checkpoint.md has it."""
    def fault(line, checkpoint):
        path = checkpoint / "manifest.json"
        manifest = json.loads(path.read_text())
        del manifest["crc32c"]
        edit(manifest, checkpoint)
        body = json.dumps(manifest)[:-1]
        path.write_text(f'{body},\n"crc32c":"{crc32c(body.encode()):08x}"}}\n')
        return line
    return fault


def as_meant(line, _):
    return line


def start_again(line, _):
    at = line.index("--checkpoint")
    return line[:at] + line[at + 2:]


def start_again_and_deny_it(line, checkpoint):
    print(f"resumes from {checkpoint} after step {checkpoint.name.split('-')[-1]}", flush=True)
    return start_again(line, checkpoint)


FAULTS = {  # and how the ladder tells of each
    "none": (as_meant, ""),
    "the checkpoint is ignored": (start_again, "does not say 'resumes from "),
    "the checkpoint is ignored, and the line is printed": (
        start_again_and_deny_it, r"saved \S+-step-\d+ last, which resuming from \S+ is \S+\n"),
    "the sampler begins again": (load(without_position), DIGEST),
    "the optimizer begins again": (load(without("optimizer.")), DIGEST),
    "the weights are others": (load(without("model.")), DIGEST),
}


def launch(name, programs, line):
    """What is in c10d-run's place does this."""
    if "--checkpoint" in line:
        folder = Path(line[line.index("--checkpoint") + 1])
        if (folder / "latest").exists():
            line = FAULTS[name][0](line, folder / (folder / "latest").read_text().split()[0])
    os.execv(f"{programs}/c10d-run", ["c10d-run", *line])


class Ladder(unittest.TestCase):
    def ladder(self, fault):
        with tempfile.TemporaryDirectory(prefix="c10d-ladder-test-") as folder:
            for program in ("train_single", *RESUMED):
                Path(folder, program).symlink_to(PROGRAMS / program)
            launcher = Path(folder, "c10d-run")
            launcher.write_text(f"#!{sys.executable}\nimport sys\n"
                                f"sys.path[:0] = [{str(LADDER.parent)!r}]\n"
                                "sys.dont_write_bytecode = True\nimport ladder_test\n"
                                f"ladder_test.launch({fault!r}, {str(PROGRAMS)!r}, sys.argv[1:])\n")
            launcher.chmod(0o755)
            return subprocess.run(
                [sys.executable, "-B", LADDER, folder, "--model", "mlp", "--native",
                 "--only", f"killed, ({'|'.join(RESUMED)})"], timeout=300, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def test_each_fault_fails_every_run_that_goes_on_and_no_other(self):
        for fault, (_, why) in FAULTS.items():
            with self.subTest(fault):
                ended = self.ladder(fault)
                alone = re.search(r"^ok +mlp +one process +([0-9a-f]{16}) ", ended.stdout, re.M)
                self.assertIsNotNone(alone, ended.stdout)
                resumed = re.findall(r"^(ok  |FAIL) mlp .* killed, (\w+) .*\n(?=(.*\n))",
                                     ended.stdout, re.M)
                self.assertEqual({program for _, program, _ in resumed}, RESUMED, ended.stdout)
                self.assertEqual({state for state, *_ in resumed}, {"FAIL" if why else "ok  "})
                self.assertEqual(ended.returncode, 1 if why else 0, ended.stdout)
                for *_, told in resumed if why else ():
                    self.assertRegex(told, "^" + why.format(wanted=alone[1]))


if __name__ == "__main__":
    PROGRAMS = Path(sys.argv.pop(1)).resolve()
    unittest.main()
