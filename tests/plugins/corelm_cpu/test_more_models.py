"""Architectures that a plugin brings: the example, loaded as plugins are, computes what transformers computes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from corelm_torch import plugin
from corelm_torch.parts import load_parts
from distributions import install, install_metadata

from corelm.api import ModelLoadError, PluginError, ResolvedModel
from corelm.plugins import PluginHost

EXAMPLE = Path(__file__).parents[3] / "examples" / "more_models"
SIZES = {
    "vocab_size": 160,
    "hidden_size": 72,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 1,
}
CONFIGS = {
    "olmo2": lambda: transformers.Olmo2Config(**SIZES),
    "olmo2 biased": lambda: transformers.Olmo2Config(**SIZES, attention_bias=True, tie_word_embeddings=True),
    "phi3": lambda: transformers.Phi3Config(**SIZES),
    "phi3 windowed": lambda: transformers.Phi3Config(**SIZES, sliding_window=9),
}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory on the path; what is imported from it is forgotten again, and what the plugins registered."""
    monkeypatch.setattr(plugin, "_loaded", None)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("plugin_dist_")]:
        del sys.modules[name]


@pytest.fixture
def more_models(site, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    install_metadata(site, "more_models", "corelm_more_models.plugin", distribution="corelm-more-models")
    [record] = [one for one in PluginHost.load(["torch", "more_models"]).plugins if one.name == "more_models"]
    assert record.failure is None
    assert record.provides == (
        "corelm_torch_register_models:Olmo2ForCausalLM",
        "corelm_torch_register_models:Phi3ForCausalLM",
    )


def tiny(name: str, folder: Path):
    torch.manual_seed(7)
    reference = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter_name, parameter in reference.named_parameters():
            parameter.normal_(1.0 if "norm" in parameter_name else 0.0, 0.2)
    reference.save_pretrained(folder)
    return ResolvedModel(name=name, path=folder, format="huggingface"), reference


@pytest.mark.usefixtures("more_models")
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_transformers(driver_class, prompt, tmp_path, name):
    model, reference = tiny(name, tmp_path / "model")
    driver = driver_class(model, block_size=4)
    prompts = [prompt(length, length) for length in (1, 20, 37)]
    for tokens, logits in zip(prompts, driver.logits(*prompts, chunk=19), strict=True):
        with torch.no_grad():
            expected = reference(torch.tensor([tokens])).logits[0]
        assert (logits - expected).abs().max() <= 1e-4 * expected.abs().max()
    with torch.no_grad():
        expected = reference.generate(
            torch.tensor([prompts[1]]), max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    assert driver.generate(prompts[1], tokens=12) == [expected[0, 20:].tolist()]
    driver.executor.shutdown()


NO_TORCH = """
import sys
from pathlib import Path
from corelm.api import ResolvedModel
from corelm_more_models import plugin

def register(name, factory, summary):
    if name == sys.argv[1]:
        parts = factory(ResolvedModel(name=name, path=Path(sys.argv[2]), format="huggingface"))
        print(parts.plain is not None)
        assert parts.plain is None or len(list(parts.plain.weights())) > 2

plugin.corelm_torch_register_models(register)
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize(("name", "plain"), [("olmo2", False), ("phi3", True)])
def test_configurations_are_read_without_torch(tmp_path, name, plain):
    model, reference = tiny(name, tmp_path)
    command = [sys.executable, "-c", NO_TORCH, type(reference).__name__, model.path]
    run = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == f"{plain}\n"


def rename(model: ResolvedModel, architecture: str) -> ResolvedModel:
    file = model.path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"architectures": [architecture]}))
    return model


def test_without_the_plugin_transformers_does_it_if_it_can(site, tmp_path):
    model, _ = tiny("phi3", tmp_path / "model")
    PluginHost.load(["torch"])
    parts = load_parts(model)
    assert (parts.plain, parts.whose) == (None, "transformers'")
    rename(model, "PhiNextForCausalLM")
    with pytest.raises(
        ModelLoadError, match=r"architecture 'PhiNextForCausalLM' is not .* available: LlamaForCausalLM, "
    ):
        load_parts(model)


def test_a_plugin_that_failed_is_named_where_its_architecture_was_needed(site, tmp_path):
    install(site, "more_models", "raise ImportError('no libphi')")
    PluginHost.load(["torch", "more_models"])
    model = rename(tiny("phi3", tmp_path / "model")[0], "PhiNextForCausalLM")
    cause = r"'more_models' \(dist-more_models 1.0\) is not loaded: ImportError: no libphi"
    with pytest.raises(ModelLoadError, match=cause):
        load_parts(model)


def test_an_architecture_that_two_plugins_bring_belongs_to_neither(site):
    hook = "from corelm.api import hookimpl\n@hookimpl\ndef corelm_torch_register_models(register):\n    "
    install(site, "more_llamas", hook + "register('LlamaForCausalLM', print)")
    host = PluginHost.load(["torch", "more_llamas"])
    assert [one.name for one in host.plugins if one.failure] == ["more_llamas"]
    assert "MistralForCausalLM" in plugin.architectures().names
    both = r"by both plugin 'torch' \(corelm-torch .*\) and plugin 'more_llamas' \(dist-more_llamas 1.0\); name one of"
    with pytest.raises(PluginError, match=both):
        plugin.architectures().create("LlamaForCausalLM", None)


@pytest.mark.usefixtures("more_models")
def test_damaged_checkpoints_are_named(tmp_path):
    model, _ = tiny("phi3", tmp_path / "model")
    config = json.loads((model.path / "config.json").read_text())
    (model.path / "config.json").write_text(json.dumps(config | {"num_key_value_heads": 3}))
    with pytest.raises(ModelLoadError, match=r"model.safetensors: tensor 'model.layers.*qkv_proj.weight' has 120 rows"):
        list(load_parts(model).plain.weights())
    (model.path / "config.json").write_text(json.dumps(config | {"num_key_value_heads": 4}))
    with pytest.raises(ModelLoadError, match="6 attention heads cannot share 4"):
        load_parts(model)


def test_the_library_works_without_plugins(tmp_path, monkeypatch):
    monkeypatch.setattr(plugin, "_loaded", None)
    model = rename(tiny("phi3", tmp_path)[0], "PhiNextForCausalLM")
    with pytest.raises(ModelLoadError, match="'PhiNextForCausalLM' is not supported: available: LlamaForCausalLM"):
        load_parts(model)
