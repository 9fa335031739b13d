"""A real browser: Chromium without a window, driven by selenium; and what a page needs to hinder nobody."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webelement import WebElement

HERE = Path(__file__).parent
HOME = HERE.parents[1]
SCREENSHOTS = Path(os.environ.get("HOLDFAST_SCREENSHOTS", HOME / "var" / "screenshots"))
"""Where the screenshots of a test run are kept."""
WITHIN_S = 500.0
"""How long a busy machine may take. A console that has waited half a minute for its
brokers asks them again after five minutes."""
WIDE, NARROW = (1280, 900), (400, 860)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-proxy-server", "--force-device-scale-factor=1", "--hide-scrollbars",
)  # fmt: skip

CONTRAST = (HERE / "contrast.js").read_text()
"""Finds the texts that do not stand out from what is behind them."""

STRUCTURE = (HERE / "structure.js").read_text()
"""Finds what hinders people who use a keyboard or a screen reader."""


class Browser:
    """Chromium with a profile of its own."""

    def __init__(self, profile: Path) -> None:
        program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
        driver = shutil.which("chromedriver")
        if program is None or driver is None:
            pytest.skip("no browser: install chromium and chromium-driver")
        options = ChromeOptions()
        options.binary_location = program
        for option in (*OPTIONS, f"--user-data-dir={profile}", f"--window-size={WIDE[0]},{WIDE[1]}"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = "localhost,127.0.0.1"
        try:
            self.driver = Chrome(options, Service(driver))
        except WebDriverException as error:
            pytest.skip(f"no browser: chromium does not start here: {error.msg}")
        self.driver.set_page_load_timeout(WITHIN_S)
        self.driver.set_script_timeout(WITHIN_S)

    def open(self, address: str) -> None:
        self.driver.get(address)

    def open_until(self, address: str, what: str, is_so: Callable[[], Any]) -> Any:
        """Open a page, again and again, until it shows what is so; its value. Reading for a page ends after
        some seconds, which a busy machine may need before the first message."""

        def opened() -> Any:
            self.open(address)
            return is_so()

        return self.wait(what, opened)

    def leave(self) -> None:
        """Leave a page whose console ends: what a page misses then is a complaint."""
        self.open("about:blank")
        self.complaints()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str = "main") -> str:
        """What a part of the page says."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText || ''", selector))

    def wait(self, what: str, is_so: Callable[[], Any]) -> Any:
        """Wait until something is so; its value. Parts of the page may be renewed meanwhile."""
        until_s = time.monotonic() + WITHIN_S
        while time.monotonic() < until_s:
            try:
                if value := is_so():
                    return value
            except StaleElementReferenceException:
                pass
            time.sleep(0.1)
        pytest.fail(f"waited for: {what}\n{self.text('body')[:3000]}")

    def found(self, by: str, name: str) -> WebElement:
        """An element of the page, once it is there."""
        (first, *_) = self.wait(f"{by} {name}", lambda: self.driver.find_elements(by, name))
        assert isinstance(first, WebElement)
        return first

    def dress(self, scheme: str) -> None:
        """Choose light or dark, as the system would."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def await_page(self, title: str) -> None:
        """Wait until the page with this heading is there, and its script has run: keys need it."""
        ready = "return document.readyState === 'complete'"
        self.wait(title, lambda: self.text("h1") == title and self.run(ready))

    def picture(self, name: str) -> None:
        """Keep a screenshot of the whole page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        height = self.run("return Math.max(document.documentElement.scrollHeight, arguments[0])", WIDE[1])
        width = self.run("return window.innerWidth")
        self.size(width, min(int(height), 4_000))
        self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))
        self.size(width, WIDE[1])

    def complaints(self) -> list[str]:
        """What the browser has complained about since the last call: refused styles and scripts, errors."""
        return [row["message"] for row in self.driver.get_log("browser") if row["level"] == "SEVERE"]

    def hindrances(self) -> list[str]:
        """What hinders people: structure without names, texts without contrast."""
        return [*self.run(STRUCTURE), *self.run(CONTRAST)]

    def close(self) -> None:
        self.driver.quit()
