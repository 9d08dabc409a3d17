"""A headless Chromium that shows pages of this package, for tests that look at them."""

import base64
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
LISTEN = "window.alerted = []; window.alert = text => window.alerted.push(String(text));"
"""Runs before each page: alerts are collected instead of shown, so that no dialog blocks the test."""
SAVED = os.environ.get("TRUEDRIFT_SCREENSHOTS")
"""Directory for screenshots that a person can look at; none are written if it is not set."""


def which(*names):
    return next(filter(None, map(shutil.which, names)), None)


def start_browser(profile, logs=("browser",), downloads=None):
    """Start Chromium with an empty profile directory; skip the test if it or its driver is missing.

    `logs` are those that `get_log` may read; files are saved to `downloads`.
    """
    chromium, driver = which("chromium", "chromium-browser", "google-chrome"), which("chromedriver")
    missing = [name for name, found in (("chromium", chromium), ("chromedriver", driver)) if found is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not found on the PATH: run `make browser`")
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install 'truedrift[dev]'")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", dict.fromkeys(logs, "ALL"))
    if downloads is not None:
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    started.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LISTEN})
    return started


@dataclass(frozen=True)
class OpenPage:
    """A page in the browser, and the messages of the console while it was loaded."""

    browser: object
    log: list

    def value(self, script, *arguments):
        """Return the value of an expression; `arguments` of the script are the rest."""
        return self.browser.execute_script(f"return {script}", *arguments)

    def show(self, size, scheme="light", media="", motion="no-preference"):
        """Show the page on a screen of that size with that color scheme, or on paper; `motion` may be "reduce"."""
        width, height = size
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def wait(self, script):
        """Wait until an expression is true, for at most ten seconds."""
        deadline = time.monotonic() + 10
        while not self.value(script):
            assert time.monotonic() < deadline, script
            time.sleep(0.05)

    def wait_for_log(self, text):
        """Wait until the console contains the text, for at most ten seconds: a busy machine writes it late."""
        deadline = time.monotonic() + 10
        while not any(text in entry["message"] for entry in self.log):
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)
            self.log.extend(self.browser.get_log("browser"))

    def save(self, name):
        """Save a screenshot of the whole page, if screenshots are wanted."""
        if SAVED:
            shot = self.browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
            (Path(SAVED) / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


def open_page(browser, path, fragment=""):
    """Open a page and wait until it is loaded; an `onerror` runs before that."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(path.as_uri() + fragment)
    return OpenPage(browser, browser.get_log("browser"))
