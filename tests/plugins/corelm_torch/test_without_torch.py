"""Everything about a checkpoint but its computation is known without torch."""

import subprocess
import sys

import pytest
from checkpoints import save, tiny_model, write_gguf

CODE = """
import sys
from pathlib import Path

import corelm_torch.plugin
from corelm.api import ResolvedModel
from corelm_torch.parts import load_parts
from corelm_torch.rope import rope_table

path, format = sys.argv[1:]
parts = load_parts(ResolvedModel(name="tiny", path=Path(path), format=format))
assert parts.plain
assert len(rope_table(parts.config, 8)) == 2
assert sum(weight.values().size for weight in parts.plain.weights()) > 0
assert not {"torch", "transformers"} & sys.modules.keys()
"""


@pytest.mark.parametrize("format", ["huggingface", "gguf"])
def test_parts_weights_and_rotary_tables(tmp_path, format):
    model = tiny_model()
    files = save(model, tmp_path) if format == "huggingface" else write_gguf(tmp_path / "tiny.gguf", model, "llama")
    subprocess.run([sys.executable, "-c", CODE, files.path, format], check=True, timeout=60)
