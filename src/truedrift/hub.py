"""The Hugging Face Hub: download and upload folders of models with huggingface_hub.

A model on the Hub is called USER/NAME. A local folder of that name has priority: "runs/mine" is a path if a folder
"runs" exists. HF_ENDPOINT, HF_TOKEN and HF_HOME have their usual meaning.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from truedrift.errors import UserError, error_text, import_package

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")


def is_hub_name(source: Path | str) -> bool:
    """Return whether this is a name USER/NAME on the Hub, and not a path.

    Example:
        >>> is_hub_name("someone/digits"), is_hub_name("./someone/digits"), is_hub_name("pretrained:digits")
        (True, False, False)
    """
    return _NAME.fullmatch(str(source)) is not None and not Path(source).parent.exists()


def require_hub_name(name: str) -> None:
    """Require a name USER/NAME."""
    if _NAME.fullmatch(name) is None or ".." in name or "--" in name or name.endswith((".git", ".", "-")):
        allowed = "must be USER/NAME of letters, digits, '-', '_' and '.'"
        raise UserError(f"is {name!r}", allowed, "pass for example your-name/digits", field="name")


def download_model(name: str, files: Sequence[str]) -> Path:
    """Download files of a model into the cache of huggingface_hub, or find them there.

    Args:
        name: USER/NAME.
        files: Names of the files. Files that the model does not have are left out.

    Returns:
        The folder in the cache.

    Raises:
        UserError: If there is no such model, or the Hub cannot be reached.
    """
    hub: Any = import_package("huggingface_hub", "loading models from the Hub", "train")
    require_hub_name(name)
    with _hub_errors(name, "check the name, or pass the path of a folder that exists"):
        return Path(hub.snapshot_download(name, allow_patterns=list(files), library_name="truedrift"))


def require_token() -> None:
    """Require a token for uploads."""
    hub: Any = import_package("huggingface_hub", "uploads to the Hub", "train")
    if hub.get_token() is None:
        problem, allowed = "no token of the Hugging Face Hub was found", "an upload needs one with write access"
        raise UserError(problem, allowed, "run hf auth login, or set HF_TOKEN; tokens: huggingface.co/settings/tokens")


def upload_model(folder: Path, name: str, files: Sequence[str], *, private: bool = False) -> str:
    """Upload files of a folder as a model; the model is made if it is missing.

    Args:
        folder: The folder.
        name: USER/NAME.
        files: Names of the files to send. Nothing else of the folder is sent.
        private: Make the model private. A model that is public is then refused.

    Returns:
        The address of the model.

    Raises:
        UserError: If there is no token, the Hub refuses the upload, or it cannot be reached.
    """
    hub: Any = import_package("huggingface_hub", "uploads to the Hub", "train")
    require_hub_name(name)
    require_token()
    api = hub.HfApi(library_name="truedrift")
    with _hub_errors(name, "check the name, and that your token may write to it"):
        # A public model stays public, whatever the request says.
        address = str(api.create_repo(name, private=private or None, exist_ok=True))
        if private and not api.model_info(name).private:
            problem = f"{name!r} exists and is public"
            raise UserError(problem, "--private needs a private model", "change its settings on the Hub, or rename it")
        message = "Upload by truedrift push"
        api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=list(files), commit_message=message)
    return address


@contextmanager
def _hub_errors(name: str, fix: str) -> Iterator[None]:
    """Report what the Hub or the network refuses as one line."""
    errors: Any = import_package("huggingface_hub.errors", "the Hub", "train")
    try:
        yield
    except UserError:
        raise
    except (errors.RepositoryNotFoundError, errors.GatedRepoError) as error:
        reason = "may be accessed only after its authors agree" if isinstance(error, errors.GatedRepoError) else ""
        problem = f"the Hub has no model {name!r} that you may use" if not reason else f"the model {name!r} {reason}"
        raise UserError(problem, "must be a public model, or one that your token may use", fix) from None
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "unknown")
        problem = f"the Hub refused the request for {name!r} (status {status}: {error_text(error, 150)})"
        raise UserError(problem, "must be allowed for your token", fix) from None
    except (errors.LocalEntryNotFoundError, OSError, import_package("httpx", "the Hub", "train").HTTPError) as error:
        problem = f"{name!r} is no folder here, and the Hub cannot be reached ({_describe_cause(error)})"
        raise UserError(problem, "must be a folder or a model on the Hub", fix) from None


def _describe_cause(error: BaseException) -> str:
    """Return in a few words why a request failed: the first error, from which huggingface_hub and httpx made others."""
    errors: Any = import_package("huggingface_hub.errors", "the Hub", "train")
    while cause := error.__cause__ or error.__context__:
        error = cause
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    return textwrap.shorten(error_text(error), 80, placeholder=" …")
