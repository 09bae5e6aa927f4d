"""Outputs of the whole engine against the same model computed in float32, without a cache, by PyTorch alone."""

import random

import torch
from clock import DEVICE
from corelm_random_models import random_llama, read_config, resolve
from corelm_torch.ops import Ops

from corelm import LLM, SamplingParams

MOST_APART = {"float32": 1e-3, "bfloat16": 0.15}
"""How far log-probabilities may lie from those in float32, and how far the token that was chosen from the best."""


class PlainOps(Ops):
    """Attention over the tokens of one step, which are the whole sequence."""

    def attention(self, layer, q, k, v, *, scale=None):
        group = q.shape[1] // k.shape[1]
        q, k, v = q.transpose(0, 1), *(part.transpose(0, 1).repeat_interleave(group, 0) for part in (k, v))
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        return attended.transpose(0, 1).flatten(1)


@torch.inference_mode()
def measure(bench, record):
    """Compare greedy outputs of several prompts together, computed once and partly from the prefix cache."""
    name, sizes = bench.sizes.checked_model, bench.sizes
    config = read_config(resolve(name))
    draw = random.Random(0)
    prompts = [[draw.randrange(config.vocab_size) for _ in range(length)] for length in sizes.checked_prompts]
    reference = random_llama(config, torch.float32)
    longest = max(sizes.checked_prompts) + sizes.checked_output
    reference.load(max_model_len=longest, device=DEVICE, progress=lambda fraction, what: None)
    params = SamplingParams(temperature=0.0, max_tokens=sizes.checked_output, ignore_eos=True, logprobs=0)
    limits = {"max_model_len": longest, "max_num_seqs": len(prompts), "kv_cache_tokens": len(prompts) * 2 * longest}
    with LLM(name, executor="gpu", tokenizer="letters", dtype=sizes.dtype, progress=False, **limits) as llm:
        for how in ("computed", "partly from the prefix cache"):
            apart = [
                differences(reference, prompt, output)
                for prompt, output in zip(prompts, llm.generate(prompts, params), strict=True)
            ]
            report(record, how, torch.cat(apart), MOST_APART[sizes.dtype])


def differences(reference, prompt, output):
    """For each token [tokens, 2]: how far its log-probability is from the reference, and that from the best."""
    tokens = torch.tensor([*prompt, *output.token_ids], device=DEVICE)
    rows = torch.arange(len(prompt) - 1, len(tokens) - 1, device=DEVICE)
    ops = PlainOps()
    hidden = reference(tokens, torch.arange(len(tokens), device=DEVICE), rows, ops)
    scores = reference.logits(hidden, ops).log_softmax(-1)
    chosen = scores.gather(1, tokens[len(prompt) :, None])[:, 0]
    found = torch.tensor([entry.logprob for entry in output.logprobs], device=DEVICE)
    return torch.stack([(found - chosen).abs(), scores.max(1).values - chosen], dim=1)


def report(record, how, apart, most):
    """Add the largest differences; raises `ValueError` if they are too large."""
    logprob, gap = apart.max(0).values.tolist()
    best = (apart[:, 1] == 0).float().mean().item()
    shown = f"{logprob:.1e} apart, {best:.0%} the best token"
    record.add(f"outputs {how}", shown, logprob=logprob, gap=gap, best=best, tokens=len(apart))
    if not max(logprob, gap) < most:
        raise ValueError(f"outputs {how}: log-probabilities are {logprob:.3g} apart, the best token {gap:.3g} better")
