"""`truedrift serve RUN`: a local page that draws samples."""

from collections.abc import Callable
from functools import partial

from truedrift.cli.options.sharing import USUAL_PORT, Serve
from truedrift.errors import UserError, import_package
from truedrift.model import load
from truedrift.share.serve import open_socket, serve_model


def prepare(command: Serve) -> Callable[[], str]:
    """Check the port and the package."""
    if not 0 <= command.port <= 65535:
        allowed = "must be from 1 to 65535, or 0 for any free one"
        raise UserError(f"is {command.port}", allowed, f"pass for example {USUAL_PORT}", field="port")
    import_package("gradio", "truedrift serve", "serve")
    return partial(_serve, command)


def _serve(options: Serve) -> str:
    model = load(options.run)
    with open_socket(options.port) as bound:
        title = str(options.run) if ":" in str(options.run) else options.run.resolve().name
        serve_model(model, title, bound, ready=_announce, browser=options.browser)
    return "stopped"


def _announce(address: str) -> None:
    print(f"page: {address} (Ctrl-C ends it)", flush=True)
