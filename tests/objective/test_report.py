"""Every entry of the report against its formula."""

import math

import pytest
import torch
from oracles.drift_loss import literal_groups
from oracles.feature_groups import feature_groups

from truedrift.field import CENTROID_FORMS, JOINT_NORMALIZATIONS
from truedrift.objective import DriftReport, drift_loss

TEMPERATURES = (0.02, 0.05, 0.2)
ENTRIES = (
    "force",
    "log_force",
    "n_eff_pos",
    "n_eff_neg",
    "dominated_pos",
    "dominated_neg",
    "correction_pos",
    "correction_neg",
    "spread",
    "energy",
)


def literal(gen, pos, neg=None, weight_neg=None, temperatures=TEMPERATURES, **options):
    defaults = {
        "normalization": "bidirectional",
        "form": "product",
        "abc_pos": True,
        "abc_neg": True,
        "feature_scale": "standardize-l2",
        "scale_over_batch": False,
    }
    return literal_groups(gen, pos, neg, temperatures=temperatures, weight_neg=weight_neg, **(defaults | options))


def each(groups, number):
    """Return [C, S, T]: one number for each field."""
    rows = [[[float(number(field)) for field in group.fields] for group in row] for row in groups]
    return torch.tensor(rows, dtype=torch.float64)


def plain_abc(alpha):
    return alpha * (1 - alpha.square().sum(1, keepdim=True) + alpha)


def stratified_abc(alpha, n):
    """γ_i = α_i (1 − p_2 + α_i) − α_i (A_s/n_s − Σ_s A_s²/n_s), over n − 1 other generated and the rest."""
    strata = ((slice(None, n), n - 1), (slice(n, None), alpha.shape[1] - n))
    sums = [(members, alpha[:, members].sum(1, keepdim=True), size) for members, size in strata]
    total = sum(A.square() / size for _, A, size in sums)
    gamma = plain_abc(alpha)
    for members, A, size in sums:
        gamma[:, members] -= alpha[:, members] * (A / size - total)
    return gamma


def moved(alpha, gamma):
    return 0.5 * (gamma - alpha).abs().sum(1).mean()


def literal_energy(gen, pos):
    """2 E‖x − y‖ − E‖x − x′‖ − E‖y − y′‖ over pairs of different samples, divided by the mean over all pairs."""
    together = torch.cat((gen, pos))
    f = torch.nn.functional.normalize((together - together.mean(0)) / together.std(0), dim=-1).tolist()
    return torch.tensor(literal_ratio(f[: len(gen)], f[len(gen) :]), dtype=torch.float64)


def literal_ratio(x, y):
    def mean(pairs):
        distances = [math.dist(a, b) for a, b in pairs]
        return sum(distances) / len(distances)

    def different(points):
        return [(a, b) for i, a in enumerate(points) for j, b in enumerate(points) if i != j]

    energy = 2 * mean([(a, b) for a in x for b in y]) - mean(different(x)) - mean(different(y))
    return energy / mean(different(x + y))


@pytest.mark.parametrize("path", ["general", "gram"])
@pytest.mark.parametrize(("g", "n", "sizes"), [(3, 35, [17, 17]), (20, 61, [20] * 3), (4, 31, [31]), (40, 61, [61])])
def test_energy_of_many_positives_is_the_mean_over_blocks(path, g, n, sizes):
    """A block has at least 16 positives, and as many as there are generated features."""
    gen, pos, _, _ = feature_groups(g, n)
    both = torch.cat((gen, pos), -2)
    unit = torch.nn.functional.normalize((both - both.mean(-2, keepdim=True)) / both.std(-2, keepdim=True), dim=-1)
    x, y = unit[..., :g, :], unit[..., g : g + sum(sizes), :].split(sizes, -2)
    expected = [
        [sum(literal_ratio(x[c, s].tolist(), block[c, s].tolist()) for block in y) / len(y) for s in range(x.shape[1])]
        for c in range(x.shape[0])
    ]
    found = drift_loss(gen, pos, path=path).report.energy
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("path", ["general", "gram"])
def test_energy_is_zero_in_expectation_at_equal_distributions(path):
    """4,000 batches of 3 generated and 35 positive features; 4 standard errors, a false alarm in 16,000 runs."""
    generator = torch.Generator().manual_seed(0)
    gen, pos = (torch.randn(4000, rows, 3, generator=generator).exp() for rows in (3, 35))
    energy = drift_loss(gen, pos, path=path).report.energy
    error = energy.std() / len(energy) ** 0.5
    assert energy.mean().abs() < 4 * error
    biased = drift_loss(1.3 * gen, pos, path=path).report.energy  # negative control
    assert biased.mean() > 4 * error


@pytest.mark.parametrize("path", ["general", "gram"])
@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_every_entry_matches_its_formula(normalization, form, u, path):
    n = 5
    gen, pos, neg, weight_neg = feature_groups(n, 7, u)
    options = {"normalization": normalization, "form": form}
    groups = literal(gen, pos, neg, weight_neg, **options)
    report = drift_loss(gen, pos, neg, weight_neg=weight_neg, path=path, **options).report
    expected = {
        "force": each(groups, lambda field: field.V.square().mean().sqrt() * math.exp(field.log_scale)),
        "log_force": each(groups, lambda field: field.V.square().mean().log() / 2 + field.log_scale),
        "n_eff_pos": each(groups, lambda field: (1 / field.alpha_pos.square().sum(1)).mean()),
        "n_eff_neg": each(groups, lambda field: (1 / field.alpha_neg.square().sum(1)).mean()),
        "dominated_pos": each(groups, lambda field: (field.alpha_pos.max(1).values > 0.5).double().mean()),
        "dominated_neg": each(groups, lambda field: (field.alpha_neg.max(1).values > 0.5).double().mean()),
        "correction_pos": each(groups, lambda field: moved(field.alpha_pos, plain_abc(field.alpha_pos))),
        "correction_neg": each(
            groups,
            lambda field: moved(
                field.alpha_neg, stratified_abc(field.alpha_neg, n) if u else plain_abc(field.alpha_neg)
            ),
        ),
        "spread": torch.stack(
            [
                torch.stack([group.d[:, :n].sum() / (n * (n - 1)) / group.d[:, n + u :].mean() for group in row])
                for row in groups
            ]
        ),
        "energy": torch.stack(
            [
                torch.stack([literal_energy(gen[c, s], pos[c, s]) for s in range(gen.shape[1])])
                for c in range(gen.shape[0])
            ]
        ),
    }
    assert set(expected) == set(ENTRIES)
    for name, value in expected.items():
        torch.testing.assert_close(
            getattr(report, name), value, rtol=1e-9, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_correction_is_zero_without_a_correction():
    gen, pos, _, _ = feature_groups(5, 7)
    plain = drift_loss(gen, pos, estimator_pos="standard").report
    assert (plain.correction_pos == 0).all()
    assert (plain.correction_neg > 1e-3).any()


@pytest.mark.parametrize("path", ["general", "gram"])
def test_force_that_underflows_has_a_logarithm(path):
    """A collapsed batch far from its positives, row-normalized: S⁺ = e^−140 is 0 in float32."""
    generator = torch.Generator().manual_seed(0)
    gen = torch.randn(2, 2, 1, 384, generator=generator) + 1e-3 * torch.randn(2, 2, 5, 384, generator=generator)
    pos = torch.randn(2, 2, 7, 384, generator=generator)
    report = drift_loss(gen, pos, normalization="row", temperatures=(0.005, 0.05), path=path).report
    groups = literal(gen.double(), pos.double(), normalization="row", temperatures=(0.005, 0.05))
    expected = each(groups, lambda field: field.V.square().mean().log() / 2 + field.log_scale)
    assert expected[..., 0].max() < -150
    assert (report.force[..., 0] == 0).all()
    torch.testing.assert_close(report.log_force.double(), expected, rtol=0, atol=2e-2)


def test_force_falls_while_the_loss_stays_constant():
    """A sample that approaches the data: the loss stays 1, the force falls, the distance ratio goes to 1."""
    gen, _, _, _ = feature_groups(32, 32, D=8)
    noise = torch.randn(gen.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    pos = gen.flip(-2) + 0.5 * noise
    on_the_way = [drift_loss(gen + offset, pos, temperatures=(0.2,), form="separate") for offset in (3.0, 1.0, 0.0)]
    for found in on_the_way:
        torch.testing.assert_close(found.loss, torch.ones(2, 2).double(), rtol=1e-5, atol=0)
    far, nearer, there = (found.report.force for found in on_the_way)
    assert (far > 1.1 * nearer).all()
    assert (nearer > there).all()
    assert ((on_the_way[-1].report.spread - 1).abs() < 0.1).all()


def test_spread_is_near_zero_on_collapse():
    gen, pos, _, _ = feature_groups(6, 7)
    collapsed = gen[..., :1, :] + 1e-3 * gen
    assert (drift_loss(collapsed, pos).report.spread < 0.01).all()
    assert (drift_loss(gen, pos).report.spread > 0.2).all()


@pytest.mark.parametrize("path", ["general", "gram"])
def test_no_entry_has_a_gradient(path):
    gen, pos, neg, weight_neg = feature_groups(5, 7, 3)
    for side in (gen, pos, neg, weight_neg):
        side.requires_grad_()
    found = drift_loss(gen, pos, neg, weight_neg=weight_neg, path=path)
    assert found.loss.requires_grad
    for name in ENTRIES:
        assert not getattr(found.report, name).requires_grad
    assert not any(value.requires_grad for value in found.report.summary().values())


@pytest.mark.parametrize(
    ("path", "feature_scale"), [("general", "standardize-l2"), ("gram", "standardize-l2"), ("general", "none")]
)
def test_report_read_later_equals_report_read_at_once(path, feature_scale):
    """Entries are computed on first use; changing the batch in place before that has no effect."""
    sides = feature_groups(5, 7, 3)
    gen, pos, neg, weight_neg = sides
    options = {"weight_neg": weight_neg, "path": path, "feature_scale": feature_scale}
    at_once = drift_loss(gen, pos, neg, **options).report
    expected = {name: getattr(at_once, name).clone() for name in ENTRIES}
    late = drift_loss(gen, pos, neg, **options).report
    for side in sides:
        side.copy_(side.flip(-1) * 3 + 1)
    for name, value in expected.items():
        assert torch.equal(getattr(late, name), value), name
    changed = drift_loss(gen, pos, neg, **options).report  # negative control
    assert not torch.equal(changed.force, expected["force"])


@pytest.mark.parametrize("side", ["pos", "neg"])
def test_reading_a_report_does_not_change_the_random_numbers(side):
    gen, pos, _, _ = feature_groups(5, 7)
    options = {f"estimator_{side}": "bootstrap", "generator": torch.Generator().manual_seed(1)}
    report = drift_loss(gen, pos, **options).report
    before = torch.get_rng_state()
    assert (getattr(report, f"correction_{side}") > 0).any()
    assert torch.equal(torch.get_rng_state(), before)


def test_report_weights_are_computed_once_and_only_on_use(monkeypatch):
    gen, pos, _, _ = feature_groups(5, 7)
    report = drift_loss(gen, pos).report
    weighed, weigh = [], DriftReport._compute_weights
    monkeypatch.setattr(DriftReport, "_compute_weights", lambda self: weighed.append(1) or weigh(self))
    assert report.force.isfinite().all()
    assert weighed == []
    for name in ENTRIES:
        getattr(report, name)
    assert weighed == [1]


def test_summary_is_the_mean_over_groups():
    gen, pos, _, _ = feature_groups(5, 7)
    report = drift_loss(gen, pos).report
    summary = report.summary()
    assert set(summary) == set(ENTRIES) - {"log_force"}
    for name, value in summary.items():
        torch.testing.assert_close(value, getattr(report, name).mean((0, 1)))
    alone = drift_loss(gen[0, 0], pos[0, 0]).report
    torch.testing.assert_close(alone.summary()["n_eff_pos"], alone.n_eff_pos)


@pytest.mark.parametrize("path", ["general", "gram"])
def test_a_single_generated_feature(path):
    """Without negatives their entries and the distance ratio are 0, and so is the force of the product form."""
    gen, pos, _, _ = feature_groups(1, 7)
    product, separate = (drift_loss(gen, pos, form=form, path=path).report for form in ("product", "separate"))
    for report in (product, separate):
        for name in ("n_eff_neg", "dominated_neg", "correction_neg", "spread"):
            assert (getattr(report, name) == 0).all()
    assert (product.force == 0).all()
    assert (product.log_force == -math.inf).all()
    expected = each(literal(gen, pos, form="separate"), lambda field: field.V.square().mean().sqrt())
    torch.testing.assert_close(separate.force, expected, rtol=1e-9, atol=0)


def test_report_of_another_kernel_uses_its_weights():
    gen, pos, _, _ = feature_groups(4, 6, 0)
    report = drift_loss(
        gen, pos, temperatures=(0.5,), kernel="gaussian", normalization="row", feature_scale="none"
    ).report
    alpha = (-torch.cdist(gen, pos).square() / (2 * 0.5**2)).softmax(-1)
    n_eff = (1 / alpha.square().sum(-1)).mean(-1, keepdim=True)
    torch.testing.assert_close(report.n_eff_pos, n_eff, rtol=1e-9, atol=0)


def literal_statistics(log_w, estimator):
    """Return (n_eff, dominated, moved) of one window, from its log-weights as a list."""
    top = max(log_w)
    w = [math.exp(each - top) for each in log_w]
    alpha = [each / sum(w) for each in w]
    p_2 = sum(a * a for a in alpha)
    gamma = alpha if estimator == "standard" else [a * (1 - p_2 + a) for a in alpha]
    return 1 / p_2, float(max(alpha) > 0.5), sum(abs(a - c) for a, c in zip(alpha, gamma, strict=True)) / 2


@pytest.mark.parametrize("estimator", ["standard", "abc"])
@pytest.mark.parametrize("form", ["separate", "potential"])
@pytest.mark.parametrize(("g", "n", "s"), [(4, 9, 3), (6, 5, 5), (6, 4, 4), (4, 7, 3)])
def test_statistics_of_matched_weights_are_means_over_windows(g, n, s, form, estimator):
    """Blocks, one window, leave-one-out windows of the negatives, and ring windows; a loop over all of them."""
    gen, pos, _, _ = feature_groups(g, n)
    gen, pos = gen[0, 0], pos[0, 0]
    tau = 0.3
    options = {"normalization": "row", "form": form, "matched": True, "feature_scale": "none"}
    chosen = {"estimator_pos": estimator, "estimator_neg": estimator, "temperatures": (tau,)}
    report = drift_loss(gen, pos, **options, **chosen).report

    def log_weight(a, b):
        r = math.dist(a, b)
        sharp = math.log(tau * (r + tau)) if form == "potential" else 0.0
        return sharp - r / tau

    def windows(items):
        step = math.gcd(len(items), s)
        return [[items[(a + k) % len(items)] for k in range(s)] for a in range(0, len(items), step)]

    x, y = gen.tolist(), pos.tolist()
    sides = {
        "pos": [[log_weight(a, b) for b in w] for a in x for w in windows(y)],
        "neg": [[log_weight(a, b) for b in w] for i, a in enumerate(x) for w in windows(x[i + 1 :] + x[:i])],
    }
    for side, rows in sides.items():
        means = [
            sum(column) / len(rows) for column in zip(*(literal_statistics(r, estimator) for r in rows), strict=True)
        ]
        found = [getattr(report, f"{name}_{side}") for name in ("n_eff", "dominated", "correction")]
        torch.testing.assert_close(torch.cat(found), torch.tensor(means, dtype=torch.float64), rtol=1e-9, atol=1e-12)
        assert 1 <= means[0] <= s
