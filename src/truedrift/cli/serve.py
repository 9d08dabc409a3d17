"""`truedrift serve RUN`: a local page that draws samples."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from truedrift.cli.sample import RUN_HELP
from truedrift.errors import UserError, import_package
from truedrift.model import load
from truedrift.share.serve import open_socket, serve_model

USUAL_PORT = 7860


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Open a local page that draws samples of a model: class, seed and strength; save them as PNG.

    The page is served on 127.0.0.1, for this computer only, and requests nothing from a network. End it with Ctrl-C.
    It needs the extra serve.

    Try it:
      truedrift serve pretrained:cifar10
      truedrift serve runs/digits-0123456789ab --port 0 --no-browser
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(help=f"{RUN_HELP} Or USER/NAME on the Hugging Face Hub.")]

    port: int = USUAL_PORT
    """Port of the page; 0 for any free one."""

    browser: bool = True
    """Open the page in a browser."""

    def prepare(self) -> Callable[[], str]:
        """Check the port and the package."""
        if not 0 <= self.port <= 65535:
            allowed = "must be from 1 to 65535, or 0 for any free one"
            raise UserError(f"is {self.port}", allowed, f"pass for example {USUAL_PORT}", field="port")
        import_package("gradio", "truedrift serve", "serve")
        return partial(_serve, self)


def _serve(options: Serve) -> str:
    model = load(options.run)
    with open_socket(options.port) as bound:
        title = str(options.run) if ":" in str(options.run) else options.run.resolve().name
        serve_model(model, title, bound, ready=_announce, browser=options.browser)
    return "stopped"


def _announce(address: str) -> None:
    print(f"page: {address} (Ctrl-C ends it)", flush=True)
