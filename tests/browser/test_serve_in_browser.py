"""`truedrift serve` in Chromium: the picture follows the controls, and the page requests nothing from another host."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from oracles.browser import OpenPage, start_browser
from PIL import Image

import truedrift
from truedrift.generators import ConvOptions, build
from truedrift.model import Model
from truedrift.share.picture import draw_picture

pytest.importorskip("gradio", reason="no gradio: pip install 'truedrift[serve]'")
CLASSES = ("<img src=x onerror=alert(1)>", "cat & *dog*", "plain")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    options = ConvOptions(widths=(8,), noise=5, condition=8, embedding=4)
    generator = build(options, sample_shape=(3, 8, 8), classes=3, seed=0)
    folder = tmp_path_factory.mktemp("served") / "<b>served</b>".replace("/", "_")
    return Model(generator, CLASSES, (0.5, 0.25, 0.25), strength=2.0, strengths=(1.0, 3.0)).save(folder)


@pytest.fixture(scope="module")
def server(model):
    """The address of the page, and the process."""
    command = [sys.executable, "-m", "truedrift", "serve", str(model), "--port", "0", "--no-browser"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = process.stdout.readline()
        assert line.startswith("page: http://127.0.0.1:"), line + process.stderr.read()
        yield line.split()[1], process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def page(server, downloads, tmp_path_factory):
    browser = start_browser(tmp_path_factory.mktemp("profile"), ("browser", "performance"), downloads)
    try:
        browser.set_window_size(1100, 800)
        browser.get(server[0])
        yield OpenPage(browser, browser.get_log("browser"))
    finally:
        browser.quit()


def picture_address(page):
    return page.value("(document.querySelector('#samples img') || {}).src || ''")


def shown(page, before=""):
    """Wait for a picture other than `before`; return its address and its pixels."""
    deadline = time.monotonic() + 20
    while (address := picture_address(page)) in ("", before):
        assert time.monotonic() < deadline, "the picture does not change"
        time.sleep(0.05)
    with urllib.request.urlopen(address) as response:
        return address, np.asarray(Image.open(io.BytesIO(response.read())).convert("RGB"))


def set_number(page, selector, value):
    field = page.browser.find_element("css selector", selector)
    field.clear()
    field.send_keys(str(value), "\t")


def test_the_picture_follows_class_seed_and_strength(page, model):
    loaded = truedrift.load(model)
    address, pixels = shown(page)
    np.testing.assert_array_equal(pixels, draw_picture(loaded).numpy())
    page.save("serve")
    page.wait("document.querySelector('#rows').textContent.includes('Rows')")
    assert page.value("document.querySelector('#rows').innerText.trim()") == (
        f"Rows from top to bottom: {', '.join(CLASSES)}."
    )
    # Another class, by its name.
    page.browser.find_element("css selector", "#class input").click()
    options = page.browser.find_elements("css selector", "ul[role=listbox] li")
    assert [each.text.removeprefix("✓").strip() for each in options] == ["all classes", *CLASSES]
    options[2].click()
    address, pixels = shown(page, address)
    np.testing.assert_array_equal(pixels, draw_picture(loaded, classes=[1]).numpy())
    # Another seed, and another strength.
    set_number(page, "#seed input", 7)
    address, pixels = shown(page, address)
    np.testing.assert_array_equal(pixels, draw_picture(loaded, classes=[1], seed=7).numpy())
    set_number(page, "#strength input[type=number]", 3)
    address, pixels = shown(page, address)
    expected = draw_picture(loaded, classes=[1], seed=7, strength=3.0).numpy()
    np.testing.assert_array_equal(pixels, expected)
    assert not np.array_equal(expected, draw_picture(loaded, classes=[1], seed=7).numpy())


def test_the_picture_is_saved_as_png(page, downloads):
    _, pixels = shown(page)
    page.browser.find_element("css selector", "#samples [aria-label=Download], #samples a[download]").click()
    deadline = time.monotonic() + 10
    while not (saved := [path for path in Path(downloads).iterdir() if path.suffix == ".png"]):
        assert time.monotonic() < deadline, list(Path(downloads).iterdir())
        time.sleep(0.05)
    content = saved[0].read_bytes()
    assert content.startswith(b"\x89PNG")
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content)).convert("RGB")), pixels)


def requested_hosts(page):
    """Hosts of all requests, in frames, workers and styles, that the browser has made so far."""
    messages = (json.loads(entry["message"])["message"] for entry in page.browser.get_log("performance"))
    sent = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    # The empty tab of Chromium has pages of its own: chrome://…
    return {
        urlsplit(address).hostname for address in sent if urlsplit(address).scheme in ("http", "https", "ws", "wss")
    }


def test_nothing_is_requested_from_another_host(page):
    shown(page)
    assert requested_hosts(page) == {"127.0.0.1"}
    # The control: such a request is seen, and the policy refuses it.
    refused = "fetch('http://192.0.2.1/').then(() => false, () => true)"
    assert page.browser.execute_async_script(f"const end = arguments[0]; {refused}.then(end)")
    page.wait_for_log("Content Security Policy")
    assert requested_hosts(page) <= {"127.0.0.1", "192.0.2.1"}


def test_names_are_shown_as_text(page):
    assert page.value("window.alerted") == []
    assert page.value("document.querySelector('h1').textContent.trim()") == "<b>served<_b>"
    assert page.value("document.querySelectorAll('h1 b, img[src=x]').length") == 0


def test_other_host_names_are_refused(server):
    request = urllib.request.Request(server[0], headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(request)


def test_a_port_in_use_is_one_line(server, model, capsys):
    from truedrift.cli import main

    port = urlsplit(server[0]).port
    assert main(["serve", str(model), "--port", str(port), "--no-browser"]) == 2
    assert capsys.readouterr().err == (
        f"truedrift: error: port is {port}, which cannot be used (Address already in use); must be a free port; "
        "pass another one, or 0 for any free one\n"
    )


def test_ctrl_c_ends_it_quietly_while_a_page_is_open(page, server):
    _, process = server
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=20)
    assert (printed, errors, process.returncode) == ("stopped\n", "", 0)
