"""What the figures of graph embeddings share: generated knowledge graphs, the pipelines' settings, and times from reports."""
import array
import os
import random

from .lab import median, shipped

SSD = "p5510"
SSD_BYTES_PER_S = 750_000 * 4096  # the preset's
PIECE = 65536
STRUCTURED = 0.9  # of the edges: the relation and the source's community give the target's community
SKEW = 3  # a community's vertices are chosen with density falling from the first one on
HELD_OUT = 0.01  # of the edges, for validation, and as many for the test


def write_graph(lab, vertices, edges):
    """A function that writes a knowledge graph in Marius's layout."""
    relations, communities = lab.size["relations"], lab.size["communities"]

    def member(rng, community):
        return community + communities * int(vertices // communities * rng.random() ** SKEW)

    def write(directory):
        rng = random.Random(1)
        triples = array.array("i")
        for _ in range(edges):
            source, relation = member(rng, rng.randrange(communities)), rng.randrange(relations)
            structured = rng.random() < STRUCTURED
            community = (source % communities + 1 + relation) % communities if structured else rng.randrange(communities)
            triples.extend((source, relation, member(rng, community)))
        held = 3 * max(1, round(HELD_OUT * edges))
        os.mkdir(os.path.join(directory, "edges"))
        for part, rows in (("validation", triples[:held]), ("test", triples[held:2 * held]), ("train", triples[2 * held:])):
            with open(os.path.join(directory, "edges", part + "_edges.bin"), "wb") as f:
                rows.tofile(f)
        with open(os.path.join(directory, "dataset.yaml"), "w", encoding="utf-8") as f:
            f.write(f"num_edges: {len(triples) // 3 - 2 * held // 3}\nnum_nodes: {vertices}\nnum_relations: {relations}\n"
                    f"num_train: {len(triples) // 3 - 2 * held // 3}\nnum_valid: {held // 3}\nnum_test: {held // 3}\n")
    return write


def graph(lab, density, vertices):
    """The dataset with so many vertices, and edges a vertex."""
    edges = round(density * vertices)
    return lab.imported(f"graph-{vertices}-{edges}", "marius", write_graph(lab, vertices, edges))


def drives(dilate):
    """Parameters of the disk stage: an emulated drive. dilate None: as fast as possible."""
    speed = {"preset": SSD, "dilate": dilate} if dilate is not None else {}
    return {"backend": "emulated", "arrays": "embeddings", **speed}


def training(lab, **more):
    """Parameters that both pipelines have."""
    s = lab.size
    return {"batch": s["batch"], "chunks": 1, "negatives": s["negatives"], "dim": s["dim"], "threads": 1, "evaluate": "never", **more}


def marius(lab, density, partitions=1, buffer=2, dilate=None, order="beta", staleness=16, epochs=None, fields=None, vertices=None, store_core=None, **more):
    """The report of a run of marius.json. vertices: None for the size's; store_core: None for the drive's; `more`: parameters of the store."""
    cores = {"edges": lab.drive_core, "store": lab.drive_core if store_core is None else store_core, "embedder": lab.train_core}
    fields = {"links[1].slots": staleness, **(fields or {})}
    common = training(lab)
    store = {"evaluate": common.pop("evaluate"), **more}
    pipeline = [shipped("marius.json")]
    stages = {"store": store}
    if partitions > 1:
        pipeline += ["--with", shipped("settings", "marius", "partitions.json")]
        cores["disk"] = lab.drive_core
        stages["disk"] = drives(dilate)
        common |= {"partitions": partitions, "buffer": buffer, "piece": str(PIECE), "order": order, "between_exchanges": False}
    settings = lab.settings(cores, stages, {**common, "staleness": staleness}, fields)
    return lab.run(pipeline, graph(lab, density, vertices or lab.size["vertices"]), epochs or lab.size["epochs"], settings)


def legend(lab, density, partitions, buffer, dilate=None, epochs=None, **more):
    """The report of a run of legend.json. `more`: parameters of the stage legend."""
    cores = {"legend": lab.train_core, "disk": lab.drive_core}
    stages = {"legend": training(lab, partitions=partitions, buffer=buffer, **more), "disk": drives(dilate)}
    return lab.run([shipped("legend.json")], graph(lab, density, lab.size["vertices"]), epochs or lab.size["epochs"], lab.settings(cores, stages, {"piece": str(PIECE)}, {}))


def epoch_s(report):
    """The median of the epochs but the first, in which partitions are generated in place of being read."""
    return median([e["seconds"] for e in report["epochs"][1:]])


def epoch_bytes(report, partitions, buffer):
    """Bytes that an epoch but the first reads and writes."""
    x = report["exchange"]
    each = x["swaps"] // len(report["epochs"]) + buffer
    assert x["written_bytes"] == len(report["epochs"]) * each * x["partition_bytes"], x
    return 2 * each * x["partition_bytes"]


def io_s(report, partitions, buffer, dilate):
    """Seconds that the drive needs for the bytes of an epoch."""
    return epoch_bytes(report, partitions, buffer) * dilate / SSD_BYTES_PER_S


def dilation(report, partitions, buffer, seconds):
    """How many times slower the drive must be to need so many seconds for an epoch."""
    return max(1.0, round(seconds * SSD_BYTES_PER_S / epoch_bytes(report, partitions, buffer), 2))
