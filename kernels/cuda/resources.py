#!/usr/bin/python3
"""resources.py LOG...: what each CUDA kernel takes of a multiprocessor, from what nvcc said when it was built:
registers of a thread, shared bytes of a block, stack and spilled bytes of a thread. `make resources` writes
resources.txt with it; tests/kernel/test_resources.py compares."""
import re
import subprocess
import sys

ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\S+)' for '(?P<arch>sm_\d+)'.*?(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers"
    r"(?P<rest>[^\n]*)", re.S)


def plain(names):
    """Names as a reader knows them: no namespaces, parameters or policies; CUB's without their types."""
    shown = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    out = []
    for name in shown.splitlines():
        name = re.sub(r"\(anonymous namespace\)::", "", name)
        name = re.sub(r"^void ", "", name)
        if name.startswith("cub::"):
            out.append("cub::" + re.search(r"(\w+)<", re.sub(r"cub::\w+::", "", name)).group(1))
            continue
        depth, end = 0, len(name)
        for i, c in enumerate(name):
            depth += (c == "<") - (c == ">")
            if c == "(" and depth == 0:
                end = i
                break
        name = re.sub(r"\((?:int|bool)\)", "", name[:end].strip())
        for long, short in (("unsigned int", "u32"), ("unsigned char", "u8"), ("long", "i64"), ("int", "i32")):
            name = re.sub(r"\b%s\b" % long, short, name)
        out.append(name.replace(" ", ""))
    return out


def kernels(logs):
    """{(arch, file, kernel): (registers, shared, stack, spills)}; of several of one name the largest of each."""
    found = {}
    for log in logs:
        entries = list(ENTRY.finditer(open(log).read()))
        for e, name in zip(entries, plain([e["name"] for e in entries])):
            shared = re.search(r"(\d+) bytes smem", e["rest"])
            took = (int(e["registers"]), int(shared.group(1)) if shared else 0, int(e["stack"]),
                    int(e["stores"]) + int(e["loads"]))
            key = (e["arch"], re.sub(r".*kernels/cuda/|\.nvcc\.log", "", log), name)
            found[key] = tuple(map(max, zip(found.get(key, took), took)))
    return found


def read(path):
    """The compiler's version, and what kernels() gave then."""
    version, found = "", {}
    for line in open(path):
        if line.startswith("#"):
            version = line[1:].strip() if "release" in line else version
            continue
        arch, file, name, *took = line.split()
        found[arch, file, name] = tuple(map(int, took))
    return version, found


def compiler(nvcc):
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release .*", text).group(0)


if __name__ == "__main__":
    print("# written by `make resources`; registers, shared bytes, stack bytes, spilled bytes")
    print("# " + compiler(sys.argv[1]))
    for key, took in sorted(kernels(sys.argv[2:]).items()):
        print("%-6s %-10s %-48s %4d %6d %4d %4d" % (*key, *took))
