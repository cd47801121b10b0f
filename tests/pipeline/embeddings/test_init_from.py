"""`penstock run --init-from RUN`: vertices and relations begin as those of another run; new ones are generated."""
import numpy as np
import embedding as whole
from embedding import *
from harness import *

STILL = {"params.rate": 1e-9, "params.evaluate": "never"}  # nothing that float32 shows


def settings(partitions, **more):
    if partitions == 1:
        return whole.settings(3, **more)
    return ["--with", PARTITIONS, *whole.settings(3, **{"params.partitions": partitions, "params.buffer": 2, "params.order": "beta",
                                                        "params.piece": "4KiB", **more})]


def rows_of(run_dir):
    out = run_dir + "-out"
    command("export", run_dir, out, "--quiet")
    return [np.load(os.path.join(out, name + ".npy")) for name in ("vertices", "relations")]


def grown(p, data, line="v1\tr3\tnew\n"):
    """The source of a knowledge graph with more triples at the end of its training set."""
    source = p.path("grown-source")
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(p.path("source3"), source)
    with open(os.path.join(source, "train.tsv"), "a") as f:
        f.write(line + "".join(f"new{i}\tr{i % 4}\tv{i}\n" for i in range(6)))
    shutil.rmtree(p.path("grown"), ignore_errors=True)
    command("import", "triples", source, p.path("grown"), "--quiet")
    return p.path("grown")


@test
def rows_begin_as_those_of_the_other_run():
    with Place() as p:
        data = knowledge_graph(p)
        more, old = grown(p, data), {n: p.run(MARIUS, *settings(n), "--epochs", 2, data=data).run_dir for n in (1, 5)}
        for source, partitions, pipeline in ((1, 1, MARIUS), (5, 1, MARIUS), (1, 4, MARIUS), (5, 4, MARIUS), (5, 4, LEGEND)):
            was, relations_were = rows_of(old[source])
            args = settings(partitions, **STILL)
            if pipeline == LEGEND:
                values = {"params.piece": "4KiB"} | {"stages.legend.params." + key: value for key, value in
                          {"batch": 50, "chunks": 3, "negatives": 8, "dim": DIM, "scale": SCALE, "partitions": 4, "buffer": 3,
                           "rate": 1e-9, "evaluate": "never"}.items()}
                args = [w for key, value in values.items() for w in ("--set", f"{key}={value}")] + ["--seed", SEED, "--quiet"]
            rows, relations = rows_of(p.run(pipeline, *args, "--init-from", old[source], "--epochs", 1, data=more).run_dir)
            n, name = len(was), (source, partitions, pipeline)
            assert len(rows) == n + 7 and len(relations) == 8, name
            want = np.concatenate([was, initial(0, n + 7)[n:]])
            fresh = initial(1, 8)
            want_relations = np.concatenate([relations_were[:3], fresh[3:4], relations_were[3:], fresh[7:]])
            assert np.abs(rows - want).max() < 1e-6 and np.abs(relations - want_relations).max() < 1e-6, name


@test
def a_resumed_run_goes_on_from_its_own_checkpoint():
    with Place() as p:
        data = knowledge_graph(p)
        old = p.run(MARIUS, *settings(1), "--epochs", 2, data=data).run_dir
        for partitions in (1, 5):
            digest = lambda *args, epochs=3: p.run(MARIUS, *settings(partitions), *args, "--epochs", epochs, data=data)
            want = digest("--init-from", old).report["weights_digest"]
            assert want != digest().report["weights_digest"]
            part = digest("--init-from", old, epochs=1).run_dir
            assert digest("--init-from", old, "--resume", part).report["weights_digest"] == want
        refused = p.run(MARIUS, *settings(1), "--epochs", 3, "--resume", p.run(MARIUS, *settings(1), "--epochs", 1, data=data).run_dir,
                        "--init-from", old, data=data, code=2)
        assert "init_from" in refused.err, refused


@test
def runs_that_do_not_fit_are_told():
    with Place() as p:
        data = knowledge_graph(p)
        old = p.run(MARIUS, *settings(1), "--epochs", 1, data=data).run_dir
        larger = grown(p, data)
        big = p.run(MARIUS, *settings(5), "--epochs", 1, data=larger).run_dir
        os.makedirs(p.path("none"))

        def refused(run, words, data=data, pipeline=MARIUS, **more):
            args = settings(1, **more) if pipeline == MARIUS else ["--quiet"]
            r = p.run(pipeline, *args, "--epochs", 1, "--init-from", run, data=data, code=None)
            assert r.code in (1, 2) and words in r.err, (words, r)

        refused(p.path("nowhere"), "nowhere: No such file")
        refused(p.path("none"), "checkpoint")
        refused(old, "expected 12, the parameter dim", **{"params.dim": 12})
        refused(old, 'the model of that run is "complex"', **{"params.model": "distmult"})
        refused(old, "inverse true", **{"params.inverse": "false"})
        refused(big, f"vertices, but {data} has only")
        refused(old, "init_from", data=None, pipeline=os.path.join(ROOT, "pipelines", "hyperion.json"))
        with open(os.path.join(big, "arrays", "embeddings"), "r+b") as f:
            f.write(b"?" * os.path.getsize(f.name))
        refused(big, "is damaged", data=larger)
        with open(os.path.join(p.path("source3"), "train.tsv")) as f:
            text = f.read()
        with open(os.path.join(p.path("source3"), "train.tsv"), "w") as f:
            f.write("first\tr0\tv1\n" + text)
        changed = grown(p, data)
        refused(old, "vertex 0 has another name", data=changed)
        refused(big, "has changed since", data=changed)
        os.remove(os.path.join(old, "report.json"))
        refused(old, "the vertices of the two cannot be compared", data=larger)


if __name__ == "__main__":
    main()
