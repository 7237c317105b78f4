#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What nvcc made of the kernels: audit.py FAT_BINARY... prints the registers of each with its wide
loads and stores, and fails if one uses memory of its own, as it does when it spills, fuses a
multiplication with an addition, or has no wide loads and stores. PTX and machine code are both
read. Fat binaries are read as they are, uncompressed; no tool of CUDA is needed."""
import collections
import re
import struct
import sys

ARCHITECTURES = {80, 90}
PTX, ELF = 1, 2
# Attributes of .nv.info, as cuobjdump --dump-elf calls them: two words, the kernel and the value.
FRAME_SIZE, MIN_STACK_SIZE, REGISTERS = 0x11, 0x12, 0x2f
# An instruction has 16 bytes. Its low nine bits say what it does, bits 73 to 75 how wide it is.
# Nobody has published that: test_audit.py holds it against what nvcc makes of each width, and
# against nvdisasm where that is installed.
OPERATIONS = {0x181: "LDG", 0x186: "STG", 0x183: "LDL", 0x187: "STL"}
WIDTHS = (8, 8, 16, 16, 32, 64, 128, 0)
# The accumulators of these are twice as wide as their elements, and fill the registers.
HALF_AS_WIDE = re.compile(r"c10d_fold_\w+_b?f16")


def entries(image):
    """Kind, architecture and bytes of each part of a fat binary."""
    magic, _, at, size = struct.unpack_from("<IHHQ", image)
    if magic != 0xba55ed50:
        raise ValueError("no fat binary")
    end = at + size
    while at < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", image, at)
        yield kind, struct.unpack_from("<I", image, at + 28)[0], image[at + header:][:size]
        at += header + size


def sections(elf):
    offset, = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + i * size) for i in range(count)]

    def text(table, at):
        start = headers[table][4] + at
        return elf[start:elf.index(b"\0", start)].decode()
    return {text(names, h[0]): elf[h[4]:h[4] + h[5]] for h in headers}, text, headers


def accesses(code):
    """The loads and stores in machine code, global and local: how often each, by name and bits."""
    return collections.Counter(
        (OPERATIONS[low & 0x1ff], WIDTHS[high >> 9 & 7])
        for low, high in struct.iter_unpack("<QQ", code) if low & 0x1ff in OPERATIONS)


def codes(elf):
    """By function: its machine code."""
    prefix = ".text."
    return {name.removeprefix(prefix): code for name, code in sections(elf)[0].items()
            if name.startswith(prefix)}


def attributes(elf):
    """By kernel, by attribute: the value."""
    by_name, text, headers = sections(elf)
    symbols, info, found, at = by_name[".symtab"], by_name[".nv.info"], {}, 0
    strings = next(h[6] for h in headers if h[1] == 2)
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != 4:
            continue  # the value is in the head
        if attribute in (FRAME_SIZE, MIN_STACK_SIZE, REGISTERS):
            symbol, value = struct.unpack_from("<II", info, at)
            name = text(strings, struct.unpack_from("<I", symbols, symbol * 24)[0])
            found.setdefault(name, {})[attribute] = value
        at += size
    return {name: values for name, values in found.items() if f".text.{name}" in by_name}


def bits_of(name):
    return 64 if HALF_AS_WIDE.fullmatch(name) else 128


def check_ptx(name, text):
    words = re.findall(r"^\s*(?:@%p\d+ )?(\.?[a-z][\w.]*)", text, re.M)
    wide = f"v{bits_of(name) // 32}"
    for access in ("ld", "st"):
        if not any(re.fullmatch(rf"{access}\.global(\.\w+)?\.{wide}\.[a-z]32", w) for w in words):
            yield f"no {access}.global of {wide}"
    for word in words:
        if word.startswith((".local", "ld.local", "st.local", "fma", "mad.rn")):
            yield word


def check_elf(part):
    """Registers, loads and stores as text, by kernel; and what is wrong."""
    texts, faults, code_of = {}, [], codes(part)
    for name, code in code_of.items():
        faults += [f"{name}: {operation} of {bits} bits, memory of its own"
                   for operation, bits in accesses(code) if operation in ("LDL", "STL")]
    for name, values in attributes(part).items():
        if values.get(FRAME_SIZE, 0) or values.get(MIN_STACK_SIZE, 0):
            faults.append(f"{name}: memory of its own")
        found, bits = accesses(code_of[name]), bits_of(name)
        faults += [f"{name}: no {operation} of {bits} bits" for operation in ("LDG", "STG")
                   if not found[operation, bits]]
        texts[name] = (f"{values[REGISTERS]} registers, {found['LDG', bits]} loads and "
                       f"{found['STG', bits]} stores of {bits} bits")
    return texts, faults


def check(path, image):
    kernels, faults = {}, []
    for kind, architecture, part in entries(image):
        if kind == ELF:
            texts, wrong = check_elf(part)
            faults += [f"sm_{architecture}, {fault}" for fault in wrong]
            for name, text in texts.items():
                kernels.setdefault(name, {})[architecture] = text
        elif kind == PTX:
            functions = re.split(r"\.visible \.entry ", part.decode().rstrip("\0"))[1:]
            for function in functions:
                name = re.match(r"\w+", function)[0]
                kernels.setdefault(name, {})["PTX"] = architecture
                faults += [f"PTX, {name}: {fault}" for fault in check_ptx(name, function)]
    for name, made in sorted(kernels.items()):
        print(f"{name}: " + "; ".join(f"sm_{a} {made.get(a)}" for a in sorted(ARCHITECTURES)))
        if set(made) != ARCHITECTURES | {"PTX"} or made["PTX"] != 90:
            faults.append(f"{name}: is not there for all of {ARCHITECTURES} and as PTX for 90")
    if not kernels:
        faults.append("no kernels")
    return [f"{path}: {fault}" for fault in faults]


def main(paths):
    faults = []
    for path in paths:
        with open(path, "rb") as file:
            faults += check(path, file.read())
    print("\n".join(faults))
    return 1 if faults or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
