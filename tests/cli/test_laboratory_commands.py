"""`reproduce`, `report` and `bias` as a user runs them."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from truedrift.bias.exact import exact_moments
from truedrift.cli.main import main
from truedrift.paper import fig_bias_loglog, normalization, tab_baselines
from truedrift.paper.catalog import ITEMS, STUDIES
from truedrift.paper.pool_bias import PoolBias
from truedrift.records.store import read


@pytest.fixture
def small(monkeypatch):
    """The studies of this file with few points."""
    monkeypatch.setattr(fig_bias_loglog, "POOL_POINTS", 2000)
    monkeypatch.setattr(fig_bias_loglog, "QUERIES", 4)
    monkeypatch.setattr(tab_baselines, "SMOKE_POINTS", 600)
    monkeypatch.setattr(tab_baselines, "SMOKE_QUERIES", 2)
    monkeypatch.setattr(normalization, "POOL_POINTS", 300)


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".jsonl"}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("fig:illustration", {"fig_illustration.png", "fig_illustration.pdf"}),
        ("fig:bias_loglog", {f"fig_bias_loglog.{kind}" for kind in ("png", "pdf", "md", "tex", "csv")}),
        ("tab:baselines", {f"tab_baselines.{kind}" for kind in ("md", "tex", "csv")}),
        ("normalization", {f"normalization.{kind}" for kind in ("png", "pdf", "md", "tex", "csv")}),
    ],
)
def test_reproduce_then_report_from_the_record_alone(item, expected, small, tmp_path, capsys):
    out, again = tmp_path / "out", tmp_path / "again"
    assert main(["reproduce", item, "--scale", "smoke", "--out", str(out)]) == 0
    first = capsys.readouterr().out
    assert expected <= files(out).keys()
    assert main(["report", str(out), "--out", str(again)]) == 0
    assert capsys.readouterr().out == first.replace(str(out), str(again)) + f"\npage: {again / 'report.html'}\n"
    drawn = files(again)
    page = drawn.pop("report.html")
    assert b"</html>" in page
    assert f"Made by <code>truedrift reproduce {item} --scale smoke</code>".encode() in page
    assert {name: files(out)[name] for name in expected} == drawn


def test_every_study_has_an_item_and_a_label():
    assert set(STUDIES) <= {item.label for item in ITEMS}


def pool_and_queries():
    generator = np.random.default_rng(0)
    return generator.normal(size=(300, 3)), generator.normal(size=(4, 3))


def test_bias_of_a_pool_file_is_the_exact_one(tmp_path, capsys):
    pool, queries = pool_and_queries()
    np.savez(tmp_path / "mine.npz", pool=pool, queries=queries)
    out = tmp_path / "out"
    command = ["bias", str(tmp_path / "mine.npz"), "--tau", "0.5", "--n", "4", "16", "--out", str(out)]
    assert main(command) == 0
    said = capsys.readouterr().out
    (record,) = read(out / "records.jsonl", PoolBias)
    for row in record.rows:
        exact = exact_moments(torch.tensor(queries), torch.tensor(pool), tau=0.5, n=row.n, estimator=row.estimator)
        assert row.bias == pytest.approx(exact.bias.norm(dim=-1).mean().item(), rel=1e-9)
        assert row.noise == pytest.approx(exact.variance.sqrt().mean().item(), rel=1e-9)
        assert f"{row.bias:.3e}" in said
    distance = np.linalg.norm(queries[:, None] - pool, axis=-1)
    w = np.exp(-distance / 0.5)
    T_star = w @ pool / w.sum(1, keepdims=True)
    spread = np.sqrt(((pool[None] - T_star[:, None]) ** 2).sum(-1).mean(1)).mean()
    assert record.spread == pytest.approx(spread)
    assert record.n_eff_share == pytest.approx((w.sum(1) ** 2 / (w**2).sum(1) / 300).mean())


def test_bias_by_monte_carlo_and_every_kind_of_file(tmp_path, capsys):
    pool, _ = pool_and_queries()
    np.save(tmp_path / "one.npy", pool)
    save_file({"pool": pool.astype(np.float32)}, tmp_path / "one.safetensors")
    for name in ("one.npy", "one.safetensors"):
        command = ["bias", str(tmp_path / name), "--estimator", "bootstrap", "--trials", "50", "--queries", "2"]
        assert main([*command, "--n", "4", "--tau", "0.5", "--without-replacement"]) == 0
        assert re.search(r"drawn without replacement from one\.\w+ \(300 × 3\)", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "fig:nothing"], r"item is 'fig:nothing'; must be one of 'fig:illustration', .*'all'; .*"),
        (["reproduce", "all", "--seed", "-1"], r"seed is -1; .*2147483647.*; .*"),
        (["report", "NOWHERE"], r"'.*NOWHERE' does not exist; .*; .*"),
        (["report", "EMPTY"], r"'.*EMPTY' .*records\.jsonl.*; .*; .*"),
        (["report", "OTHER"], r"'.*' has no record of a figure or table; .*; .*"),
        (["report", "BAD"], r".*line 1 is not a record .*; .*; .*"),
        (["bias", "five-modes"], r"pool is 'five-modes'; must be four-modes, three-clusters, .*; .*"),
        (["bias", "four-modes", "--estimator", "abc", "abc"], r"estimators? .*abc, abc.*; .*; .*"),
        (["bias", "CUBE.npy"], r"queries has shape \[5, 4, 3\]; must have two dimensions; .*"),
        (["bias", "four-modes", "--tau", "1e-9"], r"log w ranges over \S+ .*; .*; .*"),
        (
            ["bias", "four-modes", "--out", "TAKEN"],
            r"(the )?directory '.*' cannot be written \(.*\); .*; .*",
        ),
        (["bias", "four-modes", "--n", "0"], r"n .*0.*; .*; .*"),
        (["bias", "four-modes", "--tau", "-1"], r"tau is -1\.0; .*; .*"),
        (["bias", "four-modes", "--estimator", "mean"], r"estimator is 'mean'; .*; .*"),
        (["bias", "four-modes", "--estimator", "bootstrap"], r".*bootstrap.*; .*; .*--trials 10000.*"),
        (["bias", "four-modes", "--trials", "1"], r"trials is 1; .*; .*"),
        (["bias", "four-modes", "--queries", "0"], r"queries is 0; .*; .*"),
        (["bias", "four-modes", "--without-replacement"], r".*without replacement.*; .*; .*--trials 10000.*"),
    ],
)
def test_mistakes_are_one_line_and_status_2(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("truedrift.cli.bias.TOY_POINTS", 100)
    (tmp_path / "EMPTY").mkdir()
    for name, text in (("OTHER", json.dumps({"record": "Other"})), ("BAD", "no record")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "records.jsonl").write_text(text + "\n")
    (tmp_path / "TAKEN" / "records.jsonl").mkdir(parents=True)
    np.save(tmp_path / "CUBE.npy", np.ones((5, 4, 3)))
    arguments = [str(tmp_path / each) if each[:4].isupper() else each for each in arguments]
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert re.fullmatch(f"truedrift: error: {message}", line)
