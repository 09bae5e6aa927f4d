"""Puts the peers into folders of their own, once, with the ordinary clients of PyPI and npm."""

import os
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "corelm-compare"
"""Where everything lies unless an option says otherwise."""
DONE = ".installed"


class InstallError(Exception):
    """Something could not be installed; the message says what pip or npm said last."""


def python_packages(folder: Path, *packages: str) -> None:
    """A virtual environment with these packages."""
    if _begin(folder, packages):
        _run(sys.executable, "-m", "venv", "--clear", folder)
        _run(folder / "bin/pip", "install", "--quiet", *packages)
        (folder / DONE).write_text("\n".join(packages))


def remove_python_packages(folder: Path, *packages: str) -> None:
    """Take out of a virtual environment what does not work there."""
    _run(folder / "bin/pip", "uninstall", "--quiet", "--yes", *packages)


def node_packages(folder: Path, *packages: str) -> None:
    """A folder with these npm packages, none of whose scripts is run."""
    if _begin(folder, packages):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}')
        _run("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder, *packages)
        (folder / DONE).write_text("\n".join(packages))


def _begin(folder: Path, packages: tuple[str, ...]) -> bool:
    done = folder / DONE
    if done.exists() and done.read_text() == "\n".join(packages):
        return False
    print(f"installing {', '.join(packages)} into {folder}; this may take minutes", file=sys.stderr, flush=True)
    return True


def _run(*command: str | Path) -> None:
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise InstallError(f"{command[0]} is not installed") from error
    if done.returncode:
        raise InstallError((done.stderr or done.stdout).strip().splitlines()[-1])
