"""`truedrift bias` as a user runs it."""

import re

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from truedrift.bias import exact_moments
from truedrift.cli import bias, main, parse
from truedrift.paper import pool_bias
from truedrift.records import read


def pool_and_queries():
    generator = np.random.default_rng(0)
    return generator.normal(size=(300, 3)), generator.normal(size=(4, 3))


def test_bias_of_a_pool_file_is_exact(tmp_path, capsys):
    pool, queries = pool_and_queries()
    np.savez(tmp_path / "mine.npz", pool=pool, queries=queries)
    out = tmp_path / "out"
    command = ["bias", str(tmp_path / "mine.npz"), "--tau", "0.5", "--n", "4", "16", "--out", str(out)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    (record,) = read(out / "records.jsonl", pool_bias.PoolBias)
    for row in record.rows:
        exact = exact_moments(torch.tensor(queries), torch.tensor(pool), tau=0.5, n=row.n, estimator=row.estimator)
        assert row.bias == pytest.approx(exact.bias.norm(dim=-1).mean().item(), rel=1e-9)
        assert row.noise == pytest.approx(exact.variance.sqrt().mean().item(), rel=1e-9)
        assert f"{row.bias:.3e}" in printed
    distance = np.linalg.norm(queries[:, None] - pool, axis=-1)
    w = np.exp(-distance / 0.5)
    T_star = w @ pool / w.sum(1, keepdims=True)
    spread = np.sqrt(((pool[None] - T_star[:, None]) ** 2).sum(-1).mean(1)).mean()
    assert record.spread == pytest.approx(spread)
    assert record.n_eff_share == pytest.approx((w.sum(1) ** 2 / (w**2).sum(1) / 300).mean())


def test_monte_carlo_with_every_kind_of_file(tmp_path, capsys):
    pool, _ = pool_and_queries()
    np.save(tmp_path / "one.npy", pool)
    save_file({"pool": pool.astype(np.float32)}, tmp_path / "one.safetensors")
    for name in ("one.npy", "one.safetensors"):
        command = ["bias", str(tmp_path / name), "--estimator", "bootstrap", "--trials", "50", "--queries", "2"]
        assert main([*command, "--n", "4", "--tau", "0.5", "--without-replacement"]) == 0
        assert re.search(r"drawn without replacement from one\.\w+ \(300 × 3\)", capsys.readouterr().out)


def test_preparing_draws_nothing(monkeypatch):
    monkeypatch.setattr(bias.GaussianMixture, "sample", lambda *_, **__: pytest.fail("points were drawn"))
    assert callable(parse(["bias", "four-modes"]).prepare())


TAU_ALLOWED = "must be a positive finite number, at least 1e-30"
DISTANCE_SCALE = "use the scale of the distances, for example a tenth of their median"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["five-modes"],
            "pool is 'five-modes'; must be four-modes, three-clusters, or a .npy, .npz or .safetensors file; "
            "did you mean 'four-modes'?",
        ),
        (
            ["CUBE.npy"],
            "pool has shape [5, 4, 3]; must have two dimensions; flatten the other dimensions",
        ),
        (
            ["TWO.npz"],
            "'TWO.npz' contains a, b in addition to queries; must contain an array named pool, or a single array; "
            "save the points under the name pool",
        ),
        (["four-modes", "--tau", "-1"], f"tau is -1.0; {TAU_ALLOWED}; {DISTANCE_SCALE}"),
        (["four-modes", "--tau"], "tau is empty; must hold at least one number; pass for example --tau 0.1"),
        (["four-modes", "--n", "0"], "n is (0,); must be one or more integers ≥ 1; pass for example 4, 8 and 16"),
        (
            ["four-modes", "--estimator", "mean"],
            "estimator is 'mean'; must be one of 'standard', 'abc', 'abc2', 'jackknife', 'br-snis'; "
            "choose one of these",
        ),
        (
            ["four-modes", "--estimator", "abc", "abc"],
            "estimators are abc, abc; must be one or more different names; pass each once",
        ),
        (
            ["four-modes", "--estimator", "bootstrap"],
            "bootstrap has no exact form; estimators with an exact form: standard, abc, abc2, jackknife, br-snis; "
            "add --trials 10000",
        ),
        (["four-modes", "--trials", "1"], "trials is 1; must be an integer ≥ 2; pass for example 10000"),
        (["four-modes", "--queries", "0"], "queries is 0; must be an integer ≥ 1; pass for example 50"),
        (["four-modes", "--seed", "-1"], "seed is -1; must be from 0 to 2147483647; pass for example 0"),
        (
            ["four-modes", "--without-replacement"],
            "draws are without replacement; exact values need draws with replacement; add --trials 10000",
        ),
        (
            ["four-modes", "--trials", "9", "--n", "500", "--without-replacement"],
            "500 references cannot be drawn without replacement from a pool of 100; must be at most 100; "
            "draw with replacement, or fewer references",
        ),
    ],
)
def test_mistakes_are_one_line_and_status_2(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bias, "TOY_POINTS", 100)
    monkeypatch.chdir(tmp_path)
    np.save("CUBE.npy", np.ones((5, 4, 3)))
    np.savez("TWO.npz", a=np.ones((5, 4)), b=np.ones((5, 4)))
    assert main(["bias", *arguments]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"truedrift: error: {message}\n")


def test_a_directory_that_cannot_be_written_is_found_first(tmp_path, capsys):
    (tmp_path / "records.jsonl").mkdir()
    assert main(["bias", "four-modes", "--out", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert re.fullmatch(
        r"truedrift: error: the directory '.*' cannot be written \(Is a directory\); must be .*; .*\n", output.err
    )


def test_a_temperature_that_is_too_small_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(bias, "TOY_POINTS", 100)
    assert main(["bias", "four-modes", "--tau", "1e-9"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert re.fullmatch(
        r"truedrift: error: log w ranges over \S+ at a query; must be at most about \S+ for this pool; "
        r"use a larger tau, .*\n",
        output.err,
    )


def test_an_unknown_kernel_names_the_known_ones(capsys):
    assert main(["bias", "four-modes", "--kernel", "cauchy"]) == 2
    output = capsys.readouterr()
    text = " ".join(re.sub("[│╭╮╰╯─]", " ", output.err).split())
    assert output.out == ""
    assert "invalid choice 'cauchy' for argument '--kernel'. Expected one of ('laplace', 'gaussian')." in text
    assert "truedrift bias --help" in text
