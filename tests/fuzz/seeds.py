#!/usr/bin/python3
"""seeds.py DIR: makes a small corpus for each fuzz target in DIR/TARGET."""
import glob
import io
import json
import os
import struct
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def put(target, name, data):
    os.makedirs(os.path.join(sys.argv[1], target), exist_ok=True)
    with open(os.path.join(sys.argv[1], target, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def pipelines():
    with open(os.path.join(ROOT, "pipelines", "hyperion.json")) as f:
        shipped = f.read()
    put("pipeline", "shipped-hyperion.json", shipped)
    for path in glob.glob(os.path.join(ROOT, "pipelines", "settings", "*.json")):
        with open(path) as f:
            put("pipeline", "shipped-" + os.path.basename(path), shipped + "\n+\n" + f.read())
    chain = {"penstock": 1, "name": "t", "seed": 7, "epochs": 2, "params": {"n": 2},
             "stages": {"a": {"run": "source", "params": {"b": "64KiB", "e": "z", "l": [1, 2], "t": False}},
                        "m": {"run": "middle", "instances": 2, "place": {"device": "cpu:1", "cores": "0"}},
                        "s": {"run": "sink", "group": "g", "params": {"n": 3}}},
             "links": [{"from": "a.out", "to": "m.in", "slots": 9}, {"from": "m.out", "to": "s.in"}]}
    put("pipeline", "chain", json.dumps(chain))
    put("pipeline", "chain-set", json.dumps(chain) + "\n#stages.s.params.n=1")
    over = {"params": {"n": 4}, "stages": {"a": {"params": {"l": {"0": 5, "2": 7}}}, "new": 1}, "links": {"0": {"slots": 8}}}
    put("pipeline", "chain-over", json.dumps(chain) + "\n+\n" + json.dumps(over) + "\n#stages.s.params.n=1")
    chain["links"].append({"from": "a.out", "to": "s.in", "back": True})
    put("pipeline", "wrong", json.dumps(chain, indent=1) + "\n#links[0].slots=[1]")
    loop = {"penstock": 1, "stages": {"a": {"run": "source"}, "m": {"run": "middle"}, "k": {"run": "middle"},
                                      "o": {"run": "once"}, "p": {"run": "once"}},
            "links": [{"from": "a.out", "to": "m.in"}, {"from": "m.out", "to": "k.in"},
                      {"from": "k.out", "to": "m.in", "back": True}, {"from": "o.out", "to": "p.in"}]}
    put("pipeline", "loop", json.dumps(loop))
    put("pipeline", "twice", '{"penstock": 1, "penstock": 1, "stages": {"a": {"run": "../x"}}}')


def headers():
    def npy(descr, shape, data, version=1, order="False"):
        text = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}".ljust(117) + "\n"
        head = b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text))
        return struct.pack("<Q", len(head) + len(text) + data) + head + text.encode()
    put("npy", "f4", npy("<f4", "(3, 4)", 48))
    put("npy", "i8", npy("<i8", "(5,)", 40))
    put("npy", "v2", npy("<f2", "(5, 1)", 10, version=2))
    put("npy", "order", npy("|u1", "(5,)", 5, order="True"))
    put("npy", "huge", npy("<f8", "(9223372036854775807, 2)", 5))


def manifests():
    array = lambda name, dtype, *shape: {"file": name + ".npy", "dtype": dtype, "shape": list(shape), "xxh3": "0" * 16}
    root = {"penstock_dataset": 1, "name": "t", "vertices": 4, "edges": 3, "id_dtype": "int32", "feature_dim": 3,
            "stride_bytes": 16, "classes": 2, "stripes": [{"dir": "."}],
            "arrays": {"indptr": array("indptr", "int64", 5), "indices": array("indices", "int32", 3),
                       "features": array("features", "float32", 4, 4), "labels": array("labels", "int32", 4),
                       "train": array("train", "int64", 2), "val": array("val", "int64", 1)}, "provenance": {"a": 1}}
    put("manifest", "whole", json.dumps(root))
    part = {**root["arrays"], "features": array("features", "float32", 1, 4)}
    put("manifest", "part", json.dumps({**root, "penstock_dataset": 11, "arrays": part,
                                        "cut": {"dataset": "0123456789abcdef", "part": 1, "first": [0, 3, 4]}}))
    lists = {**part, "indices": array("indices", "int32", 1)}
    put("manifest", "lists", json.dumps({**root, "penstock_dataset": 11, "arrays": lists,
                                         "cut": {"dataset": "0123456789abcdef", "part": 1, "first": [0, 3, 4], "first_edge": [0, 2, 3]}}))
    del root["arrays"]["features"]
    stripe = lambda k: {**array(f"features.{k}", "float32", 2, 4), "head": "0" * 16}
    put("manifest", "stripes", json.dumps({**root, "penstock_dataset": 5, "stripes": [stripe(0), stripe(1)]}))
    root.update(feature_dim=0, stride_bytes=0, colour="blue")
    put("manifest", "wrong", json.dumps(root))
    del root["colour"]
    root["arrays"]["relations"] = array("relations", "int32", 3)
    root.update(penstock_dataset=3, relation_types=1, edge_types=[{"name": "a:r:b", "source": "a", "target": "b"}],
                vertex_types=[{"name": "a", "vertices": 3, "feature_dim": 3, "stride_bytes": 16, "features": array("features_0", "float32", 3, 4)},
                              {"name": "b", "vertices": 1, "feature_dim": 0, "stride_bytes": 0}])
    put("manifest", "types", json.dumps(root))


def checkpoints():
    def file(header, data):
        text = json.dumps(header, separators=(",", ":")).encode()
        text = text.ljust(-(-(8 + len(text)) // 64) * 64 - 8)
        return struct.pack("<Q", len(text)) + text + data
    meta = {"dataset": "0123", "seed": "1", "next_batch": "7", "checksum": "0" * 16}
    tensors = {"w": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]},
               "m": {"dtype": "I64", "shape": [2], "data_offsets": [48, 64]}}
    put("checkpoint", "whole", file({"__metadata__": meta, **tensors}, bytes(64)))
    put("checkpoint", "vector", file({"__metadata__": meta, "w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}},
                                     bytes(16)))
    put("checkpoint", "gap", file({"__metadata__": meta, **tensors}, bytes(80)))
    put("checkpoint", "bare", file({}, b""))


def frames():
    wire = struct.pack("<IHHQIIIIQQ", 0x46545350, 3, 0, 1, 0, 0, 1, 1, 0, 0) + struct.pack("<II", 0, 2)
    give = bytes([0, 0, 1, 0, 0, 3, 1, 0, 2])  # a frame of slot 2 of route 0 into the first input
    step = bytes([4])
    put("frames", "pass", give + step + give + step)
    put("frames", "ordered", bytes([0, 1, 0, 0, 0, 3, 1, 0, 1]) + bytes([0, 1, 2, 0, 0, 3, 0]) + step)
    put("frames", "release", give + step + bytes([3, len(wire)]) + wire)
    put("frames", "wire", give + step + bytes([2, 1, 2, 1, 0, 3, 1, 0, 2]) + step)
    for i, text in enumerate(('{"type": "done"}', '{"type": "log", "text": "x"}', '{"type": "total", "port": "own",'
                              ' "batches": 3}', '{"type": "publish", "port": "plan", "path": "/x"}',
                              '{"type": "report", "section": "s", "data": {}}', '{"type": "failed"}')):
        put("frames", f"json{i}", bytes([3, len(text)]) + text.encode() + step)
    put("frames", "scribble", b"".join(bytes([1, i]) + bytes([0, 0]) + b"\xff" * 8 + step for i in range(6)))


def descriptions():
    good = {"abi": 7, "name": "odd", "help": "h",
            "params": [{"name": "keep", "type": "int", "default": 3, "min": 1, "max": 9, "help": "k"},
                       {"name": "e", "type": "enum", "choices": "a|b", "default": "a", "help": "e"}],
            "ports": [{"name": "in", "dir": "in", "help": "i", "type": "w", "dtype": "int64", "rank": 1, "memory": "cpu",
                       "flags": ["writes", "ordered"], "hold_param": "keep", "whole_if": "e=a"},
                      {"name": "out", "dir": "out", "help": "o", "type": "w", "forwards": "in", "hold": 2}]}
    put("describe", "good", json.dumps(good))
    put("describe", "list", "[1]")


def imports():
    for parser in (0, 1, 2, 5):
        put("import", f"text{parser}", bytes([parser]) + b'# c\n0 1\n2,"3",4\r\n')
    put("import", "names", b"\x02" + "".join(f"n{i},{i * 7 % 1009}\n" for i in range(900)).encode())  # more than fit in memory
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("a.npy", b"a" * 99, zipfile.ZIP_DEFLATED)
        z.writestr("b.npy", b"b" * 9)
    put("import", "zip", b"\x03" + archive.getvalue())
    put("import", "graph", b"\x04" + bytes(range(64)))


def npy(descr, shape, data):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def formats():
    """The first byte is the place in fuzz_formats.c's list."""
    wide, tall = npy("<i4", "(2, 3)", struct.pack("<6i", 0, 0, 3, 1, 2, 1)), npy("<i4", "(3, 2)", struct.pack("<6i", 0, 1, 0, 2, 3, 1))
    typed = """graph:
  nodes: [{type: a, num: 4}, {type: b, num: 4}]
  edges: [{type: "a:r:b", format: numpy, path: e.npy}, {type: "a:s:a", format: csv, path: e.csv}]
feature_data: [{domain: node, type: a, name: feat, format: numpy, path: feat.npy}]
tasks:
  - num_classes: 3
    train_set: [{type: a, data: [{name: seeds, format: numpy, path: ids.npy}, {name: labels, format: numpy, path: labels.npy}]}]
    test_set: [{type: "a:r:b", data: [{name: seeds, format: numpy, path: pairs.npy}, {name: negative_dsts, format: numpy, path: ids.npy}]}]
"""
    plain = "graph:\n  nodes:\n    - num: 4\n  edges:\n    - format: numpy\n      path: e.npy\n"
    parts = io.BytesIO()
    with zipfile.ZipFile(parts, "w") as z:
        for name, descr, values in (("indptr", "i", (0, 2, 2, 2, 3)), ("indices", "i", (1, 2, 1)), ("shape", "i", (4, 4))):
            z.writestr(name + ".npy", npy("<i4", f"({len(values)},)", struct.pack(f"<{len(values)}{descr}", *values)))
    sparse = io.BytesIO()
    with zipfile.ZipFile(sparse, "w") as z:
        for name, values in (("row", (0, 2, 3)), ("col", (1, 2, 1)), ("data", (1, 0, 5)), ("shape", (4, 4))):
            z.writestr(name + ".npy", npy("<i4", f"({len(values)},)", struct.pack(f"<{len(values)}i", *values)))
        z.writestr("format.npy", npy("|S3", "()", b"coo"))
    ogb = io.BytesIO()
    with zipfile.ZipFile(ogb, "w") as z:
        z.writestr("edge_index.npy", wide)
        for name, n in (("num_nodes_list", 4), ("num_edges_list", 3)):
            z.writestr(name + ".npy", npy("<i8", "(1,)", struct.pack("<q", n)))
    seeds = ["a\tr\tb\nb\tr\t\u00e4\r\n", "2\na\t0\nb\t1\n", "1\n0 1 0\n", plain, wide, typed,
             "num_edges: 3\nnum_nodes: 4\nnum_relations: 1\nnode_feature_dim: 2\nnum_train: 4\n", struct.pack("<6i", 0, 1, 0, 2, 3, 1),
             "a,0\nb,1\nc,3\nd,2\n", parts.getvalue(), ogb.getvalue(), tall, npy("<f4", "(4,)", struct.pack("<4f", 1, 0, 2, 1)), wide,
             "#BVGraph properties\nnodes=4\narcs=3\nwindowsize=0\nminintervallength=0\ncompressionflags=\n", bytes(range(16)), wide,
             '{"name": "n", "num_nodes": 4}', npy("<i8", "(4,)", struct.pack("<4q", 1, 0, 2, -1)), npy("|b1", "(4, 2)", bytes([0, 1, 1, 0, 0, 0, 1, 1])),
             sparse.getvalue(), "source,target\na,b\n\"c\",b\n", "vertex\nb\na\n\"c\"\n", "vertex,label\na,1\nc,\n", "vertex,x0,x1\nb,1,2\na,.5,-1e3\nc,0,0\n",
             "vertex\nc\n", '{"kept": ["ids"], "splits": ["a", "b"]}', "head,relation,tail\n2,q,0\n", "relation\nr\nq\n",
             json.dumps({"kept": [], "vertex_types": [{"name": "a", "num_nodes": 2, "num_features": 1, "stride_bytes": 4}, {"name": "b", "num_nodes": 1, "num_features": 0, "stride_bytes": 0}],
                         "edge_types": [{"name": "r", "source": "a", "target": "a"}]})]
    for k, data in enumerate(seeds):
        put("formats", f"case{k}", bytes([k]) + (data if isinstance(data, bytes) else data.encode()))
    put("formats", "relations", bytes([7]) + struct.pack("<9i", *range(9)))


if __name__ == "__main__":
    pipelines(), headers(), manifests(), checkpoints(), frames(), descriptions(), imports(), formats()
