"""What the compiler makes of the kernels that a bus or memory bounds: the width of their accesses, that loads come before
stores, and that polling kernels sleep. Skipped where there is no nvcc."""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ACCESS = re.compile(r"^\s*(?:@!?%\w+ )?((?:ld|st|nanosleep)\.\S+)", re.M)
nvcc = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
if not nvcc:
    print("# SKIP no nvcc")
    sys.exit(77)


def kernels(file):
    """{mangled name: its loads, stores and sleeps, in their order, without loads of parameters}"""
    argv = [nvcc, "-std=c++17", "-O3", "--fmad=false", "-I.", "-ptx", "-arch=compute_90", "-o", "-", f"kernels/cuda/{file}.cu"]
    text = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return {part.split("(")[0]: [a for a in ACCESS.findall(part) if ".param" not in a] for part in text.split(".entry ")[1:]}


def of(found, *words):
    names = [name for name in found if all(word in name for word in words)]
    assert len(names) == 1, (words, names)
    return found[names[0]]


def before_the_first_store(accesses):
    stores = [i for i, a in enumerate(accesses) if a.startswith("st.")]
    return sum(a.startswith("ld.global.f32") for a in accesses[:stores[0]])


queues, table, gather, fused = (kernels(file) for file in ("nvme/queues", "nvme/table", "gather", "fused"))
complete = of(queues, "complete_each")
tests = [
    ("a command is written in four stores of 16 bytes", all(of(queues, k).count("st.v4.u32") == 4 for k in ("write_batch", "submit_async", "run_sync"))),
    ("a completion is read once", not [a for a in complete if a.startswith(("ld.v2.u16", "ld.v4"))] and complete.count("ld.acquire.sys.u32") == 3),
    ("a poll that found nothing sleeps", "nanosleep.u32" in complete),
    ("a request is read in two loads of 16 bytes", of(table, "look").count("ld.volatile.v2.u64") == 2),
    ("rows without gaps are copied in pieces of 16 bytes", of(gather, "flatI5uint4").count("st.global.v4.u32") >= 4),
    ("four elements are loaded before one is stored",
     all(before_the_first_store(of(fused, "pst_cu_each_kernel", k)) >= n
         for k, n in (("add_element", 8), ("12elu_backward", 8)))),
    ("four rows of a column are loaded before one is stored", before_the_first_store(of(fused, "pst_cu_column_parts", "12elu_backward")) >= 8),
    ("totals of columns have loads in flight", before_the_first_store([a.replace("f64", "f32") for a in of(fused, "pst_cu_column_totals")]) >= 8),
]
for i, (name, good) in enumerate(tests):
    print(f"{'ok' if good else 'not ok'} {i + 1} - {name}")
sys.exit(0 if all(good for _, good in tests) else 1)
