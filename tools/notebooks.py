"""Execute the notebooks of examples/ and keep their outputs, without times and paths of the machine: `make notebooks`.

A notebook is executed in a new, empty directory, which stands as "." in its outputs. The first code cell has the tag
`parameters`; the tests replace it by smaller sizes.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
LIMIT_SECONDS = 1200


def execute(path: Path, folder: Path, parameters: str | None = None) -> Any:
    """Execute a notebook in a folder.

    Args:
        path: The notebook, which is not changed.
        folder: The working directory.
        parameters: Source of the cell with the tag `parameters`; None: as it is.

    Returns:
        The notebook with its outputs.
    """
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [each for each in notebook.cells if "parameters" in each.metadata.get("tags", ())]
    cell.source = cell.source if parameters is None else parameters
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm would like to draw widgets
    resources = {"metadata": {"path": str(folder)}}
    options = {"resources": resources, "record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, timeout=LIMIT_SECONDS, kernel_name="python3", **options).execute()
    for output in (output for each in notebook.cells for output in each.get("outputs", ())):
        if output.output_type == "stream":
            output.text = output.text.replace(f"{folder.resolve()}/", "").replace("\r\n", "\n")
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
    return notebook


def main(names: list[str]) -> None:
    """Execute the named notebooks, or all, and write them."""
    for path in [EXAMPLES / f"{name}.ipynb" for name in names] or sorted(EXAMPLES.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(execute(path, Path(folder)), path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
