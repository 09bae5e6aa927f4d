"""Real installed distributions, made on the fly: a dist-info directory and a module in a directory on the path."""

import importlib
import textwrap


def install(directory, name, code, *, distribution=None, version="1.0", module=None):
    """Install a plugin whose entry point is `name` and whose module holds `code`."""
    distribution = distribution or f"dist-{name}"
    module = module or f"plugin_{distribution.replace('-', '_')}"
    install_metadata(directory, name, module, distribution=distribution, version=version)
    (directory / f"{module}.py").write_text(textwrap.dedent(code))
    importlib.invalidate_caches()


def install_metadata(directory, name, module, *, distribution, version="1.0"):
    """Install a plugin whose module is on the path already."""
    info = directory / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[corelm]\n{name} = {module}\n")
