"""The sentences of advice: every form, for made-up numbers and for real diagnoses."""

import re
from dataclasses import replace

import pytest
import torch

from truedrift.bias import diagnose
from truedrift.bias.advice import advise_on_bias, advise_on_n_eff, larger_temperatures, round_up
from truedrift.bias.diagnosis import Bias, Confidence, Quantiles, TemperatureDiagnosis, Weights
from truedrift.recipes.overrides import recipe
from truedrift.report.screens import advise_on_run

ONE = Quantiles(p05=1.0, p25=1.0, p50=1.0, p75=1.0, p95=1.0)
WEIGHTS = Weights(rows=1, n=64, n_eff=ONE, dominance=ONE, sum_of_squares=ONE, dominated=0.0)


def made_up(shares, needed, *, level="high", extrapolated=False, dead=None):
    """A temperature with these biases of standard, ABC and ABC-2 as fractions of the spread, and these required n."""
    biases = tuple(
        Bias(
            estimator=name,
            norm=share,
            low=share,
            high=share,
            resolved=True,
            quantiles=ONE,
            of_spread=share,
            of_noise=share,
            needed_n=n,
            needed_is_extrapolated=extrapolated,
        )
        for name, share, n in zip(("standard", "abc", "abc2"), shares, needed, strict=True)
    )
    confidence = Confidence(level=level, reason="too few references: the bias is known only to within a factor of 9")
    return TemperatureDiagnosis(tau=0.5, weights=WEIGHTS, biases=biases, confidence=confidence, dead=dead)


def advise(at, tau=None, wanted=0.01):
    return advise_on_bias(at, n=64, wanted=wanted, references=5000, sufficient_tau=lambda estimator: tau)


OFF = "At τ = 0.5 and n = 64 the centroid is off by "
LARGE = made_up((0.1, 0.098, 0.097), (2400, 1900, 1800))


@pytest.mark.parametrize(
    ("at", "tau", "sentence"),
    [
        (LARGE, 2.0, "10 % of the spread; ABC does not change that. Take n ≈ 1,900 or τ ≥ 2 with ABC."),
        (LARGE, None, "10 % of the spread; ABC does not change that. Take n ≈ 1,900 with ABC."),
        (
            made_up((0.1, 0.04, 0.03), (2400, 1901, 1800)),
            5.0,
            "10 % of the spread, with ABC by 4 %. Take n ≈ 2,000 or τ ≥ 5 with ABC.",
        ),
        (
            made_up((0.1, 0.14, 0.3), (1500, 1900, 1950)),
            5.0,
            "10 % of the spread, with ABC by 14 %. Take n ≈ 1,500 or τ ≥ 5.",
        ),
        (
            made_up((0.1, 0.04, 0.03), (90_000, 9000, 8000), extrapolated=True),
            None,
            "10 % of the spread, with ABC by 4 %. Take n ≈ 9,000 with ABC.",
        ),
        (
            made_up((0.1, 0.04, 0.03), (90_000, 9000, 8000), extrapolated=True, level="medium"),
            2.0,
            "10 % of the spread, with ABC by 4 %. Take n > 5,000 or τ ≥ 2 with ABC.",
        ),
        (
            made_up((0.1, 0.04, 0.03), (None, None, None), extrapolated=True),
            None,
            "10 % of the spread, with ABC by 4 %. Take n > 5,000 with ABC.",
        ),
        (
            made_up((0.1, 0.04, 0.03), (30, 20, 10)),  # the n are smaller than 64, so they do not suffice
            None,
            "10 % of the spread, with ABC by 4 %. No n or τ that suffices was found.",
        ),
        (
            made_up((0.042, 0.0051, 0.001), (280, 40, 20)),
            2.0,
            "4.2 % of the spread, with ABC by 0.51 %. Use ABC, or n ≈ 280 without it.",
        ),
        (
            made_up((0.042, 0.0051, 0.001), (6000, 40, 20), extrapolated=True),
            2.0,
            "4.2 % of the spread, with ABC by 0.51 %. Use ABC.",
        ),
        (
            made_up((0.042, 0.02, 0.009), (280, 90, 60)),
            2.0,
            "4.2 % of the spread, with ABC by 2 %, with ABC-2 by 0.9 %. Use ABC-2, or n ≈ 280 without it.",
        ),
        (
            made_up((0.002, 1e-6, 1e-9), (20, 5, 4)),
            2.0,
            "0.2 % of the spread, with ABC by less than 0.01 %. That is within the wanted 1 %, so no correction is "
            "needed.",
        ),
        (
            made_up((0.002, 0.001, 1e-9), (20, 5, 4), dead="too warm"),
            2.0,
            "0.2 % of the spread, with ABC by 0.1 %. That is within the wanted 1 %, so no correction is needed. The "
            "query has almost no influence on the centroid at this τ: take a smaller one.",
        ),
    ],
)
def test_every_form_of_the_sentence(at, tau, sentence):
    assert advise(at, tau) == OFF + sentence


def test_low_confidence_gives_no_numbers():
    assert advise(replace(LARGE, confidence=replace(LARGE.confidence, level="low")), 2.0) == (
        "At τ = 0.5 and n = 64 there are too few references: the bias is known only to within a factor of 9. Pass more "
        "references."
    )


def test_without_a_wanted_bias_there_is_only_the_finding():
    assert advise(LARGE, 2.0, wanted=None) == OFF + "10 % of the spread; ABC does not change that."


def gaussians():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 2, generator=generator), torch.randn(600, 2, generator=generator).double()


def test_the_advice_of_a_real_diagnosis_follows_its_numbers():
    x, y = gaussians()
    found = diagnose(queries=x, references=y, tau=(0.1, 0.5, 2.0), n=12, wanted=0.01)
    cold, middle, warm = found.temperatures
    assert found.advice == " ".join(at.advice for at in found.temperatures)
    for at in found.temperatures:
        assert at.advice.startswith(f"At τ = {at.tau:g} and n = 12 ")
    assert "ABC does not change that. Take n ≈ " in cold.advice
    assert f"n ≈ {round_up(middle.biases[1].needed_n)} or τ ≥ 1 with ABC." in middle.advice
    assert "Use ABC" in warm.advice


def test_the_named_temperature_suffices_and_the_one_before_does_not():
    """The diagnoses at the larger temperatures themselves are the oracle."""
    x, y = gaussians()
    (at,) = diagnose(queries=x, references=y, tau=0.1, n=12).temperatures
    assert " or τ ≥ 1 with ABC." in at.advice
    others = diagnose(queries=x, references=y, tau=larger_temperatures(0.1), n=12).temperatures
    enough = {each.tau: each.biases[1].of_spread <= 0.01 for each in others if each.dead is None}
    assert not enough[0.5]
    assert all(enough[tau] for tau in enough if tau >= 1)


def test_too_few_references_and_weights():
    x, y = gaussians()
    (few,) = diagnose(queries=x, references=y[:20], tau=0.05, n=12).temperatures
    assert few.confidence.level == "low"
    assert few.advice.endswith("Pass more references.")
    sharp, flat = (diagnose(weights=(logits * torch.arange(8.0)).softmax(-1)) for logits in (9.0, 0.1))
    assert sharp.advice == (
        "n_eff is 1 of n = 8 for half of the rows: the centroid is mostly the nearest reference, and no correction "
        "helps. Take a larger τ or more references."
    )
    assert flat.advice.startswith("n_eff is 7.6 of n = 8 for half of the rows. Pass distances, or queries")


def test_n_eff_below_two_is_named_and_two_is_not():
    taus = (0.2, 0.02, 0.05)
    assert advise_on_n_eff(taus, (2.0, None, 5.0), "positive", more="more") == ""
    assert advise_on_n_eff(taus, (1.9, 1.1, 5.0), "positive", more="more positives") == (
        "n_eff of the positives is below 2 at τ = 0.02 and 0.2: the centroid is mostly the nearest reference, and no "
        "correction helps. Take a larger τ there, or more positives."
    )
    assert advise_on_n_eff(taus, (2.5, 1.1, 5.0), "negative", more="more negatives", matched=True).endswith(
        "Matched references cancel its bias where samples match the data. Take a larger τ there, or more negatives."
    )


def test_the_advice_on_a_run_names_the_option_that_limits_n_eff():
    def option(**batch):
        matched = batch.pop("matched", False)
        config = recipe("digits", given={"n": batch.pop("n", 120)})
        batch, objective = replace(config.batch, **batch), replace(config.objective, matched=matched)
        advice = advise_on_run(
            replace(config, batch=batch, objective=objective),
            {"positive": (1.5, 2.5, 9.0), "negative": (1.5, 2.5, 9.0)},
        )
        return [re.search(r"\((batch\..*)\)", text)[1] for text in advice]

    assert option() == ["batch.n", "batch.generated"]
    assert option(fresh_negatives=8) == ["batch.n", "batch.fresh_negatives"]
    assert option(matched=True) == ["batch.generated"] * 2
    assert option(matched=True, fresh_negatives=8) == ["batch.fresh_negatives"] * 2
    assert option(matched=True, n=4) == ["batch.n"] * 2
    assert advise_on_run(recipe("digits"), {"positive": (2.5, 2.5, 9.0), "negative": (2.0, None, None)}) == []


@pytest.mark.parametrize("tau", [1e-30, 0.02, 0.5, 1.0, 3.7, 1e30, 1e308])
def test_larger_temperatures_are_a_hundredfold_at_most(tau):
    found = larger_temperatures(tau)
    assert list(found) == sorted(found)
    assert all(tau < each <= 100.001 * tau for each in found)
    assert len(found) == 6 or tau == 1e308
