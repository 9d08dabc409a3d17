"""The page of `truedrift explore`: the bias of a minibatch centroid, and particles in a field, computed by the browser.

The page brings `fig:illustration` and the particles of the study `equilibrium` alive. It is one file: the template
explore.html.j2, the style explore.css and the scripts explore_*.js. Its Content-Security-Policy allows this style and
this script alone, by their hashes, and no request.
"""

from pathlib import Path

from jinja2 import Environment, StrictUndefined

from truedrift._version import __version__
from truedrift.data.toys import FOUR_MODES, THREE_CLUSTERS
from truedrift.page.page import content_policy, read_resource
from truedrift.paper import equilibrium, equilibrium_signals, fig_illustration, particles
from truedrift.storage import write_atomically

SCRIPTS = ("centroids", "exact", "field", "drawing", "controls", "bias", "particles")
"""The scripts in the order of the page; each uses those before it."""

START = {
    "clusters": THREE_CLUSTERS.means,
    "std": THREE_CLUSTERS.std,
    "query": fig_illustration.QUERY,
    "tau": fig_illustration.TAU,
    "modes": FOUR_MODES.means,
    "mode_std": FOUR_MODES.std,
    "start_std": particles.START_STD,
    "positives": equilibrium.POSITIVES,
    "generated": equilibrium_signals.GENERATED,
    "field_tau": equilibrium_signals.TAU,
    "rest_displacement": FOUR_MODES.std / 5,
}
"""What the scripts start from: settings of `fig:illustration` and of the study `equilibrium`."""


def render_explore() -> str:
    """Render the HTML of the page."""
    style = read_resource("explore.css")
    script = "\n".join(read_resource(f"explore_{name}.js") for name in SCRIPTS)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(read_resource("explore.html.j2")).render(
        policy=content_policy(style, script),
        style=style,
        script=script,
        data=START,
        version=__version__,
    )


def write_explore(path: Path) -> Path:
    """Write the page atomically.

    Args:
        path: The HTML file. Its directory must exist.

    Returns:
        The path.
    """
    write_atomically(path, render_explore().encode())
    return path
