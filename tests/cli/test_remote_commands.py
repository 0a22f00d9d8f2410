"""The commands on remote files: their requests, their output, and what they refuse."""

import pytest
import yaml

from samplerkit.cli.printing import size_of
from samplerkit.storage.tar.writer import TarWriter
from tests.cli.configs import config, in_json
from tests.storage.files.folders import write_npz
from tests.storage.remote.server import served

SIZES = [40] * 16
SECRET = "X-Signature=5ec4e7"  # noqa: S105  # not a real secret


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    """16 npz files and 16 shards of 40 samples each."""
    folder = tmp_path_factory.mktemp("web")
    write_npz(folder / "data", SIZES)
    with TarWriter(f"{folder}/data/part-%03d.tar", samples_per_shard=40) as writer:
        for number in range(640):
            writer.write({"__key__": f"{number:04}", "txt": f"number {number}", "cls": number % 10})
    return folder


@pytest.fixture(name="web")
def fixture_web(folder):
    """A server of these files; no command may download any."""
    with served(folder / "data") as web:
        yield web
        assert len(web.calls("GET")) == 0


def npz(web, **more):
    urls = [f"{web.url}/{number:03}.npz?{SECRET}" for number in range(16)]
    return {"kind": "files", "files": urls, "reader": "npz", "remote": {"attempts": 2}, **more}


def tar(web, **more):
    urls = f"{web.url}/part-{{000..015}}.tar"
    return {"kind": "tar", "urls": urls, "remote": {"attempts": 2}, **more}


def facts_of(output):
    """The facts of a plan by their names; wrapped lines are joined."""
    facts = []
    for line in output.splitlines():
        name, _, value = line.partition(" ")
        if name:
            facts.append((name, value.strip()))
        else:
            facts[-1] = (facts[-1][0], f"{facts[-1][1]} {line.strip()}")
    return facts


def test_a_plan_reports_the_downloads_and_bytes_of_an_epoch_and_downloads_nothing(
    command, tmp_path, folder, web
):
    path = config(tmp_path, dataset=npz(web, lengths=SIZES), shuffle="partial", partial_size=60)
    code, output, errors = command("plan", path, "--world", 4)
    assert (code, errors) == (0, "")
    assert len(web.calls("VERSION")) == 16
    size = sum(file.stat().st_size for file in (folder / "data").glob("*.npz"))
    facts = facts_of(output)
    assert ("storage", f"16 remote files, {size_of(size)}") in facts
    assert ("whole", f"16 downloads and {size_of(size)} an epoch") in facts
    assert "costly" not in dict(facts)
    assert "ranges" not in dict(facts)
    transfers = in_json(command, "plan", path, "--world", 4)[1]["transfers"]
    assert (transfers["whole"], transfers["ratio"]) == ({"requests": 16, "bytes": size}, 1.0)
    assert (transfers["ranges"], transfers["advice"], transfers["is_counted"]) == (None, "", True)
    assert "5ec4e7" not in output


def test_a_plan_of_a_tree_reports_the_requests_of_each_part(command, tmp_path, web):
    code = {**tar(web, lengths=SIZES), "fetch": "ranges"}
    parts = {"web": npz(web, lengths=SIZES), "far": {"kind": "tree", "parts": {"code": code}}}
    sources = {"web": {"kind": "random", "shuffle": "files", "seed": 3}, "far": None}
    sampler = {"kind": "mixture", "sources": sources, "weights": {"web": 2, "far": 1}, "num_samples": 600}
    sections = {"dataset": {"kind": "tree", "parts": parts}, "sampler": sampler, "loader": {"batch_size": 5}}
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(sections, sort_keys=False))
    arguments = ("plan", path, "--world", 4, "--ranks-per-machine", 2)
    planned = in_json(command, *arguments)[1]
    assert planned["transfers"] is None
    transfers = planned["transfers_of_parts"]
    assert list(transfers) == ["web", "far/code"]
    downloads, requests = transfers["web"]["whole"]["requests"], transfers["far/code"]["ranges"]["requests"]
    assert 10 <= downloads <= 20  # 400 samples, 40 in a file
    assert requests == pytest.approx(200, abs=20)  # a third of the samples, one request each
    facts = facts_of(command(*arguments)[1])
    assert next(value for name, value in facts if name == "whole").startswith(f"web: {downloads} downloads")
    (ranges,) = (value for name, value in facts if name == "ranges")
    assert ranges.startswith(f"far/code: {requests} requests and ")
    assert ranges.endswith(" an epoch; this is what it does")
    assert dict(facts)["total"].startswith(f"{downloads} downloads and {requests} requests, ")
    findings = in_json(command, "check", path, "--world", 4)[1]["findings"]
    (what,) = (one["what"] for one in findings if one["code"] == "costly-remote")
    assert " in far/code: " in what


def test_a_cache_that_is_too_small_for_the_order_is_named_with_its_hint(command, tmp_path, folder, web):
    size = (folder / "data" / "000.npz").stat().st_size
    remote = {"attempts": 2, "max_cache_bytes": 4 * size + 100}
    path = config(tmp_path, dataset=npz(web, lengths=SIZES, remote=remote), shuffle="global")
    facts = dict(facts_of(command("plan", path)[1]))
    assert facts["storage"].endswith("of which the cache holds 4")
    downloads = int(facts["whole"].split()[0])
    assert downloads > 160
    assert "take shuffle: partial with partial_size: 160, or a larger cache" in facts["costly"]
    findings = in_json(command, "check", path)[1]["findings"]
    (finding,) = (one for one in findings if one["code"] == "costly-remote")
    assert finding["hint"].startswith("take shuffle: partial with partial_size: 160")
    assert f"{downloads:,} downloads" in finding["what"]
    changes = {"shuffle": "partial", "partial_size": 160}
    path = config(
        tmp_path, dataset=npz(web, lengths=SIZES, remote={**remote, "max_cache_bytes": 1}), **changes
    )
    assert dict(facts_of(command("plan", path)[1])).get("costly", "").endswith("1 files: take a larger cache")


@pytest.mark.parametrize("kind", [npz, tar])
def test_a_plan_fetches_no_files_to_count_their_samples(command, refused, tmp_path, cache_home, web, kind):
    path = config(tmp_path, dataset=kind(web), shuffle="global")
    code, output, errors = command("plan", path, "--world", 2)
    assert (code, errors) == (0, "")
    facts = dict(facts_of(output))
    assert facts["dataset"] == "16 remote files, not counted"
    assert facts["ranks"] == "2, batches of 8"
    assert facts["unknown"].startswith("samples, steps, mixing, requests and bytes: to count the samples")
    assert "lengths" in facts["hint"]
    planned = in_json(command, "plan", path)[1]
    assert (planned["unknown"], planned["hint"]) == (facts["unknown"], facts["hint"])
    assert command("validate", path)[0] == 0
    for arguments in (("at", path, "--epoch", 0, "--step", 0), ("when", path, "--sample", 3)):
        line = "samplerkit: lengths: are unknown, and all files would"
        assert refused(*arguments).startswith(line)
    (finding,) = in_json(command, "check", path)[1]["findings"]
    assert finding["code"] == "lengths-unknown"
    assert not cache_home.exists()


def test_a_plan_without_sizes_of_files_says_so_and_reports_the_rest(command, tmp_path, caplog):
    urls = [f"http://127.0.0.1:9/{number}.npz?{SECRET}" for number in range(4)]
    remote = {"attempts": 1, "timeout": 2}
    dataset = {"kind": "files", "files": urls, "reader": "npz", "lengths": [40] * 4, "remote": remote}
    path = config(tmp_path, dataset=dataset, shuffle="global")
    code, output, _ = command("plan", path)
    facts = facts_of(output)
    assert code == 0
    assert dict(facts)["dataset"] == "160 samples in 4 files"
    assert in_json(command, "plan", path)[1]["transfers"] is None
    assert command("check", path, "--world", 1)[0] == 0
    assert "a size could not be requested: http://127.0.0.1:9/" in caplog.text
    assert "5ec4e7" not in output + caplog.text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("index", "http://127.0.0.1:9/a.tar?{SECRET}"), "--out: is needed, since nothing is written"),
        (
            ("index", "http://127.0.0.1:9/a.tar", "http://127.0.0.1:9/b/a.tar", "--out", "x"),
            "--out: would have indexes of the same name, got 'a.tar.skidx'",
        ),
        (
            ("pack", ".", "--shards", "s3://me:5ec4e7@bucket/o-%d.tar"),
            "shards: must be local, got 's3://buck",
        ),
    ],
)
def test_what_is_not_supported_is_one_line(refused, tmp_path, monkeypatch, arguments, line):
    monkeypatch.chdir(tmp_path)
    errors = refused(*(argument.format(SECRET=SECRET) for argument in arguments))
    assert errors.startswith(f"samplerkit: {line}")
    assert "5ec4e7" not in errors
    assert list(tmp_path.iterdir()) == []
