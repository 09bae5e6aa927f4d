"""Everything that corelm needs on a machine where nothing can be installed: wheels to carry, and an import path.

    python benchmarks/gpu/carry.py pack DIR           fetches wheels for Python $PACK_PYTHON (3.12)
    python benchmarks/gpu/carry.py site DIR TARGET    unpacks them into TARGET, and prints a PYTHONPATH

PyTorch, Triton, NumPy, transformers and what these need are taken from the machine. Needs nothing but Python itself.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = (
    ".",
    "plugins/corelm_gguf",
    "plugins/corelm_torch",
    "plugins/corelm_cpu",
    "plugins/corelm_gpu",
    "plugins/corelm_fcfs",
    "plugins/corelm_hf",
    "tests/dists/corelm_fake",
    "benchmarks/gpu/random_models",
)
"""Where to find the packages of this tree that the check imports, and the entry points of their plugins."""
WHEELS = (
    *("importlib-metadata", "lazy-importer", "zipp", "msgspec", "pluggy", "pydantic-settings", "tqdm"),
    *("pydantic", "pydantic-core", "annotated-types", "typing-extensions", "typing-inspection", "python-dotenv"),
    *("gguf", "pyyaml", "psutil"),
    *("pytest", "iniconfig", "packaging", "pygments", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "execnet"),
    *("hypothesis", "sortedcontainers"),
)
"""With all that they need, but for what comes with PyTorch or transformers."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")
MOST_BYTES = 64 * 2**20
"""For the wheels and the source tree together."""


def pack(folder):
    """Fetch the wheels into `folder`, and say how large they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in folder.glob("*.whl"):
        wheel.unlink()
    version = os.environ.get("PACK_PYTHON", "3.12")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--implementation=cp"]
    options += [f"--python-version={version}", *(f"--platform={platform}" for platform in PLATFORMS)]
    command = [sys.executable, "-m", "pip", "download", *options, "-c", "constraints.txt", "-d", folder.resolve()]
    subprocess.run([*command, *WHEELS], check=True, cwd=ROOT)
    (folder / "python").write_text(version)
    packed = sum(wheel.stat().st_size for wheel in folder.glob("*.whl"))
    with tempfile.TemporaryDirectory() as place:
        unpack(folder, Path(place))
        unpacked = sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file())
    print(f"{len(WHEELS)} wheels for Python {version} in {folder}: {mib(packed)}, unpacked {mib(unpacked)}")
    if packed + tree_size() > MOST_BYTES:
        sys.exit(f"with the source tree, {mib(tree_size())}, that is more than {mib(MOST_BYTES)}")


def tree_size():
    """Bytes of the files of this tree that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = (ROOT / name for name in listed.stdout.split("\0") if name)
    return sum(file.stat().st_size for file in files if file.is_file())


def site(folder, target):
    """Make `target` a folder of packages; the import path."""
    wanted = folder / "python"
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not wanted.is_file():
        print(f"{folder} holds no packages: this Python's own have to do", file=sys.stderr)
    elif wanted.read_text() != running:
        print(f"{folder} is for Python {wanted.read_text()}, not {running}: it is not used", file=sys.stderr)
    else:
        unpack(folder, target)
    for project in PROJECTS:
        describe(ROOT / project, target)
    print(os.pathsep.join(map(str, [target, *(ROOT / project for project in PROJECTS)])))


def unpack(folder, target):
    """Unpack all wheels."""
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)


def describe(project, target):
    """Write what an installation would say of a project: its name, version and entry points."""
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    info = target / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n")
    groups = about.get("entry-points", {}).items()
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items()) for group, names in groups
    ]
    (info / "entry_points.txt").write_text("".join(lines))


def mib(num_bytes):
    """A size for people."""
    return f"{num_bytes / 2**20:.1f} MiB"


if __name__ == "__main__":
    action, *folders = sys.argv[1:]
    {"pack": pack, "site": site}[action](*map(Path, folders))
