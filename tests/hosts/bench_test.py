#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""c10d-bench over two hosts: bench_test.py PROGRAMS bench, or mpi MPIRUN

The hosts are network namespaces, joined by a cable that the test lays. Exits with 77 where it may
not.
"""
import json
import re
import sys
from pathlib import Path

import test_bed

PROGRAMS, MPIRUN = None, None
QUICK = ["--launches", "1", "--blocks", "2", "--time", "0.02s"]


class Case(test_bed.TwoHosts):
    def bench(self, *words, hosts=None):
        """Ends when all ranks have."""
        run = self.c10d_run(PROGRAMS, hosts or self.hosts(), PROGRAMS / "c10d-bench", *words)
        run.end()
        return run

    def mpirun(self, *words):
        run = self.open_mpi(PROGRAMS, MPIRUN, self.hosts(), PROGRAMS / "c10d-bench", *words)
        run.end()
        return run

    def lines(self, *words, start=None, **how):
        """The records of a run that ends well."""
        path = self.folder / "run.jsonl"
        run = (start or self.bench)(*words, *QUICK, "--json", path, **how)
        self.assertEqual(run.process.returncode, 0, run.out + run.err)
        self.text = run.out
        return [json.loads(line) for line in path.read_text().splitlines()]


class Bench(Case):
    def test_explain_names_the_algorithm_between_hosts(self):
        explain = [PROGRAMS, self.hosts(), "--no-prefix", PROGRAMS / "c10d-bench", "explain"]
        for forced, taken in (("", "two_shot"), ("one_shot", "one_shot"),
                              ("halving", "two_shot")):
            run = self.c10d_run(*explain, "all_reduce", "32M", C10D_NATIVE_HOSTS_PLAN=forced)
            self.assertEqual(run.end(), 0, run.out + run.err)
            self.assertRegex(run.out, rf"(?m)^plan +{taken}{'  .C10D' if forced else '$'}")
            network = re.search(r"(?m)^network +(\d+) us and (\d+\.\d+) GB/s, as measured$",
                                run.out)
            self.assertLess(int(network[1]), 20_000)  # less than 10 us on an idle host
            self.assertGreater(float(network[2]), 0.01)
            self.assertEqual("names none that applies" in run.out, forced == "halving", run.out)
            self.assertIn("values     up to 1 of a host for each sum: 1 times its bytes\n", run.out)
        for words in (("broadcast", "1M"), ("all_reduce", "8")):
            run = self.c10d_run(*explain, *words)
            self.assertEqual(run.end(), 0, run.err)
            self.assertIn("one way", run.out)

    def test_explain_names_the_values_that_a_placement_costs(self):
        # Parts of the tree over 4 ranks that are on the second host: ranks 1, and 2 to 3.
        for dtype, times in (("f32", 2), ("f16", 4)):
            explain = self.bench("explain", "all_reduce", "32M", "--dtype", dtype,
                                 hosts=self.hosts(1, 3))
            self.assertIn(f"values     up to 2 of a host for each sum: {times} times its bytes; "
                          "one, where", explain.out)
            self.assertNotIn("for each sum of floats", explain.err)
        # Of 7, ranks 1, 2 to 3 and 4 to 6.
        explain = self.bench("explain", "all_reduce", "32M", hosts=self.hosts(1, 6))
        self.assertIn("a host sends up to 3 values for each sum of floats", explain.err)

    def test_gloo_and_its_raw_peer_are_compared_over_two_hosts(self):
        lines = self.lines("compare", "-B", "gloo,raw:gloo", "all_reduce", "all_gather", "barrier",
                           "-s", "12,240K", hosts=self.hosts(2, 1))
        self.assertEqual(lines[0]["launch_line"],
                         f"c10d-run -H {self.hosts(2, 1)} --agent '{self.agent()}'")
        cells = [line for line in lines if line["t"] == "cell"]
        for backend in ("gloo", "raw:gloo"):
            for op, sizes in {"all_reduce": {12, 245760}, "all_gather": {12, 245760},
                              "barrier": {0}}.items():
                self.assertEqual({cell["bytes"] for cell in cells
                                  if (cell["op"], cell["backend"]) == (op, backend)}, sizes)
        for cell in cells:
            self.assertEqual(cell["wrong"], 0)
            self.assertEqual(cell["placement"], "several_hosts")
            self.assertEqual(cell["skew_us"], {"in": None, "out": None})
            self.assertIsNone(cell["gbps"]["mem"])
            self.assertGreater(cell["cpu_us"], 1)
        reduced = [cell for cell in cells if cell["op"] == "all_reduce" and cell["bytes"] == 245760]
        for cell in reduced:  # 2 (n - 1) / n of 3 ranks
            self.assertAlmostEqual(cell["gbps"]["bus"] / cell["gbps"]["alg"], 4 / 3, 3)
            self.assertAlmostEqual(cell["gbps"]["net"] / cell["gbps"]["alg"], 1, 3)
        self.assertEqual(len({cell["hash"] for cell in reduced}), 1)
        environment = next(line for line in lines if line["t"] == "env")
        self.assertEqual([host["ranks"] for host in environment["hosts"]], [[0, 1], [2]])
        links = {(line["level"], line.get("streams")): line for line in lines
                 if line["t"] == "ceil"}
        self.assertEqual(set(links), {("round trip", None)} | {
            (way, streams) for way in ("one way", "both ways") for streams in (1, 2, 4)})
        for line in links.values():
            self.assertGreater(line["gbps"] or line["us"], 0)
        # What the link must carry of each host's S, at the best rate that it has both ways.
        link_us = 245760 * 1e-3 / max(links["both ways", n]["gbps"] for n in (1, 2, 4))
        table = self.text[self.text.index("all_reduce"):self.text.index("all_gather")]
        self.assertRegex(table, r" cpu us ")
        self.assertRegex(table, r" net ")
        row = re.search(r"^\[0\] +240 KiB +([0-9.]+) ", table, re.M)
        self.assertAlmostEqual(float(row[1]) / link_us, 1, 1)
        self.assertTrue(lines[-1]["complete"])
        self.assertNotIn("[2]", self.text)

    def test_without_names_native_is_taken(self):
        lines = self.lines("run", "-s", "8")
        self.assertEqual({line["backend"] for line in lines if line["t"] == "cell"}, {"native"})

    def test_ops_start_together_by_clocks_that_differ(self):
        self.set_the_clock()
        lines = self.lines("run", "-B", "gloo", "all_reduce", "-s", "8,16M", "--sync", "window")
        cells = [line for line in lines if line["t"] == "cell"]
        late = [cell for cell in cells if cell["bytes"] == 16 << 20 and cell["sync"] == "window"]
        self.assertTrue(late, "an op of some ms needs no better clocks than these")
        for cell in late:
            self.assertLessEqual(cell["clock_us"], 0.05 * cell["us"]["p50"])
            self.assertLess(cell["skew_us"]["in"], 1e6, "by whose clock?")
        for cell in cells:
            if cell["sync"] == "barrier":
                self.assertIsNone(cell["skew_us"]["in"])
                self.assertTrue(any(line.get("code") == "W024" for line in lines))
        self.assertIn("which are known to ", self.text)

    def test_clocks_that_are_known_too_badly_are_not_used(self):
        lines = self.lines("compare", "-B", "gloo,memcpy", "all_reduce", "-s", "8", "--sync",
                           "window")
        copies = [line for line in lines if line["t"] == "cell" and line["backend"] == "memcpy"]
        self.assertTrue(copies)
        for cell in copies:  # of less than a microsecond
            self.assertEqual(cell["sync"], "barrier")
            self.assertGreater(cell["clock_us"], 0.05 * cell["us"]["p50"])
        self.assertIn("memcpy all_reduce 8 B", next(line["text"] for line in lines
                                                    if line.get("code") == "W024"))


class Mpi(Case):
    def test_mpi_and_its_raw_peer_are_compared_over_two_hosts(self):
        columns = ("native", "mpi", "raw:mpi", "raw:gloo")
        lines = self.lines("compare", "-B", ",".join(columns), "all_reduce", "-s", "12,240K",
                           start=self.mpirun)
        cells = [line for line in lines if line["t"] == "cell"]
        for backend in columns:
            self.assertEqual({cell["bytes"] for cell in cells if cell["backend"] == backend},
                             {12, 245760})
        self.assertEqual({cell["wrong"] for cell in cells}, {0})
        self.assertEqual({cell["placement"] for cell in cells}, {"several_hosts"})
        variables = next(line for line in lines if line["t"] == "env")["vars"]
        self.assertEqual(variables["OMPI_MCA_btl_tcp_if_include"], self.SUBNET)


if __name__ == "__main__":
    PROGRAMS, MPIRUN = Path(sys.argv[1]).resolve(), sys.argv[-1]
    test_bed.run({"bench": Bench, "mpi": Mpi}[sys.argv[2]])
