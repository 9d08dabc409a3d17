"""The page of `truedrift explore` in headless Chromium: its mathematics is that of the library, it shows the numbers it
computes, and it obeys mouse, finger and keyboard.

The controls are a page whose ABC has a flipped sign, and a page whose script does not have the hash of its policy.
"""

import math
import re

import pytest
import torch
from oracles.browser import OpenPage, open_page

from truedrift import centroid, drift, estimator, exact_moments
from truedrift.data.toys import FOUR_MODES
from truedrift.kernels import gaussian, laplace
from truedrift.kernels.weights import effective_sample_size, softmax
from truedrift.page import explore as explore_module
from truedrift.page.explore import write_explore
from truedrift.paper import particles

webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install 'truedrift[dev]'")

DESKTOP, PHONE = (1280, 900), (390, 844)
ESTIMATORS = ("standard", "abc", "abc2", "jackknife")
KERNELS = {"laplace": laplace, "gaussian": gaussian}
STANDARD_ERRORS = 4
"""Allowed distance of a measured mean from the exact one. Along a line it is exceeded with probability 6.3e-5, in the
plane more rarely. There are 16 comparisons, so a new seed would raise a false alarm with a probability below 0.1 %."""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_explore(tmp_path_factory.mktemp("explore") / "index.html")


@pytest.fixture(scope="module")
def opened(browser, path):
    """The page, opened once."""
    return open_page(browser, path)


@pytest.fixture
def page(opened, path):
    """The page with the settings of the start, on a desktop. No test may leave a message in the console."""
    opened.show(DESKTOP)
    if not opened.browser.current_url.startswith(path.as_uri()):
        opened.browser.get(path.as_uri())
    opened.browser.execute_script("explore.settings.change(explore.decodeState('')); explore.panels.particles.reset()")
    yield OpenPage(opened.browser, opened.log)
    assert opened.log + opened.browser.get_log("browser") == []


def points(count, seed, scale=1.0):
    return scale * torch.randn(count, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_equal(found, expected, *, atol=1e-14):
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected.double(), rtol=1e-6, atol=atol)


# Mathematics against the library


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_and_weights_are_those_of_the_library(page, kernel):
    x, y = points(1, 0), points(9, 1)
    for tau in (0.02, 0.3, 2.0):  # at 0.02 one reference dominates
        log_w = KERNELS[kernel](x, y, tau)[0]
        found = page.value("explore.computeLogWeights(...arguments)", x[0].tolist(), y.tolist(), tau, kernel)
        assert_equal(found, log_w)
        assert_equal(page.value("Array.from(explore.computeSoftmax(...arguments))", found), softmax(log_w))
        for name in ESTIMATORS:
            gamma = page.value("Array.from(explore.computeGamma(...arguments))", name, found)
            assert_equal(gamma, estimator(name).reweight(log_w))


MINIBATCHES = """(([x, pool, tau, kernel, n]) => {
  const sums = new explore.MinibatchSums(x, pool, tau, kernel, n, 3);
  const centroids = [], indices = [];
  for (let m = 0; m < 5; m++) {
    centroids.push(sums.addDraw());
    indices.push(Array.from(explore.drawReferences(3, m, n, pool.length)));
  }
  return { centroids, indices, target: sums.target, nEff: sums.meanEffectiveSize };
})(arguments)"""


@pytest.mark.parametrize(("tau", "kernel", "n"), [(1.0, "laplace", 4), (0.02, "laplace", 2), (0.1, "gaussian", 64)])
def test_centroids_of_minibatches_are_those_of_the_library(page, tau, kernel, n):
    x, pool = points(1, 2), points(50, 3)
    found = page.value(MINIBATCHES, x[0].tolist(), pool.tolist(), tau, kernel, n)
    y = pool[torch.tensor(found["indices"])]  # [5, n, 2]
    for name in ESTIMATORS:
        expected = centroid(x, y, tau=tau, kernel=kernel, estimator=name)[:, 0]
        assert_equal([each[name] for each in found["centroids"]], expected)
    alpha = softmax(KERNELS[kernel](x, y, tau)[:, 0])
    assert_equal(found["nEff"], effective_sample_size(alpha).mean())
    assert_equal(found["target"], centroid(x, pool, tau=tau, kernel=kernel, estimator="standard")[0])


EXACT = """(([queries, pool, tau, kernel, sizes, names]) => queries.map(x => {
  const exact = new explore.ExactBias(x, pool, tau, kernel);
  return names.map(name => sizes.map(n => exact.computeBias(name, n)));
}))(arguments)"""


@pytest.mark.parametrize("kernel", KERNELS)
def test_exact_biases_are_those_of_the_library(page, kernel):
    pool = torch.tensor(page.value("explore.panels.bias.points"), dtype=torch.float64)
    x, sizes = torch.tensor([[-0.7, 0.1], [2.2, -1.5]], dtype=torch.float64), (2, 3, 16, 512)
    for tau in (0.2, 1.0, 5.0):
        found = page.value(EXACT, x.tolist(), pool.tolist(), tau, kernel, sizes, ESTIMATORS)
        for k, name in enumerate(ESTIMATORS):
            moments = exact_moments(x, pool, tau=tau, n=sizes, estimator=name, kernel=kernel)
            # Rounding: 1e-13 of the size of the pool, times n for the jackknife, a difference of two terms with n
            atol = 1e-13 * (512 if name == "jackknife" else 1)
            assert_equal([each[k] for each in found], moments.bias, atol=atol)


@pytest.mark.parametrize("matched", [False, True])
@pytest.mark.parametrize(
    ("n", "g"), [(21, 8), (10, 8), (8, 8), (3, 8)]
)  # blocks, a ring, leave-one-out, split negatives
def test_the_field_is_that_of_the_library(page, n, g, matched):
    group, positives = points(g, 4, 0.5), points(n, 5, 0.5)
    for kernel, name in (("laplace", "standard"), ("laplace", "abc"), ("gaussian", "abc2")):
        options = {"tau": 0.2, "kernel": kernel, "estimator": name, "matched": matched}
        found = page.value("explore.computeField(...arguments)", group.tolist(), positives.tolist(), options)
        expected = drift(
            group,
            positives,
            group,
            tau=0.2,
            kernel=kernel,
            estimator_pos=name,
            estimator_neg=name,
            matched=matched,
            self_mask=True,
        )
        assert_equal(found, expected.V)


def test_the_energy_distance_is_that_of_the_library(page):
    x, std = points(40, 6, 0.7), FOUR_MODES.std
    found = page.value("explore.computeEnergyDistance(...arguments)", x.tolist(), FOUR_MODES.means, std)
    pairs = particles.compute_mean_pair_distance(x.numpy())  # over i ≠ j; the page also counts i = j
    expected = particles.energy_distance(x, FOUR_MODES) + pairs / len(x)
    assert found["energy"] == pytest.approx(expected, rel=1e-6)
    means = torch.tensor(FOUR_MODES.means, dtype=torch.float64)
    among = particles.mean_distance(torch.cdist(means, means), math.sqrt(2) * std).mean() / len(x)
    assert found["expected"] == pytest.approx(float(among), rel=1e-6)
    deviation = x.square().sum(-1).mean() / (0.5 + 2 * std**2)
    radius = page.value("explore.computeRadiusRatio(...arguments)", x.tolist(), FOUR_MODES.means, std)
    assert radius == pytest.approx(float(deviation.sqrt()), rel=1e-6)


# Monte Carlo against the exact values

RATIOS = """(() => {
  const ratios = {};
  for (const [n, tau, kernel] of [[4, 1, "laplace"], [16, 0.3, "laplace"], [8, 0.5, "gaussian"], [2, 2, "gaussian"]]) {
    const { query } = explore.settings.values, { points } = explore.panels.bias;
    const exact = new explore.ExactBias(query, points, tau, kernel);
    const sums = new explore.MinibatchSums(query, points, tau, kernel, n, 0);
    while (sums.count < 10000) sums.addDraw();
    for (const name of ["standard", "abc", "abc2", "jackknife"]) {
      const { bias, error } = sums.summarize(name), [a, b] = exact.computeBias(name, n);
      ratios[`${name} n=${n}`] = Math.hypot(bias[0] - a, bias[1] - b) / error;
    }
  }
  return ratios;
})()"""


def test_measured_means_agree_with_the_exact_ones(page):
    ratios = page.value(RATIOS)
    assert len(ratios) == 16
    assert max(ratios.values()) < STANDARD_ERRORS, ratios
    assert max(ratios.values()) > 0.3  # the errors are not overestimated: 16 ratios below 0.3 would be a surprise


def test_control_a_flipped_sign_of_abc_is_found(browser, tmp_path, monkeypatch):
    read = explore_module.read_resource
    sign, flipped = "[T[0] + D2[0], T[1] + D2[1]]", "[T[0] - D2[0], T[1] - D2[1]]"
    assert read("explore_centroids.js").count(sign) == 1
    monkeypatch.setattr(explore_module, "read_resource", lambda name: read(name).replace(sign, flipped))
    ratios = open_page(browser, write_explore(tmp_path / "index.html")).value(RATIOS)
    wrong = {name.split()[0] for name, ratio in ratios.items() if ratio >= STANDARD_ERRORS}
    assert wrong == {"abc"}


# Mouse, finger and keyboard


def shown_state(page, draws=50):
    """Wait until the page shows that many minibatches of its settings; return the query and the exact numbers."""
    page.wait(f"(panel => panel.sums.count >= {draws} && !panel.areSumsOld)(explore.panels.bias)")
    texts = page.value("[...document.querySelectorAll('[id^=exact-], #bias-length')].map(each => each.textContent)")
    return tuple(page.value("explore.settings.values.query")), texts


def assert_numbers_are_computed(page):
    """Compare the numbers on the page with the library and with sums over the same minibatches."""
    shown_state(page, draws=10_000)
    state = page.value("explore.settings.values")
    pool = torch.tensor(page.value("explore.panels.bias.points"), dtype=torch.float64)
    x = torch.tensor([state["query"]], dtype=torch.float64)
    script = """(([n]) => { const { query, tau, kernel } = explore.settings.values;
      const sums = new explore.MinibatchSums(query, explore.panels.bias.points, tau, kernel, n, 0);
      while (sums.count < 10000) sums.addDraw();
      const summaries = Object.keys(sums.sums).map(name => [name, sums.summarize(name)]);
      return [sums.meanEffectiveSize, Object.fromEntries(summaries)];
    })(arguments)"""
    n_eff, sums = page.value(script, state["n"])
    for name in ESTIMATORS:
        moments = exact_moments(x, pool, tau=state["tau"], n=state["n"], estimator=name, kernel=state["kernel"])
        shown = page.value(
            f"['exact', 'measured', 'rms'].map(each => document.getElementById(each + '-{name}').textContent)"
        )
        exact, bias, error, rms = (float(text) for text in re.split(r"\s*±\s*|\s+", " ".join(shown)))
        assert exact == pytest.approx(float(moments.bias.norm()), rel=0.006)  # three digits
        assert bias == pytest.approx(math.hypot(*sums[name]["bias"]), rel=0.006)
        assert error == pytest.approx(sums[name]["error"], rel=0.06)
        assert rms == pytest.approx(sums[name]["rms"], rel=0.006)
        if name == state["estimator"]:
            assert float(page.value("document.getElementById('bias-length').textContent")) == exact
    shown_n_eff, _, shown_n = page.value("document.getElementById('n-eff').textContent").split()
    assert float(shown_n_eff) == pytest.approx(n_eff, rel=0.006)
    assert int(shown_n) == state["n"]


def test_numbers_at_the_start_are_computed(page):
    assert_numbers_are_computed(page)


def test_the_mouse_drags_query_and_clusters(page):
    (query, before) = shown_state(page)
    handle = page.browser.find_element("css selector", ".handle.query")
    webdriver.ActionChains(page.browser, duration=0).drag_and_drop_by_offset(handle, 60, -30).perform()
    (moved, after) = shown_state(page)
    scale = page.value("explore.panels.bias.plane.scale")
    assert moved == pytest.approx((query[0] + 60 / scale, query[1] + 30 / scale), abs=0.0011)  # rounded to 0.001
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert_numbers_are_computed(page)
    pool = page.value("explore.panels.bias.points")
    cluster = page.browser.find_element("css selector", ".handle.cluster")
    webdriver.ActionChains(page.browser, duration=0).drag_and_drop_by_offset(cluster, 0, 50).perform()
    shown_state(page)
    shifts = {round(a[1] - b[1], 3) for a, b in zip(pool, page.value("explore.panels.bias.points"), strict=True)}
    assert shifts == {0.0, round(50 / scale, 3)}
    assert_numbers_are_computed(page)


def test_a_finger_drags_the_query_and_scrolls_elsewhere(page):
    page.show(PHONE)
    page.value("document.querySelector('.handle.query').scrollIntoView({ block: 'center' })")
    query, before = shown_state(page)
    box = page.value("document.querySelector('.handle.query').getBoundingClientRect().toJSON()")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for kind, place in (("touchStart", [(x, y)]), ("touchMove", [(x + 20, y + 40)]), ("touchEnd", [])):
        touches = [{"x": a, "y": b} for a, b in place]
        page.browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})
    moved, after = shown_state(page)
    scale = page.value("explore.panels.bias.plane.scale")
    assert moved == pytest.approx((query[0] + 20 / scale, query[1] - 40 / scale), abs=0.0011)
    assert all(a != b for a, b in zip(before, after, strict=True))
    actions = page.value(
        "['.handle', '.plane', 'canvas'].map(e => getComputedStyle(document.querySelector(e)).touchAction)"
    )
    assert actions == ["none", "auto", "auto"]


def test_keys_move_the_query_and_the_focus_is_visible(page):
    query, before = shown_state(page)
    handle = page.browser.find_element("css selector", ".handle.query")
    cluster = page.browser.find_element("css selector", ".handle.cluster:nth-of-type(3)")
    cluster.send_keys(webdriver.Keys.TAB)  # the query follows the clusters
    assert page.browser.switch_to.active_element == handle
    assert page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    handle.send_keys(webdriver.Keys.ARROW_RIGHT, webdriver.Keys.ARROW_UP, webdriver.Keys.SHIFT, webdriver.Keys.ARROW_UP)
    moved, after = shown_state(page)
    assert moved == pytest.approx((query[0] + 0.05, query[1] + 0.05 + 0.25))
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert "query at -0.65, 0.40" in handle.get_attribute("aria-label")
    page.wait("document.getElementById('bias-status').textContent.includes('Bias of standard')")
    slider = page.browser.find_element("id", "n")
    slider.send_keys(webdriver.Keys.END)
    assert page.value("explore.settings.values.n") == 512
    assert page.value("document.getElementById('n').getAttribute('aria-valuetext')") == "512"
    slider.send_keys(webdriver.Keys.HOME)
    assert page.value("explore.settings.values.n") == 2
    assert_numbers_are_computed(page)


def test_choices_change_the_numbers(page):
    page.browser.find_element("css selector", "input[value=jackknife]").click()
    page.browser.find_element("css selector", "input[value=gaussian]").click()
    shown_state(page)
    assert page.value("document.querySelector('tr.chosen').id") == "row-jackknife"
    assert_numbers_are_computed(page)


def test_sentences_about_the_bias_are_true(page):
    found = {}
    for name in ("start", "abc", "many", "cold", "flat"):
        page.value(f"document.querySelector('button[value={name}]').click()")
        shown_state(page, draws=2_000)
        biases, n_eff = page.value("(p => [p.biases, p.sums.meanEffectiveSize])(explore.panels.bias)")
        found[name] = {each: math.hypot(*bias) for each, bias in biases.items()}, n_eff
        rms = page.value("['standard', 'abc'].map(each => explore.panels.bias.sums.summarize(each).rms)")
        assert rms[1] == pytest.approx(rms[0], rel=0.1)  # the cloud stays as wide
    assert found["abc"][0]["abc"] < found["start"][0]["standard"] / 2
    assert 50 < found["many"][0]["standard"] / found["many"][0]["abc"] < 200
    cold, n_eff = found["cold"]
    assert n_eff < 2
    assert cold["abc"] == pytest.approx(cold["standard"], rel=0.1)
    assert cold["jackknife"] > 1.5 * cold["standard"]
    assert found["flat"][0]["standard"] < found["start"][0]["standard"] / 4


def test_the_sentence_is_gray_when_the_settings_are_others(page):
    marked = "#bias-tries [aria-pressed=true], .sentence.old strong"
    read = f"[...document.querySelectorAll('{marked}')].map(each => each.textContent)"
    assert page.value(read) == ["4 references"]
    page.value("document.querySelector('button[value=many]').click()")
    assert page.value(read) == ["64 references"]
    page.value("explore.settings.change({ n: 8 })")
    assert page.value(read) == ["64 references:"]


# Particles

FLOW = """((matched) => {
  const panel = explore.panels.particles, options = { ...panel.options, matched };
  panel.reset();
  while (panel.flow.steps < 120) panel.flow.move(options);
  const { points } = panel.flow;
  const { energy } = explore.computeEnergyDistance(points, options.modes, panel.flow.std);
  return [energy, explore.computeRadiusRatio(points, options.modes, panel.flow.std)];
})(arguments[0])"""


def test_unmatched_particles_move_too_far_outside_and_matched_ones_onto_the_data(page):
    """After 120 steps, long after the particles have reached the modes."""
    (energy, radius), (matched_energy, matched_radius) = page.value(FLOW, False), page.value(FLOW, True)
    assert radius > 1.15
    assert 0.95 < matched_radius < 1.08
    assert energy > 4 * matched_energy


def test_particles_play_until_they_rest_and_start_again_in_another_field(page):
    assert page.value("[explore.panels.particles.flow.steps, explore.panels.particles.isPlaying]") == [0, False]
    page.value("document.querySelector('button[value=equal]').click()")  # they rest after few steps
    page.wait("!explore.panels.particles.isPlaying")
    steps, energy = page.value("[explore.panels.particles.flow.steps, explore.panels.particles.distance.energy]")
    assert (
        page.value("document.getElementById('field-status').textContent") == f"The particles rest after {steps} steps."
    )
    assert float(page.value("document.getElementById('energy').textContent")) == pytest.approx(energy, rel=0.006)
    # Another field moves them again, until the user stops them
    page.value("explore.settings.change({ generated: 8 })")
    page.wait(f"explore.panels.particles.flow.steps > {steps}")
    page.browser.find_element("id", "play").click()
    paused = page.value("explore.panels.particles.flow.steps")
    page.browser.find_element("id", "step").click()
    assert page.value("explore.panels.particles.flow.steps") == paused + 1
    page.browser.find_element("id", "reset").click()
    assert page.value("document.getElementById('field-step').textContent") == "0"


def test_less_motion_shows_fewer_pictures(page):
    page.show(DESKTOP, motion="reduce")
    counted = """(() => { const panel = explore.panels.particles, show = panel.show; panel.shown = 0;
      panel.show = function () { this.shown += 1; show.call(this); } })()"""
    page.value(counted)
    page.value("document.querySelector('button[value=equal]').click()")
    page.wait("!explore.panels.particles.isPlaying")
    steps, shown = page.value("[explore.panels.particles.flow.steps, explore.panels.particles.shown]")
    page.value("delete explore.panels.particles.show")
    assert steps > 60
    assert shown <= 4 + steps / 50


# Address, screens and policy


def test_the_address_keeps_the_settings_and_other_text_changes_nothing(browser, path):
    def settings(fragment):
        opened = open_page(browser, path, fragment)
        assert opened.log == []
        return opened.value("explore.settings.values"), opened

    start, _ = settings("")
    changed, opened = settings("#n=64&estimator=abc2&query=0.5,-9&tau=0.123")
    assert changed == start | {"n": 64, "estimator": "abc2", "query": [0.5, -1.6], "tau": 0.123}
    opened.wait("document.getElementById('n-eff').textContent.endsWith('of 64')")
    opened.value("explore.settings.change({ kernel: 'gaussian', clusters: [[0, 0], [1, 1], [-1, 1]] })")
    opened.wait("location.hash.includes('gaussian')")
    written = opened.value("location.hash")
    assert settings(written)[0] == changed | {"kernel": "gaussian", "clusters": [[0, 0], [1, 1], [-1, 1]]}
    hostile = "#n=NaN&tau=&query=1&kernel=constructor&toString=1&__proto__=2&clusters=1,2,x&estimator=<b>&g=-1&n=1e999"
    assert settings(hostile)[0] == start


def luminance(color):
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_have_contrast_and_the_canvas_follows_the_scheme(page, scheme):
    page.show(DESKTOP, scheme)
    read = "(name => getComputedStyle(document.documentElement).getPropertyValue('--' + name))(arguments[0])"
    paper = page.value(read, "paper")
    assert (luminance(paper) > 0.5) == (scheme == "light")
    texts, marks = ("ink", "soft", "link"), ("target", *ESTIMATORS, "unmatched", "matched")
    for ground in (paper, page.value(read, "card")):
        assert min(contrast(page.value(read, name), ground) for name in texts) >= 4.5
        assert min(contrast(page.value(read, name), ground) for name in marks) >= 3
    shown_state(page)
    pixel = """(({ plane, exact }) => {
      const [x, y] = plane.toPixels(exact.target).map(value => value * devicePixelRatio);
      const copy = new OffscreenCanvas(1, 1).getContext("2d");
      copy.drawImage(plane.canvas, -Math.round(x), -Math.round(y));
      return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3);
    })(explore.panels.bias)"""
    target = page.value(read, "target")
    page.wait(f"String({pixel}) === '{','.join(str(int(target[k : k + 2], 16)) for k in (1, 3, 5))}'")
    page.save(f"explore-{scheme}")


@pytest.mark.parametrize("size", [DESKTOP, (901, 700), PHONE, (320, 600)])
def test_the_page_never_scrolls_sideways(page, size):
    page.show(size)
    for n in (4, 512):  # small numbers have exponents
        page.value(f"explore.settings.change({{ n: {n}, estimator: 'abc' }})")
        shown_state(page)
        assert page.value("document.documentElement.scrollWidth") <= size[0]
    page.save(f"explore-{size[0]}")


def test_canvases_are_sharp_on_fine_screens(page):
    screen = {"width": 800, "height": 600, "deviceScaleFactor": 3, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    page.wait("[...document.querySelectorAll('canvas')].every(e => e.width === Math.round(e.clientWidth * 3))")


def test_the_policy_allows_this_script_and_style_alone(page):
    policy = page.value("document.querySelector('meta[http-equiv]').content")
    assert re.fullmatch(
        r"default-src 'none'; img-src data:; style-src 'sha256-[\w+/]{43}='; script-src 'sha256-[\w+/]{43}='; "
        "base-uri 'none'; form-action 'none'",
        policy,
    )
    assert (
        page.value("performance.getEntriesByType('resource').filter(each => !each.name.startsWith('data:')).length")
        == 0
    )
    assert page.value("location.protocol") == "file:"


def test_control_a_changed_script_does_not_run(browser, path, tmp_path):
    changed = tmp_path / "changed.html"
    changed.write_text(path.read_text().replace("window.explore = {", "window.explore = { changed: true,"))
    opened = open_page(browser, changed)
    opened.wait_for_log("Content Security Policy")
    assert opened.value("typeof window.explore") == "undefined"
