"""A local page that draws samples: class, seed and strength, and a picture that follows them.

The page is made by gradio and is served on 127.0.0.1 only. A content security policy forbids the browser to request
anything from another host, and requests under another host name are refused (DNS rebinding). Analytics are off.
"""

import os
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from truedrift.errors import UserError, import_package
from truedrift.model import Model
from truedrift.share.card import escape_markdown
from truedrift.share.picture import MOST_CLASSES, draw_picture, makes_images
from truedrift.storage import scratch_directory

HOST = "127.0.0.1"
ALL = "all classes"
UNKNOWN_STRENGTHS = (1.0, 4.0)
"""Limits of the slider if the strengths of the training are unknown: those of the paper."""
LARGEST_SEED = 2**31 - 1
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "frame-ancestors 'none'; form-action 'self'; base-uri 'self'"
)
FONTS = {"font": ("system-ui", "sans-serif"), "font_mono": ("ui-monospace", "monospace")}
CSS = """
footer {display: none !important}
#samples img {image-rendering: pixelated; padding-top: 2.5rem; width: 100%; max-height: 85vh; object-fit: contain}
"""


@dataclass(frozen=True)
class Choice:
    """A class as the page lists it."""

    text: str
    classes: tuple[int, ...] | None
    """Numbers of the classes; None: all, or the first 20."""


def list_choices(model: Model) -> list[Choice]:
    """Return all classes, then each class. Texts are unique."""
    if len(model.classes) == 1:
        return [Choice(model.classes[0], (0,))]
    every = ALL if len(model.classes) <= MOST_CLASSES else f"the first {MOST_CLASSES} classes"
    names = [name or "(no name)" for name in model.classes]
    texts = [f"{name} ({k})" if names.count(name) > 1 or name == every else name for k, name in enumerate(names)]
    return [Choice(every, None), *(Choice(text, (k,)) for k, text in enumerate(texts))]


def make_page(model: Model, title: str) -> Any:
    """Build the page.

    Args:
        model: The model.
        title: The heading, plain text.

    Returns:
        Blocks of gradio.

    Raises:
        UserError: If gradio is not installed.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    gr: Any = import_package("gradio", "truedrift serve", "serve")
    choices = list_choices(model)
    by_text = {choice.text: choice.classes for choice in choices}
    known = model.strengths if model.has_guidance else None  # the slider of other models is hidden
    low, high = known or UNKNOWN_STRENGTHS

    def draw(text: str, seed: float | None, strength: float) -> tuple[np.ndarray, str]:
        classes = by_text.get(text, choices[0].classes)
        picture = draw_picture(
            model,
            classes=classes,
            seed=min(max(int(seed or 0), 0), LARGEST_SEED),
            strength=strength if model.has_guidance else None,
        )
        return picture.numpy(), _describe_rows(model) if classes is None else ""

    with gr.Blocks(title=f"truedrift: {title}", analytics_enabled=False) as page:
        gr.Markdown(f"# {escape_markdown(title)}\n\n{escape_markdown(repr(model))}")
        with gr.Row():
            with gr.Column(scale=1, min_width=240):
                texts = [choice.text for choice in choices]
                label = gr.Dropdown(texts, value=texts[0], label="class", visible=len(texts) > 1, elem_id="class")
                seed = gr.Number(0, label="seed", precision=0, minimum=0, maximum=LARGEST_SEED, elem_id="seed")
                strength = gr.Slider(
                    *(low, high, min(max(model.strength, low), high)),
                    step=0.05,
                    label="guidance strength",
                    visible=model.has_guidance,
                    elem_id="strength",
                )
            with gr.Column(scale=3, min_width=300):
                picture = gr.Image(
                    label="samples",
                    show_label=False,
                    type="numpy",
                    format="png",
                    interactive=False,
                    buttons=["download", "fullscreen"],
                    elem_id="samples",
                )
                rows = gr.Markdown(elem_id="rows")
        controls = [label, seed, strength]
        gr.on(
            [page.load, label.change, seed.change, strength.release],
            draw,
            controls,
            [picture, rows],
            show_progress="hidden",
            trigger_mode="always_last",
            api_visibility="private",
        )
    return page


def _describe_rows(model: Model) -> str:
    """Name the classes of the rows of a grid."""
    if not makes_images(model):
        return ""
    return escape_markdown(f"Rows from top to bottom: {', '.join(model.classes[:MOST_CLASSES])}.")


def open_socket(port: int) -> socket.socket:
    """Bind a port of 127.0.0.1; 0: any free one.

    Raises:
        UserError: If the port is in use or not allowed.
    """
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
    except OSError as error:
        bound.close()
        problem = f"is {port}, which cannot be used ({error.strerror})"
        raise UserError(
            problem, "must be a free port", "pass another one, or 0 for any free one", field="port"
        ) from None
    return bound


def serve_model(model: Model, title: str, bound: socket.socket, *, ready: Callable[[str], None], browser: bool) -> None:
    """Serve the page until the process is interrupted.

    Args:
        model: The model.
        title: The heading of the page.
        bound: A socket of `open_socket`.
        ready: Called with the address when the page can be opened.
        browser: Whether to open the address in a browser.

    Raises:
        UserError: If gradio is not installed.
    """
    with scratch_directory(Path(tempfile.gettempdir()), "truedrift-serve-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = str(folder)  # for pictures that the page shows
        gr: Any = import_package("gradio", "truedrift serve", "serve")
        uvicorn: Any = import_package("uvicorn", "truedrift serve", "serve")
        port = bound.getsockname()[1]
        theme = gr.themes.Base(**FONTS)
        options = {"theme": theme, "css": CSS, "footer_links": [], "show_error": True, "ssr_mode": False}
        app = gr.mount_gradio_app(
            _make_app(), make_page(model, title), "/", server_name=HOST, server_port=port, **options
        )

        def announce() -> None:
            address = f"http://{HOST}:{port}"
            ready(address)
            if browser:
                webbrowser.open(address)

        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        threading.Thread(target=_wait_until_started, args=(server, announce), daemon=True).start()
        with suppress(KeyboardInterrupt):  # uvicorn stops the server, then raises the signal again
            server.run(sockets=[bound])


def _make_app() -> Any:
    """Return an application that refuses other hosts and sends the policy with every response."""
    fastapi: Any = import_package("fastapi", "truedrift serve", "serve")
    hosts: Any = import_package("starlette.middleware.trustedhost", "truedrift serve", "serve")
    app = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(hosts.TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    app.add_middleware(_PolicyMiddleware)
    return app


class _PolicyMiddleware:
    """Adds headers to every HTTP response."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = {"content-security-policy": POLICY, "referrer-policy": "no-referrer"}
                encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
                message = {**message, "headers": [*message.get("headers", []), *encoded]}
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _wait_until_started(server: Any, announce: Callable[[], None]) -> None:
    pause = threading.Event()
    while not server.started and not server.should_exit:
        pause.wait(0.05)
    if server.started:
        announce()
