"""penstock probe: without a driver, and with one of the tests' own (tests/gpu/fake_libcuda.c)."""
import json
import os
import subprocess
import sys
import tempfile

from harness import BUILD, PENSTOCK, main, test  # noqa: E402

FAKE = os.path.join(BUILD, "tests", "gpu", "fake")


def probe(fake=True, lacks="", path=None, root="/nonexistent"):
    """What it says, and its exit code. There is no GPU for it but the fake one."""
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        env = dict(os.environ, FAKE_CUDA_DIR=folder, FAKE_CUDA_LACKS=lacks, PENSTOCK_PROBE_ROOT=root)
        if fake:
            env["LD_LIBRARY_PATH"] = FAKE
        if path:
            env["PATH"] = path
        done = subprocess.run([PENSTOCK, "probe"], env=env, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr, done.returncode


def answers(text):
    """{what: what it says}, costs joined to what they belong to."""
    found, last = {}, None
    for line in text.splitlines():
        what = line[:16].strip()
        if what:
            last = what
            found[what] = line[16:].strip()
        else:
            found[last] += " " + line[16:].strip()
    return found


@test
def all_is_there():
    text, code = probe()
    said = answers(text)
    assert code == 0, text
    assert said["driver"] == "CUDA 13.2", text
    assert said["cuda:0"] == "Fake GPU 0, 8.59 GB, sm_90, 132 multiprocessors", text
    for what in ("peer 0 to 1", "peer 1 to 0", "shared memory", "ipc memory", "ipc reopen", "ipc events",
                 "one address", "dma-buf"):
        assert said[what] == "yes", text
    assert said["drive registers"].startswith("no: not tried: no NVMe controller is bound to vfio-pci"), text


@test
def no_driver_is_told():
    if os.path.exists("/dev/nvidiactl"):
        return
    text, code = probe(fake=False)
    said = answers(text)
    assert code == 0 and said["driver"].startswith("no: ") and "costs: everything runs on the CPU" in said["driver"], text
    assert "ipc memory" not in said, text


@test
def each_absence_has_a_price():
    """Each call that does not work is named, with its price; the rest is still found out."""
    for lack, what, others in (
            ("cuIpcGetMemHandle", "ipc memory", ("ipc events", "shared memory")),
            ("cuIpcOpenMemHandle_v2", "ipc memory", ("ipc events", "shared memory")),
            ("true bytes", "ipc memory", ("ipc events", "shared memory")),
            ("cuIpcGetEventHandle", "ipc events", ("ipc memory", "ipc reopen")),
            ("cuIpcOpenEventHandle", "ipc events", ("ipc memory", "ipc reopen")),
            ("cuMemHostRegister_v2", "shared memory", ("ipc memory", "ipc events"))):
        text, code = probe(lacks=lack)
        said = answers(text)
        assert code == 0 and said[what].startswith("no: ") and "costs: " in said[what], (lack, text)
        if lack.startswith("cu"):
            assert "CUDA_ERROR_NOT_SUPPORTED" in said[what], (lack, text)
        for other in others:
            assert said[other] == "yes", (lack, text)


def bind(root, driver, registers=16384):
    """A machine with one NVMe controller."""
    folder = os.path.join(root, "sys/bus/pci/devices/0000:01:00.0")
    drivers = os.path.join(root, "sys/bus/pci/drivers", driver)
    os.makedirs(folder)
    os.makedirs(drivers)
    os.symlink(drivers, os.path.join(folder, "driver"))
    for name, text in (("class", "0x010802"), ("vendor", "0x144d"), ("device", "0xa80a")):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text + "\n")
    if registers:
        with open(os.path.join(folder, "resource0"), "wb") as f:
            f.truncate(registers)


@test
def a_drive_s_registers_are_tried():
    for driver, registers, lacks, what in (
            ("vfio-pci", 16384, "", "yes"),
            ("nvme", 16384, "", "no: not tried: no NVMe controller is bound to vfio-pci"),
            ("vfio-pci", 0, "", "no: the registers of 0000:01:00.0 cannot be mapped: "),
            ("vfio-pci", 16384, "io memory", "no: registered(")):
        with tempfile.TemporaryDirectory(prefix="probe-") as root:
            bind(root, driver, registers)
            text, code = probe(root=root, lacks=lacks)
        said = answers(text)
        assert code == 0 and said["drive registers"].startswith(what), text
        assert said["shared memory"] == "yes", text
        assert what == "yes" or "costs: kernels cannot ring" in said["drive registers"], text
    said = answers(probe(lacks="one address, dma-buf")[0])
    assert said["one address"].startswith("no: ") and said["dma-buf"].startswith("no: "), said


@test
def driver_without_devices():
    said = answers(probe(lacks="devices")[0])
    assert said["devices"].startswith("no: the driver reports no device"), said
    said = answers(probe(lacks="cuInit")[0])
    assert said["driver"].startswith("no: init(0): CUDA_ERROR_NOT_SUPPORTED"), said


@test
def driver_that_dies():
    text, code = probe(lacks="life")
    assert code == 1 and "the process that opens the shared objects died" in text, text


@test
def routes_are_tried_on_virtual_gpus():
    """The runtime's own way to memory and events between processes: real where a GPU is, virtual here."""
    os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
    try:
        text, code = probe(fake=False)
        said = answers(text)
        assert code == 0 and said["routes"] == "virtual GPU 0", text
        for what in ("route pinned", "route memory", "route reopen", "route events"):
            assert said[what] == "yes", text
        os.environ["PENSTOCK_VIRTUAL_GPUS"] = "0"
        said = answers(probe(fake=False)[0])
        assert said["routes"].startswith("no: ") and "costs: no stage can be placed on a GPU" in said["routes"], said
    finally:
        del os.environ["PENSTOCK_CUDA"]
        os.environ.pop("PENSTOCK_VIRTUAL_GPUS", None)


@test
def mps_is_found_in_path():
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        said = answers(probe(path=folder)[0])
        assert said["mps"].startswith("no: "), said
        binary = os.path.join(folder, "nvidia-cuda-mps-control")
        with open(binary, "w") as f:
            f.write("#!/bin/sh\n")
        os.chmod(binary, 0o755)
        said = answers(probe(path="/nonexistent::" + folder)[0])
        assert said["mps"] == binary, said


def topology(*args, **env):
    done = subprocess.run([PENSTOCK, "probe", *args], env=dict(os.environ, LD_LIBRARY_PATH=FAKE, **env), capture_output=True, text=True,
                          timeout=60)
    return done.stdout, done.stderr, done.returncode


@test
def gpus_and_their_links_are_found():
    text, _, code = topology("--topology")
    assert code == 0, text
    machine = json.loads(text)
    assert [d["links"] for d in machine["devices"]] == [[1], [0], [3], [2]], text
    assert machine["devices"][2]["model"] == "Fake GPU 2" and machine["devices"][2]["memory_bytes"] == 1 << 34, text
    assert sum(s["cores"] for s in machine["sockets"]) >= 1 and machine["sockets"][0]["memory_bytes"] > 1 << 28, text
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(text)
        f.flush()
        assert topology("--topology", "--machine", f.name)[0] == text
    said = topology("--cliques")[0]
    assert said == "this: 4 devices, 2 cliques\nclique 0, 2 devices: 0 1\nclique 1, 2 devices: 2 3\n", said


@test
def a_machine_without_gpus_says_why():
    text, why, code = topology("--topology", FAKE_NVML_FAILS="init")
    assert code == 0 and json.loads(text)["devices"] == [] and "NVML does not start: error 999" in why, why
    text, why, code = topology("--topology", FAKE_NVML_GPUS="0")
    assert code == 0 and json.loads(text)["devices"] == [] and "NVML finds none" in why, why
    text, why, code = topology("--topology", FAKE_NVML_FAILS="memory")
    assert code == 1 and "cuda:0: NVML, NVIDIA's management library, cannot describe a GPU: error 999" in why, why
    text, why, code = topology("--topology", FAKE_NVML_GPUS="65")
    assert code != 0 and "this machine has 65 GPUs; expected at most 64" in why, why


@test
def machine_files_are_checked():
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write('{"machine": 1, "name": "m", "sockets": [{"cores": 1, "memory_bytes": 1}], "devices": ['
                '{"socket": 0, "memory_bytes": 1, "links": [1]}, {"socket": 0, "memory_bytes": 1, "links": []}]}')
        f.flush()
        _, why, code = topology("--cliques", "--machine", f.name)
    assert code == 2 and "device 0 lists device 1, but not the reverse" in why, (code, why)
    for args in (["--machine", "x.json"], ["--topology", "--cliques"]):
        assert topology(*args)[2] == 2, args


if __name__ == "__main__":
    main()
