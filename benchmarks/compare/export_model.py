"""Writes a GGUF model's weights, in bfloat16, and its tokenizer as a directory: export_model.py GGUF DIRECTORY."""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def export(gguf: Path, directory: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    # The weights are dequantised by now, but only a model that says so can be saved.
    vars(model).update(hf_quantizer=None, is_quantized=False)
    del model.config.quantization_config
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(directory)
    model.save_pretrained(directory)


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path(sys.argv[2]))
