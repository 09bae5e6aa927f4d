"""Rotary tables are those of transformers, but for the last bits."""

import dataclasses

import numpy as np
import pytest
import torch
import transformers
from checkpoints import CONFIG, SIZES, directory_model
from corelm_torch.config import ModelConfig, RopeScaling, load_config
from corelm_torch.rope import inverse_frequencies, rope_table
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

STRETCHED = {"factor": 8.0, "original_max_position_embeddings": 512}
PARAMETERS = {
    "default": {"rope_theta": 1e5},
    "linear": {"rope_theta": 1e4, "factor": 3.0},
    "llama3": {"rope_theta": 5e5, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **STRETCHED},
    "yarn": {"rope_theta": 1e6, **STRETCHED},
    "yarn, not truncated": {"rope_theta": 1e6, "truncate": False, "attention_factor": 1.5, **STRETCHED},
}
LENGTH = 4096


def configurations(name, folder) -> tuple[transformers.LlamaConfig, ModelConfig]:
    parameters = {"rope_type": name.split(",")[0], **PARAMETERS[name]}
    sizes = SIZES | {"hidden_size": 384, "max_position_embeddings": LENGTH}
    theirs = transformers.LlamaConfig(**sizes, rope_parameters=parameters, architectures=["LlamaForCausalLM"])
    theirs.save_pretrained(folder)
    return theirs, load_config(directory_model(folder))


@pytest.mark.parametrize("name", PARAMETERS)
def test_tables_equal_those_of_transformers(tmp_path, name):
    theirs, ours = configurations(name, tmp_path)
    embedding = LlamaRotaryEmbedding(theirs)
    frequencies = inverse_frequencies(ours)
    assert frequencies.dtype == np.float32
    np.testing.assert_array_max_ulp(frequencies, embedding.inv_freq.numpy(), maxulp=2)
    # From the same frequencies on, because positions multiply their last bits.
    embedding.inv_freq = torch.from_numpy(frequencies)
    expected = embedding(torch.zeros(1), torch.arange(LENGTH).unsqueeze(0))
    for table, with_both_halves in zip(rope_table(ours, LENGTH), expected, strict=True):
        assert table.dtype == np.float32
        np.testing.assert_allclose(table, with_both_halves[0, :, :48].numpy(), rtol=0, atol=2**-22)


def test_given_factors_divide_the_frequencies():
    factors = (1.0, 2.0, 3.0, 4.0)
    scaled = dataclasses.replace(CONFIG, rope_scaling=RopeScaling(kind="factors", factors=factors))
    np.testing.assert_allclose(inverse_frequencies(scaled), inverse_frequencies(CONFIG) / np.array(factors), rtol=1e-7)
