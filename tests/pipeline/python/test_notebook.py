"""Batches in the kernel of a notebook, and reports as data frames. tools/install-deps --python installs what they need."""
from snake import *


@test
def in_a_notebook_s_kernel():
    need("jupyter_client, ipykernel, zmq, numpy")
    with Place() as p:
        code = f"""
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
said = []
cell = '''
import penstock
with penstock.batches({HYPERION!r}, {p.data!r}, epochs=1, batch=100) as loader:
    print(sum(mb.n[0] for mb in loader) == len(loader.dataset.train))
loader = penstock.batches({HYPERION!r}, {p.data!r}, epochs=1000000, batch=100)
for mb in loader:
    break
print(mb.epoch)
'''
reply = client.execute_interactive(cell, timeout=60, output_hook=lambda m: said.append(m["content"].get("text", "")))
print(reply["content"]["status"], "".join(said).split(), flush=True)
manager.shutdown_kernel(now=True)
"""
        out, err = user(p, code, TORCH_PYTHON).communicate(timeout=120)
        assert out == "ok ['True', '0']\n", (out, err)
        no_leftovers()


@test
def reports_as_frames():
    need("pandas, numpy")
    with Place() as p:
        process = user(p, """
report = penstock.Report(epochs=[{"epoch": 0, "loss": 2.0}, {"epoch": 1, "loss": 1.0}],
                         stages={"disk": {"busy_s": 1}, "trainer": {"busy_s": 2}}, io={"bytes": 3})
print(report.frame().loss.tolist(), report.frame("stages").busy_s["trainer"], report.frame("io").bytes["io"])
""", TORCH_PYTHON)
        out, err = process.communicate(timeout=60)
        assert out == "[2.0, 1.0] 2 3\n", err


if __name__ == "__main__":
    main()
