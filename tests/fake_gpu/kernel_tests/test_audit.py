#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whether audit.py finds what is wrong: test_audit.py NVCC, or test_audit.py NVCC NVDISASM
FAT_BINARY... to compare how it reads machine code with how nvdisasm does."""
import collections
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import audit

NVCC, NVDISASM, IMAGES = sys.argv[1], sys.argv[2:3], sys.argv[3:]
# Each kernel is wrong in one way, but for the first, and those of one width.
SOURCE = """
template <class T>
__device__ void copy(const T* from, T* to, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
}
extern "C" __global__ void right(const int4* a, int4* b, int n) { copy(a, b, n); }
extern "C" __global__ void bits_8(const char* a, char* b, int n) { copy(a, b, n); }
extern "C" __global__ void bits_16(const short* a, short* b, int n) { copy(a, b, n); }
extern "C" __global__ void bits_32(const int* a, int* b, int n) { copy(a, b, n); }
extern "C" __global__ void bits_64(const int2* a, int2* b, int n) { copy(a, b, n); }
extern "C" __global__ void bits_128(const int4* a, int4* b, int n) { copy(a, b, n); }
extern "C" __global__ void narrow_loads(const int* a, int4* b) {
  b[threadIdx.x] = make_int4(a[threadIdx.x], 1, 2, 3);
}
extern "C" __global__ void narrow_stores(const int4* a, int* b) {
  const int4 all = a[threadIdx.x];
  b[threadIdx.x] = all.x + all.y + all.z + all.w;
}
extern "C" __global__ void array_of_its_own(const int4* a, int4* b, int n) {
  int4 all[32];
  for (int i = 0; i < 32; ++i) all[i] = a[i];
  for (int i = 0; i < n; ++i) b[i] = all[(i * 7) % 32];
}
// It has 32 registers.
extern "C" __global__ void __launch_bounds__(1024, 2) spills(const int4* a, int4* b, int n) {
  int4 all[24];
#pragma unroll
  for (int i = 0; i < 24; ++i) all[i] = a[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 24; ++i) {
    int4 sum = all[i];
    for (int j = 0; j < n; ++j) sum.x = sum.x * all[(i + 1) % 24].y + all[(i + 5) % 24].z;
    b[i * 1024 + threadIdx.x] = sum;
  }
}
"""
ARCHITECTURES = [word for code in ("compute_80,code=sm_80", "compute_90,code=sm_90",
                                   "compute_90,code=compute_90")
                 for word in ("-gencode", f"arch={code}")]


def compiled():
    with tempfile.TemporaryDirectory() as folder:
        source, image = Path(folder, "kernels.cu"), Path(folder, "kernels.fatbin")
        source.write_text(SOURCE, encoding="utf-8")
        subprocess.run([NVCC, "--fatbin", "--no-compress", "-O3", *ARCHITECTURES, "-o", image,
                        source], check=True)
        return image.read_bytes()


def elfs(image):
    return [part for kind, _, part in audit.entries(image) if kind == audit.ELF]


class Audit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.image = compiled()
        with open(os.devnull, "w", encoding="utf-8") as none, contextlib.redirect_stdout(none):
            cls.faults = audit.check("kernels", cls.image)

    def faults_of(self, kernel):
        return [fault.removeprefix("kernels: ").replace(f"{kernel}: ", "")
                for fault in self.faults if f" {kernel}: " in fault]

    def test_one_that_is_right(self):
        self.assertEqual(self.faults_of("right"), [])

    def test_narrow_loads(self):
        self.assertCountEqual(self.faults_of("narrow_loads"),
                              ["sm_80, no LDG of 128 bits", "sm_90, no LDG of 128 bits",
                               "PTX, no ld.global of v4"])

    def test_narrow_stores(self):
        self.assertCountEqual(self.faults_of("narrow_stores"),
                              ["sm_80, no STG of 128 bits", "sm_90, no STG of 128 bits",
                               "PTX, no st.global of v4"])

    # Nothing of a spill is in the PTX.
    def test_a_spill(self):
        faults = self.faults_of("spills")
        for architecture in ("sm_80", "sm_90"):
            for operation in ("LDL", "STL"):
                self.assertRegex("\n".join(faults), rf"{architecture}, {operation} of \d+ bits")
        self.assertEqual([fault for fault in faults if "memory of its own" not in fault], [])

    def test_an_array_of_its_own(self):
        faults = self.faults_of("array_of_its_own")
        for fault in ("sm_80, LDL of 128 bits, memory of its own", "sm_90, memory of its own",
                      "PTX, .local"):
            self.assertIn(fault, faults)

    # What nvcc was told to make holds the decoder.
    def test_each_width(self):
        for elf in elfs(self.image):
            codes = audit.codes(elf)
            for bits in (8, 16, 32, 64, 128):
                self.assertEqual(set(audit.accesses(codes[f"bits_{bits}"])),
                                 {("LDG", bits), ("STG", bits)})


class Disassembler(unittest.TestCase):
    @staticmethod
    def read(elf):
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(elf)
            file.flush()
            text = subprocess.run([*NVDISASM, "-c", file.name], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout
        found = collections.defaultdict(collections.Counter)
        for line in text.splitlines():
            if section := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
                of_function = found[section[1]]
            code = re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@\S+\s+)?(LDG|STG|LDL|STL)((?:\.\w+)*)", line)
            if code:
                bits = re.findall(r"\.[US]?(8|16|64|128)\b", code[2])
                of_function[code[1], int((bits or [32])[0])] += 1
        return found

    def test_it_reads_the_same(self):
        images = [compiled(), *(Path(image).read_bytes() for image in IMAGES)]
        for elf in (elf for image in images for elf in elfs(image)):
            expected = self.read(elf)
            self.assertTrue(expected)
            self.assertEqual({name: audit.accesses(code)
                              for name, code in audit.codes(elf).items()}, dict(expected))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "Disassembler" if NVDISASM else "Audit"])
