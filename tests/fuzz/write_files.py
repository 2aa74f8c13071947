# SPDX-License-Identifier: Apache-2.0
"""write_files.py FOLDER: the first corpus of the target `files`: .npy files, entries of the
kernels' cache without their digest, a cubin's ELF, traces of requests, a PTX text."""
import pathlib
import struct
import sys


def npy(descr, shape, data, version=1):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + size + header + data


def cache_entry(name, compiler, thing, counted_in=b"", counts=b""):
    texts = (name, compiler, thing, counted_in, counts)
    numbers = [len(text) for text in texts] + [1024, 32, 0, 16, 640, 1]
    return b"CLEAVEO3" + struct.pack("<11q", *numbers) + b"".join(texts)


def elf():
    """As gpu_objects.cpp reads it: of the kernel "kernel", 32 registers and a frame of 16 bytes."""
    info = b"".join(struct.pack("<BBHII", 4, attribute, 8, 1, value)
                    for attribute, value in ((0x2F, 32), (0x11, 16)))
    strings = b"\0kernel\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0, 0, 0, 0, 0)
    parts = {b"": b"", b".nv.info": info, b".text.kernel": b"\x90" * 16, b".symtab": symbols,
             b".strtab": strings, b".nv.shared.kernel": bytes(8)}
    names = b"".join(name + b"\0" for name in [*parts, b".shstrtab"])
    parts[b".shstrtab"] = names
    body, headers = b"", b""
    for name, data in parts.items():
        at = names.index(name + b"\0") if name else 0
        headers += struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, 64 + len(body), len(data), 0, 0, 1, 0)
        body += data
    ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
    return ident + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64,
                               len(parts), len(parts) - 1) + body + headers


def main():
    folder = pathlib.Path(sys.argv[1])
    seeds = {
        "f32.npy": npy("<f4", "(2, 3)", bytes(24)),
        "i64.npy": npy("<i8", "(4,)", bytes(32), version=2),
        "scalar.npy": npy("|b1", "()", b"\1"),
        "empty.npy": npy("<f2", "(0, 7)", b"", version=3),
        "host.o": cache_entry(b"norm.3f2a", b"LLVM 19", b"\x90" * 64),
        "gpu.o": cache_entry(b"gemm.1", b"NVRTC 13.0", elf(), b"ptx", b"mma.sync.m16n8k16 32\n"),
        "cubin": elf(),
        "trace.csv": b"arrival_ms,prompt_tokens,output_tokens\n0,128,32\n12.5,64,8\r\n1e3,1,1\n",
        "rate": b"rate=2.5,prompt=128,output=32,requests=16,seed=7",
        "ptx": b".visible .entry kernel(\nmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {};\n"
               b"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {};\n",
        "log": b"ptxas info : 16 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads\n",
        "stat": b"cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10\n",
    }
    for name, data in seeds.items():
        (folder / name).write_bytes(data)


main()
