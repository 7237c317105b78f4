#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""abi_test.py must find what changes: test_abi.py SOURCE CC LIBRARY. Each case is one change of the
headers that a compiled program would not survive."""
import contextlib
import io
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import abi_test

CHANGES = {
    "a type of an argument": ("ops.h", "int32_t peer, uint32_t tag", "int64_t peer, uint32_t tag"),
    "an argument": ("group.h", "c10d_bytes* text)", "c10d_bytes* text, int32_t more)"),
    "a type that is returned": ("store.h", "uint16_t c10d_store_port", "int32_t c10d_store_port"),
    "the number of a constant": ("types.h", "C10D_MAX = 4", "C10D_MAX = 9"),
    "a type of a field": ("types.h", "  int64_t timeout_ns;", "  int32_t timeout_ns;"),
    "the order of fields": ("error.h", "  int32_t rank;", "  int32_t before;\n  int32_t rank;"),
    "the arguments of a callback": ("work.h", "(void* arg, const c10d_failure* failure)",
                                    "(const c10d_failure* failure)"),
    "a function that the library lacks": ("work.h", "c10d_batch_free(", "c10d_batch_drop("),
}


class Abi(unittest.TestCase):
    def status(self, source):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            return abi_test.main(["abi_test.py", str(source), *ARGUMENTS[1:]]), out.getvalue()

    def test_each_change_is_found(self):
        for name, (header, old, new) in CHANGES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                shutil.copytree(Path(ARGUMENTS[0]) / "include", Path(folder) / "include")
                path = Path(folder) / "include/c10d/c" / header
                text = path.read_text()
                self.assertIn(old, text)
                path.write_text(text.replace(old, new, 1))
                status, out = self.status(folder)
                self.assertEqual(status, 1, out)
                self.assertIn("FAILED", out)

    def test_nothing_changed(self):
        status, out = self.status(ARGUMENTS[0])
        self.assertEqual(status, 0, out)


if __name__ == "__main__":
    ARGUMENTS = sys.argv[1:4]
    if shutil.which("abidiff") is None:
        print("skipped: no abidiff: apt-get install abigail-tools")
        sys.exit(abi_test.SKIPPED)
    unittest.main(argv=sys.argv[:1])
