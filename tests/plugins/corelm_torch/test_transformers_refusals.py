"""What does not run through transformers' own modules is refused before anything is loaded, with the reason."""

import json
import re
import sys

import pytest
import torch
import transformers
from architectures import REFUSED, RUNNING, SIZES, make
from corelm_torch.parts import load_parts
from safetensors.torch import load_file, save_file

from corelm.api import ModelLoadError, ResolvedModel

CPU = torch.device("cpu")


def directory(path, config, **changes):
    """A model directory without weights."""
    config.architectures = [transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].__name__]
    config.save_pretrained(path)
    change(path, **changes)
    return ResolvedModel(name="tiny", path=path, format="huggingface")


def change(path, **changes):
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def load(model):
    load_parts(model).build(torch.float32).load(max_model_len=16, device=CPU, progress=lambda fraction, text: None)


@pytest.mark.parametrize("name", REFUSED)
def test_models_are_refused_with_the_reason(tmp_path, name):
    make_config, reason = REFUSED[name]
    with pytest.raises(ModelLoadError, match=f"{tmp_path}: .* transformers' modules: {re.escape(reason)}"):
        load_parts(directory(tmp_path, make_config()))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"add_cross_attention": True}, "it has attention to another model"),
        ({"is_encoder_decoder": True}, "it is an encoder and a decoder"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "its weights are quantised"),
        ({"model_type": "mixtral"}, "model_type 'mixtral' does not go with architecture 'GPT2LMHeadModel'"),
        ({"model_type": "unheard_of"}, "transformers cannot read the configuration: .*unheard_of"),
        (
            {"n_head": 5},
            "its code does not run without numbers: ValueError: `embed_dim` must be divisible by num_heads",
        ),
        ({"n_embd": "wide"}, "transformers cannot read the configuration: .*wide"),
        ({"architectures": ["Unheard"]}, r"'Unheard' is not supported: .*; transformers 5\S+ has no causal language"),
        (
            {"architectures": ["GPT2Model"]},
            "'GPT2Model' is not supported: .* has no causal language model of that name",
        ),
    ],
)
def test_configurations_are_refused_with_the_reason(tmp_path, changes, reason):
    model = directory(tmp_path, RUNNING["gpt2"](), **changes)
    with pytest.raises(ModelLoadError, match=reason):
        load_parts(model)


def test_code_that_comes_with_a_model_is_never_run(tmp_path):
    code = "raise SystemExit('it ran')"
    (tmp_path / "modeling_mine.py").write_text(code)
    (tmp_path / "configuration_mine.py").write_text(code)
    maps = {"AutoConfig": "configuration_mine.Config", "AutoModelForCausalLM": "modeling_mine.Model"}
    unknown = directory(tmp_path, RUNNING["gpt2"](), auto_map=maps, model_type="mine")
    with pytest.raises(ModelLoadError, match="it comes with code of its own, which is not run"):
        load_parts(unknown)
    change(tmp_path, model_type="gpt2")
    assert load_parts(unknown).config.num_layers == 2


def test_multimodal_models_are_refused(tmp_path):
    text = transformers.Gemma3TextConfig(**SIZES)
    vision = transformers.SiglipVisionConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=2)
    with pytest.raises(ModelLoadError, match="it is made for more than text"):
        load_parts(directory(tmp_path, transformers.Gemma3Config(text_config=text, vision_config=vision)))


def test_without_transformers_the_message_says_so(tmp_path, monkeypatch):
    model = directory(tmp_path, RUNNING["gpt2"]())
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelLoadError, match=r"available: LlamaForCausalLM.*; transformers, .* is not installed"):
        load_parts(model)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (
            lambda weights: weights.pop("transformer.h.1.ln_2.weight"),
            r"1 missing keys: transformer\.h\.1\.ln_2\.weight",
        ),
        (
            lambda weights: weights.update({"transformer.h.1.extra": torch.zeros(2)}),
            r"1 unexpected keys: transformer\.h\.1\.extra",
        ),
        (
            lambda weights: weights.update({"transformer.ln_f.bias": torch.zeros(5)}),
            r"1 mismatched keys: \('transformer\.ln_f\.bias', .*5.*64",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(tmp_path, edit, reason):
    model = make(RUNNING["gpt2"](), tmp_path / "model").resolved
    file = model.path / "model.safetensors"
    weights = load_file(file)
    edit(weights)
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=reason):
        load(model)


def test_pickled_and_damaged_weights_are_refused(tmp_path):
    model = make(RUNNING["gpt2"](), tmp_path / "model").resolved
    file = model.path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelLoadError, match=r"transformers cannot load the weights: .*incomplete"):
        load(model)
    file.unlink()
    torch.save({}, model.path / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match=r"transformers cannot load the weights: .*safetensors"):
        load(model)


def test_progress_is_told(tmp_path):
    model = make(RUNNING["gpt2"](), tmp_path / "model").resolved
    built, told = load_parts(model).build(torch.float32), []
    assert {parameter.device.type for parameter in built.parameters()} == {"meta"}
    built.load(max_model_len=16, device=CPU, progress=lambda fraction, text: told.append(fraction))
    assert len(told) > 10
    assert told == sorted(told)
    assert told[-1] < 1
